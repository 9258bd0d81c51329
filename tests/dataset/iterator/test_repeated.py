"""Repeated iterators: one pass after the other."""

from __future__ import annotations

import sys

from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.dataset.iterator.layers.repeated import RepeatedDatasetIterator


def test_an_empty_iterator_can_be_repeated_any_number_of_times() -> None:
    assert len(RepeatedDatasetIterator(SequenceDatasetIterator([[]]), 10**30)) == 0


def test_as_many_samples_as_python_can_count_are_allowed() -> None:
    repeated = RepeatedDatasetIterator(SequenceDatasetIterator([[7]]), sys.maxsize)

    assert len(repeated) == sys.maxsize
    assert repeated[-1] == (7,)
    assert repeated.read_batch([0, sys.maxsize - 1])[0].tolist() == [7, 7]  # type: ignore[index]  # a tuple of one column
