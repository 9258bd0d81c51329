"""Each rank has row groups of its own, and together they have everything once."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.loader import BlockShuffled, Lanes, Loader


@given(
    n_samples=st.integers(1, 300),
    lanes=st.integers(1, 9),
    batch_size=st.integers(1, 40),
    seed=st.integers(0, 99),
    epoch=st.integers(0, 3),
)
def test_lanes_are_an_order_of_all_samples(n_samples: int, lanes: int, batch_size: int, seed: int, epoch: int) -> None:
    order = Lanes(BlockShuffled(block_lengths=7, window=2), lanes=lanes, batch_size=batch_size)

    indices = order.indices(np.arange(n_samples), n_samples, seed, epoch)

    assert sorted(indices.tolist()) == list(range(n_samples))


def test_the_ranks_share_no_blocks_but_those_at_the_borders_between_them() -> None:
    n_blocks, length, world = 40, 100, 4
    iterator = SequenceDatasetIterator([np.arange(n_blocks * length)])
    blocks_of = []
    for rank in range(world):
        loader = Loader(
            iterator,
            32,
            shuffle=Lanes(BlockShuffled(block_lengths=length, window=2), lanes=world, batch_size=32),
            seed=3,
            shard=(rank, world),
            worker_kind="inline",
        )
        blocks_of.append([set((batch[0] // length).tolist()) for batch in loader])

    whole_steps = n_blocks * length // world // 32
    seen = [set().union(*blocks[:whole_steps]) for blocks in blocks_of]
    for rank in range(world):
        for other in range(rank):
            assert len(seen[rank] & seen[other]) <= 2  # a window of two blocks may lie across the border
    assert [len(blocks) for blocks in blocks_of] == [len(blocks_of[0])] * world
