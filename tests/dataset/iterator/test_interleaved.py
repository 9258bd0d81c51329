"""Interleaved iterators: one sample of each in turn."""

from __future__ import annotations

import sys
from itertools import zip_longest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_stack.dataset.iterator import DatasetIterator, DatasetIteratorIF, SequenceDatasetIterator
from data_stack.dataset.iterator.interleaved import InterleavedDatasetIterator
from data_stack.exception import ConfigError


class Huge(DatasetIterator):
    """Sample ``i`` is ``i``."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> int:
        return index


def parts(lengths: list[int]) -> list[DatasetIteratorIF]:
    return [SequenceDatasetIterator([np.arange(1000 * number, 1000 * number + n)]) for number, n in enumerate(lengths)]


def of_lists(lengths: list[int]) -> list[int]:
    runs = [range(1000 * number, 1000 * number + n) for number, n in enumerate(lengths)]
    return [sample for turn in zip_longest(*runs) for sample in turn if sample is not None]


@given(lengths=st.lists(st.integers(0, 12), max_size=12))
def test_every_sample_comes_once_in_rounds(lengths: list[int]) -> None:
    interleaved = InterleavedDatasetIterator(parts(lengths))

    assert [int(sample) for (sample,) in interleaved] == of_lists(lengths)
    assert [int(interleaved[index][0]) for index in range(len(interleaved))] == of_lists(lengths)
    assert interleaved.read_column(0).tolist() == of_lists(lengths)


@given(lengths=st.lists(st.integers(0, 12), min_size=1, max_size=8))
def test_to_the_shortest_all_rounds_are_full(lengths: list[int]) -> None:
    interleaved = InterleavedDatasetIterator(parts(lengths), stop="shortest")

    expected = of_lists([min(lengths)] * len(lengths))
    assert [int(sample) for (sample,) in interleaved] == expected
    assert interleaved.read_column(0).tolist() == expected


def test_the_order_of_rounds_is_the_order_given() -> None:
    interleaved = InterleavedDatasetIterator(parts([2, 1, 0, 4]))

    assert interleaved.read_column(0).tolist() == [0, 1000, 3000, 1, 3001, 3002, 3003]


def test_a_thousand_lengths_need_no_table_of_their_rounds() -> None:
    lengths = list(np.random.default_rng(1).permutation(1000))

    interleaved = InterleavedDatasetIterator(parts(lengths))
    indices = np.random.default_rng(2).integers(0, len(interleaved), 500)

    assert len(interleaved) == sum(lengths)
    expected = of_lists(lengths)
    assert interleaved.read_column(0, indices).tolist() == [expected[index] for index in indices]
    assert [int(interleaved[int(index)][0]) for index in indices[:50]] == [expected[index] for index in indices[:50]]


def test_lengths_may_be_as_large_as_can_be() -> None:
    half = sys.maxsize // 2
    interleaved = InterleavedDatasetIterator([Huge(half), Huge(3), Huge(half - 3)])

    assert interleaved.read_batch([0, 1, 2, 8, 9, 10, 11, len(interleaved) - 1]).tolist() == [0, 0, 0, 2, 3, 3, 4, half - 1]  # type: ignore[union-attr]
    assert interleaved[len(interleaved) - 1] == half - 1
    with pytest.raises(ConfigError, match="more than Python can count"):
        InterleavedDatasetIterator([Huge(sys.maxsize), Huge(1)])


def test_it_stops_at_the_longest_or_the_shortest() -> None:
    with pytest.raises(ConfigError, match="'first'"):
        InterleavedDatasetIterator(parts([1]), stop="first")  # type: ignore[arg-type]  # wrong on purpose


def test_the_iterators_given_are_named() -> None:
    given_iterators = parts([1, 2])

    assert InterleavedDatasetIterator(given_iterators).underlying_iterators == given_iterators
