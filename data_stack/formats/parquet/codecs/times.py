"""Converts times and durations between numpy and Arrow."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.codecs.fitting import as_dtype


def is_instant(type_: pa.DataType) -> bool:
    """Whether the times of a type are instants: they have a time zone."""
    return pa.types.is_timestamp(type_) and type_.tz is not None


def time_dtype(type_: pa.DataType) -> np.dtype[Any]:
    """Return the dtype of dates, times and durations of an Arrow type."""
    if pa.types.is_date32(type_):
        return np.dtype("M8[D]")
    if pa.types.is_date64(type_):
        return np.dtype("M8[ms]")
    if pa.types.is_timestamp(type_):
        return np.dtype(f"M8[{type_.unit}]")
    return np.dtype(f"m8[{type_.unit}]")


def same_time(value: Any, dtype: np.dtype[Any]) -> Any:
    """Convert a time or duration of numpy to another unit.

    Raises:
        ValueError: the unit cannot hold it exactly.
    """
    unit, _ = np.datetime_data(value.dtype)
    if unit == "generic" and not np.isnat(value):
        raise ValueError(f"{value!r} has no unit: use a unit, such as {dtype}")
    return as_dtype(np.array(value), dtype)[()]


def time_cells(times: npt.NDArray[Any], type_: pa.DataType) -> pa.Array:
    """Convert times of numpy to an Arrow type; NaT becomes null.

    Raises:
        ValueError: the type cannot hold a time exactly.
    """
    if pa.types.is_date64(type_):
        times = as_dtype(times, np.dtype("M8[D]"))  # it counts milliseconds, of whole days
    exact = as_dtype(times, time_dtype(type_))
    if pa.types.is_date32(type_):
        return pa.array(exact)
    integers = pa.array(exact.view(np.int64), mask=np.isnat(exact))
    if pa.types.is_time32(type_):
        integers = integers.cast(pa.int32())
    return integers.view(type_)


def to_scalar(value: Any, type_: pa.DataType) -> Any:
    """Convert a checked scalar for ``pyarrow.array``.

    pyarrow does not accept some times of numpy, so they become integers in the unit of the type.
    Before version 21, pyarrow accepts only a ``numpy.float16`` for a float16.

    Raises:
        ValueError: the type cannot hold the time or the decimal exactly.
    """
    if isinstance(value, Decimal) and value and pa.types.is_decimal(type_):
        _check_decimals(value, type_)
    if isinstance(value, (np.datetime64, np.timedelta64)):
        if np.isnat(value):
            return None
        if pa.types.is_date64(type_):
            value = same_time(value, np.dtype("M8[D]"))
        return same_time(value, time_dtype(type_)).astype(np.int64).item()
    if value is not None and pa.types.is_float16(type_):
        return np.float16(value)
    return value


def _check_decimals(value: Decimal, type_: pa.DataType) -> None:
    """Check that a type has the decimals of a number.

    pyarrow checks it only for numbers of a usual size: it takes 5E-324 as 0.

    Raises:
        ValueError: the last digit that is not 0 is beyond the scale of the type.
    """
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):  # infinite or NaN, which pyarrow refuses
        return
    n_zeros = 0
    for digit in reversed(digits):
        if digit:
            break
        n_zeros += 1
    if exponent + n_zeros < -type_.scale:
        raise ValueError(f"{value!s:.60} has more decimals than {type_}")
