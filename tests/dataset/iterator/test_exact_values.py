"""Values stay exact in batches, beside any other value and by any method."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from exact_values import EXAMPLES, meaning
from hypothesis import given
from hypothesis import strategies as st
from layer_laws import Samples
from torch_or_stand_in import torch

from data_stack.dataset.iterator import (
    DatasetIteratorIF,
    InMemoryDatasetIterator,
    SequenceDatasetIterator,
    ZippedDatasetIterator,
)
from data_stack.loader import Loader
from data_stack.values.stacked_values import stack_values

PAIRS = st.tuples(
    *[st.integers(0, len(EXAMPLES) - 1).map(EXAMPLES.__getitem__)] * 2
)  # some have no hash


def column_of(value: Any) -> Any:
    """A column of nothing but this value: an array or tensor where it is one of these."""
    if isinstance(value, torch.Tensor):
        return torch.stack([value])
    if isinstance(value, np.ma.MaskedArray):
        return np.ma.array(value.data[np.newaxis], mask=np.ma.getmaskarray(value)[np.newaxis])
    if isinstance(value, np.ndarray):
        return value[np.newaxis]
    return (
        np.array([value])
        if isinstance(value, np.generic) and not isinstance(value, (np.str_, np.bytes_))
        else [value]
    )


def sequence(values: tuple[Any, ...]) -> DatasetIteratorIF:
    return SequenceDatasetIterator([list(values)])


def combined(values: tuple[Any, ...]) -> DatasetIteratorIF:
    first, *others = (SequenceDatasetIterator([column_of(value)]) for value in values)
    return first.combine(*others)


STACKS: dict[str, Callable[[tuple[Any, ...]], tuple[DatasetIteratorIF, Any]]] = {
    "sequence": lambda values: (sequence(values), 0),
    "client's": lambda values: (Samples([{"x": value} for value in values]), "x"),
    "combined": lambda values: (combined(values), 0),
    "kept": lambda values: (InMemoryDatasetIterator(combined(values)), 0),
    "cached": lambda values: (combined(values).cache(), 0),
    "mapped": lambda values: (combined(values).map(lambda sample: sample), 0),
    "mapped by batches": lambda values: (
        combined(values).map(lambda batch: batch, batched=True),
        0,
    ),
    "renamed": lambda values: (combined(values).as_dict("x"), "x"),
    "zipped": lambda values: (ZippedDatasetIterator([combined(values), sequence(values)]), 1),
}


def assert_same_in_all_ways(iterator: DatasetIteratorIF, key: Any) -> None:
    positions = range(len(iterator))
    expected = [meaning(iterator[position][key]) for position in positions]

    for values in (
        [sample[key] for sample in iterator.__getitems__(positions)],
        [sample[key] for sample in iterator],
        iterator.read_batch(positions)[key],
        iterator.read_column(key),
        iterator.read_column(key, positions),
        iterator.batch(len(iterator))[0][key],
        iterator.windows(len(iterator))[0][key],
        [window[0] for window in iterator.windows(1).read_batch(positions)[key]],
        [value for batch in Loader(iterator, len(iterator), workers=0) for value in batch[key]],
    ):
        assert list(map(meaning, values)) == expected
    assert list(map(meaning, iterator.read_batch([1, 0])[key])) == [expected[1], expected[0]]


@given(values=PAIRS, stack=st.sampled_from(sorted(STACKS)))
def test_values_stay_what_they_are_beside_any_other(values: tuple[Any, Any], stack: str) -> None:
    iterator, key = STACKS[stack](values)

    assert [meaning(sample[key]) for sample in iterator] == list(map(meaning, values))
    assert_same_in_all_ways(iterator, key)


@pytest.mark.parametrize("other", [[1, 2], [0.5], [True], [1j], np.array([1], np.int8)])
def test_an_empty_list_takes_the_dtype_of_the_others(other: Any) -> None:
    dtype = np.asarray(other).dtype

    column = stack_values([other, [], (), [[]][0]])

    assert [value.dtype for value in column] == [dtype] * 4
    assert [len(value) for value in column] == [len(other), 0, 0, 0]


def test_empty_lists_and_arrays_keep_their_dtypes() -> None:
    several = stack_values([[1], [0.5, 1.0], []])
    arrays = stack_values([np.array([1]), np.array([], np.float32)])

    assert [value.dtype for value in several] == ["int64", "float64", "float64"]
    assert [value.dtype for value in arrays] == ["int64", "float32"]
