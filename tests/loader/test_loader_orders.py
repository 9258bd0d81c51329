"""The orders of an epoch: bijections, the same everywhere, and as random as they say."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_stack.dataset.iterator import (
    SequenceDatasetIterator,
)
from data_stack.exception import ConfigError
from data_stack.loader import BlockShuffled, InOrder, Order, Shuffled


def whole(order: Order, n_samples: int, seed: int = 0, epoch: int = 0) -> npt.NDArray[np.int64]:
    """The order of all samples."""
    return np.asarray(order.indices(np.arange(n_samples), n_samples, seed, epoch), dtype=np.int64)


# --------------------------------------------------------------------------------------------------------------- all samples


@given(st.integers(1, 300), st.integers(), st.integers(0, 50))
def test_the_order_is_that_of_the_shuffled_iterator(n: int, seed: int, epoch: int) -> None:
    shuffled = SequenceDatasetIterator([np.arange(n)]).shuffle(seed, epoch=epoch)

    assert whole(Shuffled(), n, seed, epoch).tolist() == shuffled.read_column(0).tolist()


@given(
    st.sampled_from(
        [Shuffled(), InOrder(), BlockShuffled(block_lengths=7, window=3), BlockShuffled(block_lengths=[90, 0, 10], window=2)]
    ),
    st.data(),
)
def test_a_position_does_not_depend_on_the_other_positions_of_a_call(order: Order, data: st.DataObject) -> None:
    some = data.draw(st.lists(st.integers(0, 99), max_size=20))
    all_of_them = whole(order, 100, 5, 1)

    assert order.indices(np.array(some, dtype=np.int64), 100, 5, 1).tolist() == all_of_them[some].tolist()


def test_orders_are_the_same_on_every_machine_and_in_every_version() -> None:
    assert whole(Shuffled(), 4, 7, 3).tolist() == [1, 0, 2, 3]
    assert whole(Shuffled(), 10, 7, 3).tolist() == [8, 0, 4, 5, 3, 9, 7, 2, 6, 1]
    assert whole(Shuffled(), 1000, 7, 3)[:10].tolist() == [860, 358, 627, 801, 680, 253, 492, 804, 669, 382]
    far = Shuffled().indices(np.arange(4), 10**12, 7, 3)
    assert far.tolist() == [934666439573, 664447288389, 229441844223, 890442133738]
    assert Shuffled().indices(np.array([10**17]), 10**18, -5, 0).tolist() == [100611722893020488]
    assert whole(BlockShuffled(block_lengths=3, window=2), 10, 7, 3).tolist() == [1, 2, 9, 0, 4, 3, 5, 8, 6, 7]
    assert whole(BlockShuffled(block_lengths=[4, 0, 1, 5], window=2), 10, 7).tolist() == [2, 1, 4, 0, 3, 7, 6, 5, 8, 9]


# ------------------------------------------------------------------------------------------------------------ how random it is


# ------------------------------------------------------------------------------------------------------------ block by block

block_lengths = st.one_of(
    st.integers(1, 12).map(lambda length: (length, None)),
    st.lists(st.integers(0, 9), min_size=1, max_size=12).filter(any).map(lambda lengths: (lengths, sum(lengths))),
)


@given(block_lengths, st.integers(1, 6), st.integers(1, 60), st.integers(0, 9))
def test_a_block_wise_shuffle_goes_through_its_windows_one_by_one(
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


def test_blocks_of_another_dataset_are_refused() -> None:
    with pytest.raises(ConfigError, match="7 samples together, but the iterator has 8"):
        whole(BlockShuffled(block_lengths=[3, 4]), 8)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"block_lengths": 0}, "block length"),
        ({"block_lengths": [3, -1]}, "block_lengths"),
        ({"block_lengths": [3.0, 1.0]}, "block_lengths"),
        ({"block_lengths": [3], "window": 0}, "window"),
    ],
)
def test_blocks_that_cannot_be_are_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        BlockShuffled(**arguments)


# ------------------------------------------------------------------------------------------------------------------ as values

ORDERS = [InOrder(), Shuffled(), BlockShuffled(block_lengths=8, window=3), BlockShuffled(block_lengths=[10, 20, 10], window=2)]


@pytest.mark.parametrize("order", ORDERS, ids=repr)
def test_an_order_that_was_pickled_is_the_same_whether_it_was_used_or_not(order: Order) -> None:
    before = whole(order, 40, 1, 1)

    copy = pickle.loads(pickle.dumps(order))

    assert np.array_equal(whole(copy, 40, 1, 1), before)
    assert copy.content() == order.content() == json.loads(json.dumps(order.content()))


# ------------------------------------------------------------------------------------------------ only blocks, or only samples


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.integers(1, 5), st.integers(), st.integers(0, 50))
def test_blocks_or_samples_may_stay_in_their_order(lengths: list[int], window: int, seed: int, epoch: int) -> None:
    n_samples = sum(lengths)
    if n_samples == 0:
        return
    block_of = np.repeat(np.arange(len(lengths)), lengths)
    of_blocks, of_samples = (
        BlockShuffled(block_lengths=lengths, window=window, samples=False),
        BlockShuffled(block_lengths=lengths, window=window, blocks=False),
    )

    blocks, samples = whole(of_blocks, n_samples, seed, epoch), whole(of_samples, n_samples, seed, epoch)

    assert np.array_equal(np.sort(blocks), np.arange(n_samples))
    assert np.array_equal(np.sort(samples), np.arange(n_samples))
    changes = np.flatnonzero(np.diff(block_of[blocks])) + 1
    assert all((np.diff(run) == 1).all() for run in np.split(blocks, changes))
    assert len(changes) == len(set(block_of.tolist())) - 1
    assert (np.diff(block_of[samples] // window) >= 0).all()


def test_a_shuffle_that_shuffles_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match="InOrder"):
        BlockShuffled(block_lengths=8, blocks=False, samples=False)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=30), st.integers(1, 5), st.integers(), st.booleans())
def test_the_blocks_of_each_window_are_told_while_the_one_before_it_is_read(
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
        told = set() if ahead is None else set(np.repeat(np.arange(len(lengths)), lengths)[ahead].tolist())
        if all(lengths):  # otherwise a window may be empty
            assert told == set(block_of[until:following].tolist())
        position = until

    assert order.upcoming(n, n, seed, 3)[0] is None
