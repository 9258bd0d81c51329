"""The orders of an epoch: bijections, the same everywhere, block by block or by length if asked
for.
"""

from __future__ import annotations

import itertools
import json
import pickle
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from loader_batches import InBlocks, numbers_to

from data_stack.dataset.iterator import (
    CombinedDatasetIterator,
    DatasetIteratorView,
    SequenceDatasetIterator,
)
from data_stack.exception import ConfigError
from data_stack.loader import BlockShuffled, Bucketed, InOrder, Lanes, Loader, Order, Shuffled
from data_stack.loader.orders import block_lengths
from data_stack.loader.orders.order import indices_of

LENGTHS = np.random.default_rng(0).lognormal(4, 0.9, 10_000).astype(np.int64)


def whole(order: Order, n_samples: int, seed: int = 0, epoch: int = 0) -> npt.NDArray[np.int64]:
    """The order of all samples."""
    return np.asarray(order.indices(np.arange(n_samples), n_samples, seed, epoch), dtype=np.int64)


# ---------------------------------------------------------------------------------------- any order


@given(
    st.integers(1, 300),
    st.integers(1, 20),
    st.integers(1, 6),
    st.integers(-3, 99),
    st.integers(0, 3),
    st.data(),
)
def test_every_sample_is_at_one_position_with_random_access(
    n: int, size: int, window: int, seed: int, epoch: int, data: st.DataObject
) -> None:
    in_blocks = BlockShuffled(block_lengths=size, window=window)
    orders = [
        Shuffled(),
        InOrder(),
        in_blocks,
        BlockShuffled(block_lengths=[n - n // 3, 0, n // 3], window=window),
        Bucketed(LENGTHS[:n] % 10, chunk=size, window=window),
        Lanes(in_blocks, lanes=window, batch_size=size),
    ]
    order = data.draw(st.sampled_from(orders))
    positions = np.array(data.draw(st.lists(st.integers(0, n - 1), max_size=20)), dtype=np.int64)

    indices = whole(order, n, seed, epoch)

    assert sorted(indices.tolist()) == list(range(n))
    assert order.indices(positions, n, seed, epoch).tolist() == indices[positions].tolist()


@given(st.integers(1, 300), st.integers(), st.integers(0, 50))
def test_the_order_is_that_of_the_shuffled_iterator(n: int, seed: int, epoch: int) -> None:
    shuffled = SequenceDatasetIterator([np.arange(n)]).shuffle(seed, epoch=epoch)

    assert whole(Shuffled(), n, seed, epoch).tolist() == shuffled.read_column(0).tolist()


def test_orders_are_the_same_on_every_machine_and_version() -> None:
    assert Shuffled().indices(np.arange(3), 10**12, 7, 3).tolist() == [
        934666439573,
        664447288389,
        229441844223,
    ]
    assert Shuffled().indices(np.array([10**17]), 10**18, -5, 0).tolist() == [100611722893020488]
    assert whole(BlockShuffled(block_lengths=3, window=2), 10, 7, 3).tolist() == [
        1,
        2,
        9,
        0,
        4,
        3,
        5,
        8,
        6,
        7,
    ]
    assert whole(BlockShuffled(block_lengths=[4, 0, 1, 5], window=2), 10, 7).tolist() == [
        2,
        1,
        4,
        0,
        3,
        7,
        6,
        5,
        8,
        9,
    ]
    assert (
        repr(BlockShuffled(block_lengths=8, blocks=False))
        == "BlockShuffled(block_lengths=8, window=16, blocks=False)"
    )
    assert (
        repr(BlockShuffled(block_lengths=8, samples=False))
        == "BlockShuffled(block_lengths=8, window=1, samples=False)"
    )
    assert whole(Bucketed(LENGTHS[:11], chunk=2, window=6), 11, 8).tolist() == [
        10,
        4,
        2,
        7,
        9,
        8,
        0,
        5,
        1,
        3,
        6,
    ]
    large = BlockShuffled(block_lengths=[40_000, 1, 50_000, 30_000], window=2)
    assert large.indices(np.array([0, 9, 40_000, 99_999]), 120_001, 7, 3).tolist() == [
        113174,
        6668,
        97552,
        78739,
    ]  # two windows
    assert large.indices(np.arange(4), 120_001, 7, 3).tolist() == [
        113174,
        29166,
        9950,
        101905,
    ]  # one, which is written out
    assert BlockShuffled(block_lengths=600_000, window=2).indices(
        np.arange(2), 1_500_000, 7, 3
    ).tolist() == [752056, 1427924]


ORDERS = [
    InOrder(),
    Shuffled(),
    BlockShuffled(block_lengths=8, window=3),
    BlockShuffled(block_lengths=8, window=3, blocks=False),
    BlockShuffled(block_lengths=[10, 20, 10], window=2),
    Bucketed(LENGTHS[:40], chunk=5, window=3),
]


@pytest.mark.parametrize("order", ORDERS, ids=repr)
def test_a_pickled_order_is_the_same_whether_used_or_not(order: Order) -> None:
    before = whole(order, 40, 1, 1)

    copy = pickle.loads(pickle.dumps(order))

    assert np.array_equal(whole(copy, 40, 1, 1), before)
    assert copy.content() == order.content() == json.loads(json.dumps(order.content()))
    assert [each for each in ORDERS if each.content() == order.content()] == [order]


@pytest.mark.parametrize(
    ("order", "said"),
    [
        (BlockShuffled(block_lengths=[3, 4]), "7 samples together, but the iterator has 8"),
        (BlockShuffled(), "has no blocks"),
        (Bucketed([1, 2, 3], chunk=2), "3 samples, but the iterator has 8"),
    ],
)
def test_an_order_of_another_dataset_is_refused(order: Order, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        whole(order, 8)


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        (BlockShuffled, {"block_lengths": 0}, "block length"),
        (BlockShuffled, {"block_lengths": [3, -1]}, "block_lengths"),
        (BlockShuffled, {"block_lengths": [3.0, 1.0]}, "block_lengths"),
        (BlockShuffled, {"block_lengths": [3], "window": 0}, "window"),
        (BlockShuffled, {"block_lengths": 8, "blocks": False, "samples": False}, "InOrder"),
        (Bucketed, {"lengths": [1.5, 2], "chunk": 2}, "lengths .* got float64"),
        (Bucketed, {"lengths": [3, -1, 2], "chunk": 2}, "that of sample 1 is -1"),
        (
            Bucketed,
            {"lengths": [1], "chunk": 0},
            "the chunk of a bucketed order must be at least 1",
        ),
    ],
)
def test_wrong_arguments_are_refused(
    kind: Callable[..., Order], given: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        kind(**given)


# ----------------------------------------------------------------------------------- block by block

some_blocks = st.one_of(
    st.integers(1, 12).map(lambda length: (length, None)),
    st.lists(st.integers(0, 9), min_size=1, max_size=12)
    .filter(any)
    .map(lambda lengths: (lengths, sum(lengths))),
)


@given(some_blocks, st.integers(1, 6), st.integers(1, 60), st.integers(0, 9))
def test_a_block_wise_shuffle_reads_one_window_after_the_other(
    blocks: tuple[Any, int | None], window: int, n: int, epoch: int
) -> None:
    lengths, total = blocks
    n = n if total is None else total
    order = BlockShuffled(block_lengths=lengths, window=window)
    starts = np.cumsum(order.lengths(n)) - order.lengths(n)

    of_block = np.searchsorted(starts, whole(order, n, 3, epoch), side="right") - 1

    first = {block: place for place, block in reversed(list(enumerate(of_block.tolist())))}
    last = {block: place for place, block in enumerate(of_block.tolist())}
    in_use = [sum(first[block] <= place <= last[block] for block in first) for place in range(n)]
    assert max(in_use) <= window  # so a reader that keeps window + 1 of them reads each once


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=30),
    st.integers(1, 5),
    st.integers(),
    st.integers(0, 50),
)
def test_blocks_or_samples_may_stay_in_their_order(
    lengths: list[int], window: int, seed: int, epoch: int
) -> None:
    n_samples = sum(lengths)
    if n_samples == 0:
        return
    block_of = np.repeat(np.arange(len(lengths)), lengths)

    blocks = whole(
        BlockShuffled(block_lengths=lengths, window=window, samples=False), n_samples, seed, epoch
    )
    samples = whole(
        BlockShuffled(block_lengths=lengths, window=window, blocks=False), n_samples, seed, epoch
    )

    assert np.array_equal(np.sort(blocks), np.arange(n_samples))
    assert np.array_equal(np.sort(samples), np.arange(n_samples))
    changes = np.flatnonzero(np.diff(block_of[blocks])) + 1
    assert all((np.diff(run) == 1).all() for run in np.split(blocks, changes))
    assert len(changes) == len(set(block_of.tolist())) - 1
    assert (np.diff(block_of[samples] // window) >= 0).all()


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=30),
    st.integers(1, 5),
    st.integers(),
    st.booleans(),
)
def test_the_blocks_of_a_window_are_prefetched_one_window_ahead(
    lengths: list[int], window: int, seed: int, mixes_samples: bool
) -> None:
    n = sum(lengths)
    order = BlockShuffled(block_lengths=lengths, window=window, samples=mixes_samples)
    samples = order.indices(np.arange(n), n, seed, 3) if n else np.empty(0, int)
    block_of = np.repeat(np.arange(len(lengths)), lengths)[samples]  # at each position
    position = 0

    while position < n:
        ahead, until = order.upcoming(position, n, seed, 3)
        assert position < until <= n
        inside = [order.upcoming(each, n, seed, 3) for each in range(position, until)]
        assert {each[1] for each in inside} == {until}
        following = order.upcoming(until, n, seed, 3)[1] if until < n else n
        told = (
            set()
            if ahead is None
            else set(np.repeat(np.arange(len(lengths)), lengths)[ahead].tolist())
        )
        if all(lengths):  # otherwise a window may be empty
            assert told == set(block_of[until:following].tolist())
        position = until

    assert order.upcoming(n, n, seed, 3)[0] is None


