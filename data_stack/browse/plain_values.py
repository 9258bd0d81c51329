"""Converts columns to plain values: numbers, times, or texts with None."""

from __future__ import annotations

import datetime
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator import ColumnArray
from data_stack.show.target_distribution import plain_value
from data_stack.values.missing import is_missing, is_null, present_values

Values = npt.NDArray[Any]
"""Plain values of a column, shape ``(n,)``: numbers, times, or objects (str or None)."""

#: The numbers that booleans are equal to, by their texts.
_NUMBERS_OF_BOOLEANS: Final = {"True": 1, "False": 0}

#: Numpy compares with integers in this range only.
_MIN_INTEGER: Final = -(1 << 63)
_MAX_INTEGER: Final = (1 << 64) - 1

#: Durations in these units have no length in seconds.
_UNITS_WITHOUT_LENGTH: Final = ("Y", "M", "generic")

#: The estimated size of a text in memory, in bytes.
_TEXT_BYTES: Final = 100


def plain(column: ColumnArray) -> Values:
    """Return a column as numbers, times, or texts with None.

    One-hot vectors become the positions of their ones, times have microseconds, and durations
    become seconds.

    Args:
        column: shape ``(n, ...)``.
    """
    if column.ndim > 1:
        column = _flatten(column)
    kind = column.dtype.kind
    if kind == "M":
        return column.astype("M8[us]")
    if kind == "m" and np.datetime_data(column.dtype)[0] not in _UNITS_WITHOUT_LENGTH:
        return column / np.timedelta64(1, "s")
    if kind in "biuf":
        return column

    numbers = _as_numbers_or_times(column)
    if numbers is not None:
        return plain(numbers)
    values = column.tolist()
    texts = np.empty(len(values), dtype=object)
    texts[:] = [_as_text(value) for value in values]
    return texts


def is_plain_value(value: Any) -> bool:
    """Return whether a value is a number, a time, a text or missing: its column can be filtered."""
    plain_types = (str, bool, int, float, datetime.date, np.datetime64, np.timedelta64)
    if is_null(value) or isinstance(value, plain_types):
        return True
    shape = getattr(value, "shape", None)
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    return shape in ((), (1,)) and kind in "biufMmUST"


def number_of(text: str) -> float:
    """Parse a number such as ``"7"``, ``"-0.5"`` or ``"True"``; NaN for other texts."""
    if text in _NUMBERS_OF_BOOLEANS:
        return _NUMBERS_OF_BOOLEANS[text]
    try:
        if not text.lstrip("-").isdigit():
            return float(text)
        integer = int(text)
    except ValueError:
        return float("nan")
    if _MIN_INTEGER <= integer <= _MAX_INTEGER:
        return integer
    return float(text)


def size_of(values: Values) -> int:
    """Return about how many bytes plain values take."""
    if values.dtype == object:
        return len(values) * _TEXT_BYTES
    return values.nbytes


def _flatten(column: ColumnArray) -> ColumnArray:
    """Return one-hot vectors as the positions of their ones, vectors of one value as this value."""
    if column.shape[1] > 1:
        return np.asarray(column.argmax(axis=1))
    return np.asarray(column.reshape(len(column), -1)[:, 0])


def _as_numbers_or_times(column: ColumnArray) -> Values | None:
    """Convert objects to numbers or times, with NaN or NaT for missing values.

    None: the objects hold text or other values; or they hold missing values, and integers that are
    too large for float64.
    """
    if str in set(map(type, column.tolist())):
        return None
    present, is_missing_at = present_values(column)
    kind = present.dtype.kind
    if present.ndim != 1 or kind not in "biufMm":
        return None

    dtype = present.dtype
    if kind in "biu" and is_missing_at.any():
        dtype = np.dtype(np.float64)
    missing_value: Any = 0
    if dtype.kind in "Mm":
        missing_value = "NaT"
    elif dtype.kind == "f":
        missing_value = np.nan
    values = np.full(len(column), missing_value, dtype)
    values[~is_missing_at] = present
    is_exact = values[~is_missing_at].astype(present.dtype) == present
    return values if is_exact.all() else None


def _as_text(value: Any) -> str | None:
    if type(value) is str:
        return value
    if is_missing(value):
        return None
    return str(plain_value(value))
