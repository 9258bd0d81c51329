"""Repeated iterators: one pass after the other."""

from __future__ import annotations

import sys

from hypothesis import given
from hypothesis import strategies as st

from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.dataset.iterator.layers.repeated import RepeatedDatasetIterator


@given(samples=st.lists(st.integers(), max_size=20), times=st.integers(0, 5))
def test_passes_follow_each_other(samples: list[int], times: int) -> None:
    repeated = RepeatedDatasetIterator(SequenceDatasetIterator([samples]), times)

    assert len(repeated) == len(samples) * times
    assert [sample for (sample,) in repeated] == samples * times
    assert repeated.read_column(0).tolist() == samples * times


def test_an_empty_iterator_can_be_repeated_any_number_of_times() -> None:
    assert len(RepeatedDatasetIterator(SequenceDatasetIterator([[]]), 10**30)) == 0


def test_as_many_samples_as_python_can_count_are_allowed() -> None:
    repeated = RepeatedDatasetIterator(SequenceDatasetIterator([[7]]), sys.maxsize)

    assert len(repeated) == sys.maxsize
    assert repeated[-1] == (7,)
    assert repeated.read_batch([0, sys.maxsize - 1])[0].tolist() == [7, 7]  # type: ignore[index]  # a tuple of one column
