"""Times of Python, numpy and pandas, compared and converted exactly."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import numpy.typing as npt

#: The length of each unit of numpy's times, except for months and years, in attoseconds. That is
#: numpy's finest unit, so all times are whole numbers of it; Python's integers hold them all.
_ATTOSECONDS = {
    "W": 7 * 86_400 * 10**18,
    "D": 86_400 * 10**18,
    "h": 3_600 * 10**18,
    "m": 60 * 10**18,
    "s": 10**18,
    "ms": 10**15,
    "us": 10**12,
    "ns": 10**9,
    "ps": 10**6,
    "fs": 10**3,
    "as": 1,
}

#: The calendar repeats every 400 years.
_MONTHS_OF_A_CYCLE = 4_800
_DAYS_OF_A_CYCLE = 146_097


def as_time(value: date | timedelta) -> Any:
    """Return a date, time or span of Python's or pandas' as numpy's.

    A time with a time zone is returned in UTC.
    """
    # Times and spans of pandas derive from the classes of Python, but are more exact.
    if hasattr(value, "to_datetime64"):
        return value.to_datetime64()
    if hasattr(value, "to_timedelta64"):
        return value.to_timedelta64()
    if isinstance(value, timedelta):
        return np.timedelta64(value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(timezone.utc).replace(tzinfo=None)
    return np.datetime64(value)


def ticks_of(time: Any) -> tuple[str, int]:
    """Return a datetime64 or timedelta64 other than NaT as a unit and its number of these units.

    Times that are equal in different units have equal ticks. Numpy itself would overflow where
    times of far years meet nanoseconds, and digests are made of these numbers.

    Returns:
        ``("as", n)``: attoseconds, since 1970 or as a span; ``("M", n)`` months, ``("", n)`` ticks
        of no unit, of spans only.
    """
    unit, step = np.datetime_data(time.dtype)
    native_time = time.astype(time.dtype.newbyteorder("="))
    ticks = int(native_time.view(np.int64)) * step
    if unit == "generic":
        return "", ticks
    if unit not in ("Y", "M"):
        return "as", ticks * _ATTOSECONDS[unit]

    months = 12 * ticks if unit == "Y" else ticks
    is_span = time.dtype.kind == "m"
    if is_span:
        return "M", months
    return "as", _days_before_month(months) * _ATTOSECONDS["D"]


def _days_before_month(months: int) -> int:
    """Return the days from 1970 to the beginning of a month, which is counted from 1970 too."""
    n_cycles, month_of_cycle = divmod(months, _MONTHS_OF_A_CYCLE)
    first_day = np.datetime64(month_of_cycle, "M").astype("M8[D]")
    return int(first_day.view(np.int64)) + n_cycles * _DAYS_OF_A_CYCLE


def in_unit(times: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any] | None:
    """Return the same times in another unit; None if one of them would overflow or be rounded."""
    converted = times.astype(dtype)
    is_exact = (converted.astype(times.dtype) == times) | np.isnat(times)
    return converted if bool(is_exact.all()) else None


def comparable(values: Sequence[Any]) -> list[Any]:
    """Return values such that times compare by instant, in tuples and lists too.

    Times of numpy's become integers, and datetimes with a time zone are in UTC, see :func:`in_utc`.
    Values that are not such times, NaT, and spans in months, which have no number of days, stay as
    they are.
    """
    return [_comparable(value) for value in values]


def _comparable(value: Any) -> Any:
    value_type = type(value)
    if value_type in (tuple, list):
        return value_type(_comparable(item) for item in value)
    if isinstance(value, datetime):
        return in_utc(value)
    if not isinstance(value, (np.datetime64, np.timedelta64)) or np.isnat(value):
        return value
    unit, ticks = ticks_of(value)
    return ticks if unit == "as" else value


def in_utc(value: Any) -> Any:
    """Return a datetime with a time zone as the same instant in UTC; any other value as it is.

    Python compares and subtracts two datetimes of one zone by the clock on the wall, which shows an
    hour twice in autumn, and jumps over one in spring.
    """
    if not isinstance(value, datetime) or value.tzinfo is None or value.utcoffset() is None:
        return value
    try:
        return value.astimezone(timezone.utc)
    except OverflowError:
        # In the first or the last hours that Python knows, when no zone changes its clock.
        return value