def test_a_source_tells_its_blocks_to_the_shuffle() -> None:
    loader = Loader(
        InBlocks(3, 5, 2), 10, shuffle=BlockShuffled(window=1), seed=4, worker_kind="inline"
    )
    given = Loader(
        InBlocks(3, 5, 2),
        10,
        shuffle=BlockShuffled(block_lengths=[3, 5, 2], window=1),
        seed=4,
        worker_kind="inline",
    )

    (batch,), (expected,) = list(loader), list(given)

    assert batch["x"].tolist() == expected["x"].tolist() != list(range(10))
    assert loader.state_dict() == given.state_dict()


def test_layers_that_keep_the_order_keep_the_blocks() -> None:
    source = InBlocks(3, 5, 2)
    some = DatasetIteratorView(source, [0, 1, 9], {})
    stacks = {
        source.map(lambda sample: sample): [3, 5, 2],
        source.filter(lambda sample: sample["x"] % 2 == 0): [2, 2, 1],
        some: [2, 1],
        CombinedDatasetIterator([source, InBlocks(4)]): [3, 5, 2, 4],
    }

    for stack, expected in stacks.items():
        lengths = block_lengths(stack)
        assert lengths is not None
        assert lengths.tolist() == expected


def test_a_stack_without_blocks_is_an_error_with_a_remedy() -> None:
    with pytest.raises(ConfigError, match=r"BlockShuffled\(block_lengths=1000\)"):
        Loader(InBlocks(3, 5).shuffle(seed=1), 4, shuffle=BlockShuffled())


