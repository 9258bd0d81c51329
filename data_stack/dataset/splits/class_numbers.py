"""Numbers for the distinct values of a column: classes, groups, or names of parts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.exception import ConfigError
from data_stack.values.missing import is_missing, missing_in
from data_stack.values.stacked_values import one_hot_positions

_Integers = npt.NDArray[np.integer[Any]]

#: Up to this number, positions fit in 4 bytes.
_MAX_IN_INT32 = 2**31


@dataclass(frozen=True, eq=False)
class ClassNumbers:
    """Which samples have equal values in a column.

    Classes are numbered in the order in which they appear. So the numbers do not depend on how the
    values are written: 0, 1, 1 and "a", "b", "b" are numbered alike, and so are one-hot rows and
    the labels that they stand for.

    Attributes:
        numbers: the class of each sample, shape ``(n_samples,)``, unsigned integers as narrow as
            they can be.
        counts: members of each class, shape ``(n_classes,)``.
        first_positions: position of the first member of each class, shape ``(n_classes,)``,
            ascending.
        values: the value of each class, shape ``(n_classes, ...)``.
    """

    numbers: _Integers
    counts: npt.NDArray[np.intp]
    first_positions: npt.NDArray[np.intp]
    values: npt.NDArray[Any]

    def __len__(self) -> int:
        return len(self.counts)

    def describe(self, number: int) -> str:
        """Return a class for messages: its value, how many members it has, and the first one."""
        value = value_shown(self.values[number])
        n_members = self.counts[number]
        first_position = self.first_positions[number]
        return f"{value} (members: {n_members:,}, first at position {first_position})"


def class_numbers(column: npt.NDArray[Any], refusal: str) -> ClassNumbers:
    """Number the distinct values of a column; equal rows of a column of arrays are one value.

    Args:
        column: shape ``(n_samples, ...)``.
        refusal: the beginning of error messages, which says what cannot be done:
            ``"samples cannot be stratified by column 1"``.

    Raises:
        ConfigError: a value is NaN or None, or has no equality (a list, an array of another shape
            than the others).
    """
    check_nothing_missing(column, refusal)
    n_samples = len(column)
    are_single_values = column.size == n_samples
    values = column.reshape(n_samples) if are_single_values else column

    if values.dtype == object:
        numbers = _number_objects(values, refusal)
    elif values.ndim > 1:
        numbers = _number_rows(values)
    else:
        numbers = _number_sortable(values)
    largest_number = int(numbers.max(initial=0))
    numbers = numbers.astype(np.min_scalar_type(largest_number), copy=False)
    _, first_positions = np.unique(numbers, return_index=True)

    # Whether an object is missing takes long to find out, so each class is asked once.
    if values.dtype == object:
        for position in first_positions.tolist():
            if is_missing(values[position]):
                raise _missing_error(position, values, refusal)
    return ClassNumbers(numbers, np.bincount(numbers), first_positions, column[first_positions])


def group_positions(numbers: _Integers) -> _Integers:
    """Return all positions, class by class, ascending in each class.

    A position takes 4 bytes where that suffices, otherwise 8.
    """
    order = np.argsort(numbers, kind="stable")
    dtype = np.int32 if len(numbers) <= _MAX_IN_INT32 else np.int64
    return order.astype(dtype, copy=False)


def check_nothing_missing(column: npt.NDArray[Any], refusal: str) -> None:
    """Refuse NaN and NaT in a column of numbers or times; columns of objects are not checked.

    Raises:
        ConfigError: there is one. The message names the position of the first.
    """
    if column.dtype == object:
        return
    is_missing_at = missing_in(column)
    if is_missing_at.any():
        position = int(np.argwhere(is_missing_at)[0][0])
        raise _missing_error(position, column, refusal)


def value_shown(value: Any) -> str:
    """Return a value of a column as messages show it: ``3``, not ``np.int64(3)``."""
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return str(value)
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    return f"{value!r:.80}"


def _missing_error(position: int, column: npt.NDArray[Any], refusal: str) -> ConfigError:
    return ConfigError(
        f"{refusal}: its value at position {position} is {value_shown(column[position])}. "
        "Leave such samples out first (iterator.filter), or replace their value (iterator.map)"
    )


def _number_objects(column: npt.NDArray[Any], refusal: str) -> _Integers:
    """Number objects by equality.

    Raises:
        ConfigError: an object has no hash, or the column has further dimensions.
    """
    if column.ndim > 1:
        raise ConfigError(
            f"{refusal}: its values are arrays of objects, of shape {column.shape[1:]}"
        )
    number_by_value: dict[Any, int] = {}
    numbers: list[int] = []
    try:
        for value in column.tolist():
            numbers.append(number_by_value.setdefault(value, len(number_by_value)))
    except TypeError as error:
        raise ConfigError(
            f"{refusal}: its value at position {len(numbers)} cannot be compared ({error}); "
            "arrays need one shape. Map it to one label a sample first."
        ) from error
    return np.array(numbers, dtype=np.intp)


def _number_sortable(column: npt.NDArray[Any]) -> _Integers:
    """Number the values of a column of shape ``(n_samples,)`` that numpy can sort."""
    # np.unique() numbers the values in their sorted order, not in the order of their appearance.
    _, first_positions, sorted_numbers = np.unique(column, return_index=True, return_inverse=True)
    n_classes = len(first_positions)
    number_by_sorted_number = np.empty(n_classes, dtype=np.min_scalar_type(n_classes))
    number_by_sorted_number[np.argsort(first_positions)] = np.arange(n_classes)
    return number_by_sorted_number[sorted_numbers.reshape(len(column))]


def _number_rows(column: npt.NDArray[Any]) -> _Integers:
    """Number the rows of a column of arrays."""
    rows = column.reshape(len(column), math.prod(column.shape[1:]))
    labels = one_hot_positions(rows)
    if labels is not None:
        return _number_sortable(labels)
    if rows.size == 0:
        return np.zeros(len(rows), dtype=np.uint8)

    # Rows are compared by their bytes.
    if rows.dtype.kind in "fc":
        # -0.0 gets the bytes of 0.0.
        rows = rows + 0.0
    rows = np.ascontiguousarray(rows)
    bytes_of_row = np.dtype((np.void, rows.itemsize * rows.shape[1]))
    return _number_sortable(rows.view(bytes_of_row).reshape(len(rows)))
