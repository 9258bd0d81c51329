"""Sharded iterators: what all ranks have together, and each of them."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.dataset.iterator.layers.sharded import ShardedDatasetIterator
from data_stack.exception import ConfigError

Uneven = Literal["keep", "pad", "drop"]


def shards(n: int, world: int, contiguous: bool, uneven: Uneven) -> list[list[int]]:
    it = SequenceDatasetIterator([list(range(n))])
    ranks = [ShardedDatasetIterator(it, rank, world, contiguous=contiguous, uneven=uneven) for rank in range(world)]
    assert [rank.read_column(0).tolist() for rank in ranks] == [[sample for (sample,) in rank] for rank in ranks]
    assert [len(rank) for rank in ranks] == [len(list(rank)) for rank in ranks]
    return [[sample for (sample,) in rank] for rank in ranks]


SIZES = st.integers(0, 40)
WORLDS = st.integers(1, 12)


@given(n=SIZES, world=WORLDS)
def test_kept_parts_are_strides_or_runs_of_all_samples(n: int, world: int) -> None:
    strided, runs = shards(n, world, False, "keep"), shards(n, world, True, "keep")

    assert strided == [list(range(n))[rank::world] for rank in range(world)]
    assert runs == [part.tolist() for part in np.array_split(np.arange(n), world)]


@given(n=SIZES, world=WORLDS)
def test_dropped_parts_are_equal_and_leave_the_last_samples_out(n: int, world: int) -> None:
    size = n // world

    strided, runs = shards(n, world, False, "drop"), shards(n, world, True, "drop")

    assert strided == [list(range(size * world))[rank::world] for rank in range(world)]
    assert runs == [list(range(rank * size, (rank + 1) * size)) for rank in range(world)]


@given(n=SIZES, world=WORLDS)
def test_padded_parts_are_equal_and_go_on_from_the_start(n: int, world: int) -> None:
    size = -(-n // world)
    padded = (list(range(n)) * world)[: size * world]

    strided, runs = shards(n, world, False, "pad"), shards(n, world, True, "pad")

    assert strided == [padded[rank::world] for rank in range(world)]
    assert runs == [padded[rank * size : (rank + 1) * size] for rank in range(world)]


@pytest.mark.parametrize(
    ("rank", "world", "offender"),
    [
        (0, 0, "world"),
        (0, -1, "world"),
        (-1, 2, "rank in a world of 2"),
        (2, 2, "at most 1"),
        (0.0, 2, "rank"),
        (0, "2", "world"),
    ],
)
def test_ranks_outside_of_the_world_are_refused(rank: Any, world: Any, offender: str) -> None:
    with pytest.raises(ConfigError, match=offender):
        ShardedDatasetIterator(SequenceDatasetIterator([[1]]), rank, world)
