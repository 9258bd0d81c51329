"""Interleaved iterators: one sample of each in turn."""

from __future__ import annotations

from itertools import zip_longest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_stack.dataset.iterator import DatasetIteratorIF, SequenceDatasetIterator
from data_stack.dataset.iterator.layers.interleaved import InterleavedDatasetIterator
from data_stack.exception import ConfigError


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


def test_it_stops_at_the_longest_or_the_shortest() -> None:
    with pytest.raises(ConfigError, match="'first'"):
        InterleavedDatasetIterator(parts([1]), stop="first")  # type: ignore[arg-type]  # wrong on purpose
