"""Numbers for the distinct values of a column: classes to stratify by, groups to keep together, names of parts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.exception import ConfigError
from data_stack.values.stacked_values import is_missing, missing_in, one_hot_positions

_Integers = npt.NDArray[np.integer[Any]]


@dataclass(frozen=True, eq=False)
class ClassNumbers:
    """Which samples have equal values in a column. Classes are numbered in the order in which they appear.

    So the numbers do not depend on how the values are written: 0, 1, 1 and "a", "b", "b" are numbered alike, and so are one-hot
    rows and the labels that they stand for.

    Attributes:
        numbers: the class of each sample, shape ``(n_samples,)``, unsigned integers as narrow as they can be.
        counts: members of each class, shape ``(n_classes,)``.
        first: position of each class's first member, shape ``(n_classes,)``, ascending.
        values: what the column holds there, shape ``(n_classes, ...)``.
    """

    numbers: _Integers
    counts: npt.NDArray[np.intp]
    first: npt.NDArray[np.intp]
    values: npt.NDArray[Any]

    def __len__(self) -> int:
        return len(self.counts)

    def shorten(self, number: int) -> str:
        """A class by its value, its members and where the first one is, for messages."""
        return f"{value_shown(self.values[number])} (members: {self.counts[number]:,}, first at position {self.first[number]})"


def class_numbers(column: npt.NDArray[Any], refusal: str) -> ClassNumbers:
    """Number the distinct values of a column; equal rows of a column of arrays are one value.

    Args:
        column: shape ``(n_samples, ...)``.
        refusal: how messages begin, e.g. ``"samples cannot be stratified by column 1"``.

    Raises:
        ConfigError: a value is NaN or None, or has no equality (a list, an array of another shape than the others).
    """
    check_nothing_missing(column, refusal)
    n_samples = len(column)
    flat = column.reshape(n_samples) if column.size == n_samples else column
    if flat.dtype == object:
        numbers = _of_objects(flat, refusal)
    else:
        numbers = _of_rows(flat) if flat.ndim > 1 else _of_sortable(flat)
    numbers = numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))), copy=False)
    first = np.unique(numbers, return_index=True)[1]
    for position in first.tolist() if flat.dtype == object else ():
        if is_missing(flat[position]):
            _refuse_missing(position, flat, refusal)
    return ClassNumbers(numbers, np.bincount(numbers), first, column[first])


def group_positions(numbers: _Integers) -> _Integers:
    """All positions, class by class, ascending in each; 4 bytes a position where that suffices."""
    return np.argsort(numbers, kind="stable").astype(
        np.int32 if len(numbers) <= 2**31 else np.int64, copy=False
    )


def check_nothing_missing(column: npt.NDArray[Any], refusal: str) -> None:
    """Refuse NaN and NaT in a column of numbers or times, with the position of the first.

    Raises:
        ConfigError: there is one.
    """
    if column.dtype != object and (missing := missing_in(column)).any():
        _refuse_missing(int(np.argwhere(missing)[0][0]), column, refusal)


def value_shown(value: Any) -> str:
    """A value of a column as Python writes it, for messages: ``3``, not ``np.int64(3)``."""
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return str(value)
    plain = value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
    return f"{plain!r:.80}"


def _refuse_missing(position: int, column: npt.NDArray[Any], refusal: str) -> None:
    advice = "Leave such samples out first (iterator.filter), or replace their value (iterator.map)"
    raise ConfigError(
        f"{refusal}: its value at position {position} is {value_shown(column[position])}. {advice}"
    )


def _of_objects(column: npt.NDArray[Any], refusal: str) -> _Integers:
    if column.ndim > 1:
        raise ConfigError(
            f"{refusal}: its values are arrays of objects, of shape {column.shape[1:]}"
        )
    known: dict[Any, int] = {}
    numbers: list[int] = []
    try:
        numbers.extend(
            known.setdefault(value, len(known)) for value in column.tolist()
        )  # up to the one that has no hash
    except TypeError as error:
        problem = f"its value at position {len(numbers)} cannot be compared ({error}); arrays need one shape"
        raise ConfigError(f"{refusal}: {problem}. Map it to one label a sample first.") from error
    return np.array(numbers, dtype=np.intp)


def _of_sortable(column: npt.NDArray[Any]) -> _Integers:
    _, first, inverse = np.unique(column, return_index=True, return_inverse=True)
    number_of = np.empty(len(first), dtype=np.min_scalar_type(len(first)))
    number_of[np.argsort(first)] = np.arange(len(first))
    return number_of[inverse.reshape(len(column))]


def _of_rows(column: npt.NDArray[Any]) -> _Integers:
    rows = column.reshape(len(column), math.prod(column.shape[1:]))
    if (ones := one_hot_positions(rows)) is not None:
        return _of_sortable(ones)
    if rows.size == 0:
        return np.zeros(len(rows), dtype=np.uint8)
    rows = np.ascontiguousarray(
        rows + 0.0 if rows.dtype.kind in "fc" else rows
    )  # so that -0.0 has the bytes of 0.0
    return _of_sortable(
        rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).reshape(len(rows))
    )
