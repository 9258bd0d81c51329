"""Stacking mapped values while they are made."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.dataset.iterator.layers.mapped_column import stack_one_by_one


def test_arrays_of_one_shape_are_copied_into_one_column() -> None:
    values = [np.array([0, 1], np.uint8), np.array([2, 3], np.uint8)]

    column = stack_one_by_one(iter(values), 2)

    assert column.dtype == np.uint8
    assert column.tolist() == [[0, 1], [2, 3]]


def test_arrays_of_two_shapes_stay_objects_in_their_order() -> None:
    values = [np.zeros(2), np.zeros(2), np.ones(3), np.zeros(2)]

    column = stack_one_by_one(iter(values), 4)

    assert column.dtype == object
    assert [value.tolist() for value in column] == [value.tolist() for value in values]


def test_numbers_become_a_column_of_numbers() -> None:
    assert stack_one_by_one(iter([1, 2, 3]), 3).tolist() == [1, 2, 3]


def test_texts_stay_as_they_are() -> None:
    column = stack_one_by_one(iter(["a", "bb"]), 2)

    assert column.tolist() == ["a", "bb"]
    assert column.dtype == object


def test_one_array_of_a_shape_lives_at_a_time() -> None:
    alive: list[Any] = []

    def make_values() -> Iterator[Any]:
        for number in range(4):
            value = np.full(2, number)
            alive.append(weakref.ref(value))
            yield value
            del value
            n_alive = sum(reference() is not None for reference in alive[:-1])
            assert n_alive == 0

    assert stack_one_by_one(make_values(), 4).tolist() == [[0, 0], [1, 1], [2, 2], [3, 3]]


@pytest.mark.parametrize("batched", [False, True])
def test_a_mapped_column_is_freed_without_garbage_collection(batched: bool) -> None:
    iterator = SequenceDatasetIterator([[1, 2, 3]]).map(_add_one, column=0, batched=batched)
    access = access_to(iterator)
    access.batch(np.arange(3))
    reference = weakref.ref(access)

    gc.disable()
    try:
        del iterator, access
        assert reference() is None
    finally:
        gc.enable()


def _add_one(value: Any) -> Any:
    return value + 1
