"""Converts times of numpy to times of Python and back, where that is exact."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, timezone
from typing import Any, Final

import numpy as np

#: Units that Python's times may hold exactly: years and months have no length in days, and numpy
#: alone has parts of nanoseconds.
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
            plain = value.item()
        # numpy gives NaT as None, and years beyond 9999 as an integer.
        is_time = isinstance(plain, (date, timedelta))
        is_exact = is_time and bool(in_microseconds == value)
    except OverflowError:
        return value
    return plain if is_exact else value


def _microseconds_of(value: np.datetime64 | np.timedelta64) -> str:
    return "M8[us]" if isinstance(value, np.datetime64) else "m8[us]"


def as_numpy_time(value: Any) -> Any:
    """Convert a time of Python or pandas to a time of numpy; other values are unchanged.

    A time with a zone becomes UTC. A time of day becomes the time since midnight.
    """
    if hasattr(value, "to_datetime64"):  # of pandas, whose times are more exact than datetimes
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
