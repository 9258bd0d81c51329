"""Converts scalars to Arrow cells of a type, each of which equals its value."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from data_stack.codecs.fitting import as_dtype
from data_stack.formats.parquet import types
from data_stack.formats.parquet.codecs.arrow_arrays import UNSUITABLE, array_of_cells
from data_stack.formats.parquet.codecs.times import is_instant, to_scalar
from data_stack.formats.parquet.codecs.value_checks import (
    check_scalar,
    is_none_or_nat,
    show_value,
)
from data_stack.formats.parquet.columns import CellError
from data_stack.formats.parquet.types import FieldLike

#: By type of Python, whether pyarrow converts its values to an Arrow type exactly, or refuses them.
#: Other pairs of types are converted by :func:`exact_scalar`.
_EXACT_TYPES: Final[Mapping[type, Callable[[pa.DataType], bool]]] = {
    bool: pa.types.is_boolean,
    int: pa.types.is_integer,
    float: pa.types.is_float64,
    str: types.is_text,
    bytes: types.is_bytes,
    datetime.date: pa.types.is_date32,
}
#: Python's types of times, by the kinds of columns that hold them, with their names in messages.
_TYPES_OF_TIMES: Final[tuple[tuple[Callable[[pa.DataType], bool], type, str], ...]] = (
    (pa.types.is_timestamp, datetime.datetime, "datetimes"),
    (pa.types.is_date, datetime.date, "dates"),
    (pa.types.is_time, datetime.time, "times of day"),
    (pa.types.is_duration, datetime.timedelta, "durations"),
)


@dataclass(frozen=True)
class _ScalarField(FieldLike):
    """What :func:`check_scalar` needs to know of a scalar inside of a value."""


def is_null(value: Any) -> bool:
    """Whether a value is None, NaT or pandas' NA."""
    return is_none_or_nat(value) or type(value).__name__ == "NAType"


def scalar_cells(values: list[Any], type_: pa.DataType) -> pa.Array:
    """Convert scalars to cells of a type that is not nested. Each cell equals its value.

    Raises:
        CellError: a value does not fit.
    """
    cells = _cells_of_one_type(values, type_)
    if cells is not None:
        return cells
    values_or_none = [None if is_null(value) else value for value in values]
    if types.kind_of(types.dtype_of_arrow(type_)) == "O":
        return _compared_cells(values_or_none, type_)
    exact: list[Any] = []
    for row, value in enumerate(values_or_none):
        if value is None:
            exact.append(None)
            continue
        try:
            exact.append(exact_scalar(value, type_))
        except UNSUITABLE as error:
            raise CellError(row, f"{error!s:.300}") from error
    return array_of_cells(exact, type_)


def exact_scalar(value: Any, type_: pa.DataType) -> Any:
    """Convert a scalar that is not null for ``pyarrow.array``.

    Raises:
        TypeError, ValueError, OverflowError: the value does not fit the type.
    """
    _check_kind_of_time(value, type_)
    field = _ScalarField("", types.dtype_of_arrow(type_), (), True)
    scalar = check_scalar(field, value, is_instant=is_instant(type_))
    return to_scalar(scalar, type_)


def _cells_of_one_type(values: list[Any], type_: pa.DataType) -> pa.Array | None:
    """Convert values of one type at once; None if each must be converted by itself."""
    types_of_values = set(map(type, values))
    has_nulls = type(None) in types_of_values
    types_of_values.discard(type(None))
    if not types_of_values:
        return pa.nulls(len(values), type_)
    if len(types_of_values) > 1:
        return None
    (only_type,) = types_of_values
    try:
        is_exact = _EXACT_TYPES.get(only_type)
        if is_exact is not None and is_exact(type_):
            return pa.array(values, type_)
        if only_type is datetime.datetime and type_ == pa.timestamp("us"):
            return _cells_of_datetimes(values, type_)
        is_number = issubclass(only_type, (float, np.number))
        is_duration = issubclass(only_type, np.timedelta64)  # numpy calls it an integer
        if is_number and not is_duration and _holds_numbers(type_):
            return _cells_of_numbers(values, only_type, type_, has_nulls=has_nulls)
    except UNSUITABLE:  # retried row by row, to name the row
        return None
    return None


def _cells_of_datetimes(values: list[Any], type_: pa.DataType) -> pa.Array | None:
    """Convert datetimes without time zone; None if one has a time zone."""
    for value in values:
        if value is not None and value.tzinfo is not None:
            return None
    return pa.array(values, type_)


def _holds_numbers(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_))


def _cells_of_numbers(
    values: list[Any], number_type: type, type_: pa.DataType, *, has_nulls: bool
) -> pa.Array | None:
    """Convert floats of Python, or numbers of one dtype of numpy.

    Returns:
        The cells; None if the numbers have no dtype in common.

    Raises:
        TypeError, ValueError: a number does not fit.
    """
    mask = None
    if has_nulls:
        mask = np.array([value is None for value in values])
        zero = number_type(0)
        values = [zero if value is None else value for value in values]
    array = np.array(values)
    if array.dtype.kind not in "iuf":
        return None
    dtype = types.dtype_of_numbers(type_)
    exact = as_dtype(array, dtype, rounds=number_type is float)
    return pa.array(exact, mask=mask)


def _compared_cells(values: list[Any], type_: pa.DataType) -> pa.Array:
    """Convert values to a type of which numpy has none, such as intervals.

    They are compared after pyarrow has converted them.

    Raises:
        CellError: a value would change.
    """
    cells = array_of_cells(values, type_)
    for row, (value, cell) in enumerate(zip(values, cells.to_pylist(), strict=True)):
        if value is not None and not bool(cell == value):
            raise CellError(
                row, f"{show_value(value)} would become {cell!r:.60} in a column of {type_}"
            )
    return cells


def _check_kind_of_time(value: Any, type_: pa.DataType) -> None:
    """Refuse a time of Python where a column holds times of another kind.

    For example a datetime in a column of dates, or one without a time zone in a column of instants.

    Raises:
        TypeError: it is of another kind.
    """
    if not isinstance(value, (datetime.date, datetime.time, datetime.timedelta)):
        return
    for is_kind_of_column, expected_type, name in _TYPES_OF_TIMES:
        if not is_kind_of_column(type_):
            continue
        # a datetime is a date to Python
        is_datetime_as_date = expected_type is datetime.date and isinstance(
            value, datetime.datetime
        )
        if is_datetime_as_date or not isinstance(value, expected_type):
            raise TypeError(
                f"{show_value(value)} in a column of {name} ({type_}): convert all to one type"
            )
    if isinstance(value, datetime.datetime) and value.tzinfo is None and is_instant(type_):
        raise TypeError(
            f"{show_value(value)} has no time zone in a column of times with one: "
            "pass value.replace(tzinfo=timezone.utc), or the zone that it is in"
        )
