"""Converts times of numpy to times of Python and back, where that is exact."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, timezone
from typing import Any, Final

import numpy as np

#: Units that Python's times may hold exactly. A year or month has no fixed number of days, and
#: units below a nanosecond only exist in numpy.
_UNITS: Final = frozenset({"D", "h", "m", "s", "ms", "us", "ns"})


def plain_time(value: np.datetime64 | np.timedelta64) -> Any:
    """Convert a time of numpy to a date (of a day), datetime or timedelta.

    A value that these cannot hold exactly is returned unchanged: single nanoseconds, the year
    20,000, years and months, NaT.
    """
    unit, _ = np.datetime_data(value.dtype)
    if unit not in _UNITS:
        return value
    try:
        in_microseconds: Any = value.astype(_microseconds_of(value))
        plain = in_microseconds.item()
        if unit == "D" and isinstance(value, np.datetime64):
            plain = value.item()  # a date, not a datetime at midnight
    except OverflowError:
        return value
    # numpy gives NaT as None, and years beyond 9999 as an integer.
    if not isinstance(plain, (date, timedelta)):
        return value
    # numpy cuts off nanoseconds, and wraps around beyond 64 bits without an error: neither survives
    # the way back.
    is_exact = bool(in_microseconds.astype(value.dtype) == value)
    return plain if is_exact else value


def _microseconds_of(value: np.datetime64 | np.timedelta64) -> str:
    """Return the dtype of microseconds for a point in time or for a duration."""
    return "M8[us]" if isinstance(value, np.datetime64) else "m8[us]"


def as_numpy_time(value: Any) -> Any:
    """Convert a time of Python or pandas to a time of numpy; return other values unchanged.

    A datetime with a time zone is converted to UTC. A time of day becomes the timedelta since
    midnight.
    """
    # pandas' Timestamp is a datetime with nanoseconds, which the conversion below would lose.
    if hasattr(value, "to_datetime64"):
        return value.to_datetime64()
    if isinstance(value, datetime) and value.tzinfo is not None:
        in_utc = value.astimezone(timezone.utc)
        return np.datetime64(in_utc.replace(tzinfo=None))
    if isinstance(value, date):  # a datetime is a date
        return np.datetime64(value)
    if isinstance(value, time):
        since_midnight = datetime.combine(date.min, value) - datetime.min
        return np.timedelta64(since_midnight)
    if isinstance(value, timedelta):
        return np.timedelta64(value)
    return value
