"""Converts times and durations between numpy and Arrow."""

from __future__ import annotations

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
        ValueError: the unit of the type cannot hold the time exactly.
    """
    if isinstance(value, (np.datetime64, np.timedelta64)):
        if np.isnat(value):
            return None
        if pa.types.is_date64(type_):
            value = same_time(value, np.dtype("M8[D]"))
        return same_time(value, time_dtype(type_)).astype(np.int64).item()
    if value is not None and pa.types.is_float16(type_):
        return np.float16(value)
    return value
