"""Samples with one column that a function maps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from data_stack.dataset.iterator.access import ColumnKey, SampleAccess, split_positions
from data_stack.dataset.iterator.contract import Sample
from data_stack.dataset.iterator.layers.batched_function import (
    call_batched,
    check_mapped_column,
    iterate_in_growing_reads,
)
from data_stack.dataset.iterator.layers.transformed import (
    ColumnTransforms,
    TransformedColumnsAccess,
    stack_objects,
)
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.dataset.randomness import derive_generator
from data_stack.util.functions import stopped_by
from data_stack.values.large_arrays import empty_array
from data_stack.values.stacked_values import exact_array, objects
from data_stack.values.stacking import Batch, ColumnArray, list_values, replace_values, value_of

#: Kinds of numpy dtypes whose arrays are stacked as they are: bool, int, float, complex.
_KINDS_OF_NUMBERS = "biufc"


class _ValueFunction:
    """The function of a value, with its random generators.

    It is not a method of the access. An access that held a method of its own would refer to itself,
    and keep the samples below in memory until garbage is collected.

    Args:
        function: takes a value; with a seed, also a random generator.
        mixed_seed: what the random generators are derived from; None for a function without one.
    """

    #: The function that maps a value.
    _function: Callable[..., Any]

    #: What the random generators are derived from; None for a function without one.
    _mixed_seed: int | None

    def __init__(self, function: Callable[..., Any], mixed_seed: int | None) -> None:
        self._function = function
        self._mixed_seed = mixed_seed

    def map_column(
        self, key: ColumnKey, column: ColumnArray, positions: IndexArrayOfInts | None
    ) -> ColumnArray:
        """Return the mapped values of a column, as objects."""
        if positions is None:
            positions = np.arange(len(column), dtype=np.intp)
        values = map(_as_argument, list_values(column))
        return objects(list(map(self.map_value, values, positions.tolist())))

    def map_value(self, value: Any, position: int) -> Any:
        """Return the mapped value of the sample at ``position``."""
        try:
            if self._mixed_seed is None:
                return self._function(value)
            return self._function(value, derive_generator(self._mixed_seed, position))
        except StopIteration as error:
            raise stopped_by(self._function) from error


class ValueMapAccess(TransformedColumnsAccess):
    """Access to samples with a function of each value of one column.

    Args:
        below: the samples.
        key: the column.
        function: takes a value; with a seed, also a random generator.
        mixed_seed: what the random generators are derived from; None for a function without one.
    """

    #: The mapped column, as it was given.
    _key: ColumnKey

    #: Maps the value at a position.
    _map_value: Callable[[Any, int], Any]

    #: Reads a sample below.
    _read_below: Callable[[int], Any]

    def __init__(
        self,
        below: SampleAccess,
        key: ColumnKey,
        function: Callable[..., Any],
        mixed_seed: int | None,
    ) -> None:
        value_function = _ValueFunction(function, mixed_seed)
        transforms = {key: value_function.map_column}
        super().__init__(below, transforms, max_rows=below.n_at_once)
        self._key = key
        self._map_value = value_function.map_value
        self._read_below = below.make_sample_reader()

    def sample(self, position: int) -> Sample:
        return self._map_sample(self._read_below(position), position)

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        mapped: list[Sample] = []
        for part in split_positions(positions, self.below.n_at_once):
            mapped += map(self._map_sample, self.below.samples(part), part.tolist())
        return mapped

    def iterate(self, start: int, stop: int) -> Iterator[Sample]:
        return map(self._map_sample, self.below.iterate(start, stop), range(start, stop))

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        if len(positions) <= 1:
            return super().batch(positions)
        mapped_values = self.iterate_column(self._key, positions)
        if mapped_values is None:
            return super().batch(positions)
        # Each value is decoded and mapped by itself, so that few are in memory.
        mapped_column = stack_one_by_one(mapped_values, len(positions))
        form = self._find_layout_at(positions).form
        other_keys = [key for key in form.keys if key != self._key]
        columns: dict[Any, ColumnArray] = {self._key: mapped_column}
        if other_keys:
            other_columns = self.below.columns(other_keys, positions)
            columns.update(zip(other_keys, other_columns, strict=True))
        batch: Batch = form.make([columns[key] for key in form.keys])
        return batch

    def _find_layout_at(self, positions: IndexArrayOfInts) -> ColumnTransforms:
        """Return where the mapped column is, without decoding a sample if that is possible."""
        if self._layout is not None:
            return self._layout
        declared = self.below.declare_columns()
        if declared:
            sample_without_values = dict.fromkeys(declared)
            return self._find_layout(sample_without_values)
        return self._find_layout(self.below.batch(positions[:1]))

    def iterate_column(self, key: ColumnKey, positions: IndexArrayOfInts) -> Iterator[Any] | None:
        if not isinstance(self._key, str) and self._key < 0:
            # Only a sample tells which column a position that counts from the end is.
            return None
        values = self.below.iterate_column(key, positions)
        if values is None or key != self._key:
            return values
        return map(self._map_value, map(_as_argument, values), positions.tolist())

    # ------------------------------------------------------------------ the function

    def _map_sample(self, sample: Any, position: int) -> Sample:
        layout = self._layout or self._find_layout(sample)
        key = layout.form.normal(self._key)
        value = _as_argument(value_of(sample, key))
        return replace_values(sample, {key: self._map_value(value, position)})


class ColumnMapAccess(TransformedColumnsAccess):
    """Access to samples with a batched function of one column.

    Args:
        below: the samples.
        key: the column.
        function: takes a column; with a seed, also a list of random generators, one for each row.
        mixed_seed: what the random generators are derived from; None for a function without one.
    """

    def __init__(
        self,
        below: SampleAccess,
        key: ColumnKey,
        function: Callable[..., Any],
        mixed_seed: int | None,
    ) -> None:
        super().__init__(below, {key: partial(_map_column, function, mixed_seed)})

    def iterate(self, start: int, stop: int) -> Iterator[Sample]:
        return iterate_in_growing_reads(self.samples, start, stop)


def _map_column(
    function: Callable[..., Any],
    mixed_seed: int | None,
    key: ColumnKey,
    column: ColumnArray,
    positions: IndexArrayOfInts | None,
) -> ColumnArray:
    """Return what a batched function makes of a column."""
    n_rows = len(column)
    if n_rows == 0:
        # The function is never called with an empty column.
        return np.empty(0, dtype=object)
    if positions is None:
        positions = np.arange(n_rows, dtype=np.intp)
    mapped = call_batched(function, column, mixed_seed, positions)
    return check_mapped_column(mapped, n_rows, function, f" for column {key!r}")


def _as_argument(value: Any) -> Any:
    """Return a value of a sample in the form in which a function takes it.

    Numbers become Python's; lists and tensors of numbers become arrays.
    """
    if isinstance(value, np.ndarray):
        return value
    array = exact_array(value)
    if array is None or array.dtype.kind in "mMV":
        return value
    return array if array.ndim else array.item()


def stack_one_by_one(values: Iterator[Any], n_rows: int) -> ColumnArray:
    """Stack mapped values while they are made.

    Arrays of one shape and dtype are copied into the column at once, so that few of them are in
    memory. Other values are collected first.

    Args:
        values: at least one value.
        n_rows: the number of values.

    Returns:
        A column of shape ``(n_rows, ...)``.
    """
    column: ColumnArray = np.empty(0)
    for row, value in enumerate(values):
        stacked = _stack_single_value(value)
        if row == 0 and isinstance(stacked, np.ndarray):
            column = empty_array((n_rows, *stacked.shape), stacked.dtype)
        if not _is_row_of(stacked, column):
            collected = list(column[:row])
            collected.append(value)
            collected.extend(values)
            return stack_objects(objects(collected))
        column[row] = stacked
    return column


def _stack_single_value(value: Any) -> Any:
    """Return a value in the form that it has in a column of only this value."""
    if type(value) is np.ndarray:
        is_array_of_numbers = value.dtype.isnative and value.dtype.kind in _KINDS_OF_NUMBERS
        if is_array_of_numbers:
            return value
    [stacked] = stack_objects(objects([value]))
    return stacked


def _is_row_of(value: Any, column: ColumnArray) -> bool:
    if not isinstance(value, np.ndarray) or value.ndim == 0:
        return False
    has_shape_of_row: bool = value.shape == column.shape[1:]
    return has_shape_of_row and value.dtype == column.dtype