def test_samples_in_order_name_the_next_block_to_prefetch() -> None:
    order = InOrder().for_iterator(InBlocks(3, 4, 2))

    ahead = [order.upcoming(position, 9, 0, 0) for position in range(10)]

    told = [(None if samples is None else samples.tolist(), until) for samples, until in ahead]
    assert told == [*[([3], 3)] * 3, *[([7], 7)] * 4, *[([], 9)] * 2, (None, sys.maxsize)]
    assert InOrder().upcoming(0, 9, 0, 0) == (None, sys.maxsize)
    assert order.content() == InOrder().content()


def test_lanes_tell_each_block_with_the_first_batch_in_it() -> None:
    order = Lanes(InOrder(np.array([4, 4, 4, 4])), lanes=2, batch_size=2)

    told = [order.upcoming(position, 16, 0, 0) for position in range(0, 17, 2)]

    blocks = [[4], [12], None, None, [8], [], None, None]  # of each batch
    found = [(None if samples is None else samples.tolist(), until) for samples, until in told]
    assert found == [*zip(blocks, range(1, 17, 2), strict=True), (None, sys.maxsize)]


class Masking(Order):
    """Answers positions by a mask."""

    def indices(self, positions: Any, n_samples: int, seed: int, epoch: int) -> Any:
        return positions % 2 == 0

    def content(self) -> dict[str, Any]:
        return {"order": "mask"}


def test_an_order_that_returns_no_integers_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"indices of shape \(4,\) and dtype bool"):
        list(Loader(InBlocks(3, 5), 4, shuffle=Masking(), worker_kind="inline"))


class Backwards(Order):
    """The last sample first, as integers of a dtype."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype

    def indices(self, positions: Any, n_samples: int, seed: int, epoch: int) -> Any:
        return (n_samples - 1 - positions).astype(self.dtype)

    def content(self) -> dict[str, Any]:
        return {"order": "backwards"}


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "int64", "uint64"])
def test_an_order_may_return_any_integers(dtype: str) -> None:
    order = Backwards(dtype)

    indices = indices_of(order, np.arange(5), 100, 0, 0)

    assert indices.tolist() == [99, 98, 97, 96, 95]
    # Unsigned integers of 64 bits may not fit, and would become negative in silence.
    assert indices.dtype == (np.uint64 if dtype == "uint64" else np.intp)


@pytest.mark.parametrize("n_samples", [10, 60_000, 70_000])
def test_shuffled_samples_are_integers_that_numpy_gathers_by(n_samples: int) -> None:
    indices = Shuffled().indices(np.arange(7), n_samples, 1, 0)

    assert indices.dtype == np.intp


def test_ranks_in_lanes_share_only_the_blocks_at_borders() -> None:
    order = Lanes(BlockShuffled(block_lengths=100, window=2), lanes=4, batch_size=32)
    blocks_of = []
    for rank in range(4):
        loader = Loader(
            numbers_to(4000), 32, shuffle=order, seed=3, shard=(rank, 4), worker_kind="inline"
        )
        blocks_of.append([set((batch[0] // 100).tolist()) for batch in loader])

    seen = [set().union(*blocks[: 4000 // 4 // 32]) for blocks in blocks_of]  # in whole steps
    assert all(
        len(one & other) <= 2 for one, other in itertools.combinations(seen, 2)
    )  # a window may lie across the border
    assert {len(blocks) for blocks in blocks_of} == {len(blocks_of[0])}


def test_lanes_take_turns_and_leave_no_sample_out() -> None:
    for n, lanes, size in itertools.product(range(1, 40), range(1, 5), range(1, 5)):
        found = whole(Lanes(InOrder(), lanes=lanes, batch_size=size), n).tolist()

        assert sorted(found) == list(range(n))
        for batch in range(n // lanes // size * lanes):
            start = batch % lanes * (n // lanes) + batch // lanes * size
            assert found[batch * size : (batch + 1) * size] == list(range(start, start + size))


# ---------------------------------------------------------------------------------------- by length


@given(st.integers(1, 300), st.integers(1, 20), st.integers(1, 6), st.integers(0, 99))
def test_a_window_is_shuffled_in_chunks_of_similar_lengths(
    n_samples: int, chunk: int, window: int, seed: int
) -> None:
    lengths = LENGTHS[:n_samples]
    shuffled = whole(Shuffled(), n_samples, seed)

    indices = whole(Bucketed(lengths, chunk=chunk, window=window), n_samples, seed)

    for start in range(0, n_samples, chunk * window):
        here = indices[start : start + chunk * window]
        assert sorted(here.tolist()) == sorted(shuffled[start : start + chunk * window].tolist())
        chunks = [here[at : at + chunk] for at in range(0, len(here), chunk)]
        chunks.sort(key=lambda its: (lengths[its].min(), lengths[its].max()))
        joined = lengths[np.concatenate(chunks)]
        assert (np.diff(joined) >= 0).all()
