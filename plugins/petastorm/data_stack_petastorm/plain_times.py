"""Converts times of numpy to Python's and back, where that is exact."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, timezone
from typing import Any

import numpy as np

_UNITS = frozenset({"D", "h", "m", "s", "ms", "us", "ns"})


def plain_time(value: np.datetime64 | np.timedelta64) -> Any:
    """Convert a time to a date, datetime or timedelta.

    Values that these cannot hold exactly are returned unchanged: single nanoseconds, the year 20,000, years and months, NaT.
    """
    unit = np.datetime_data(value.dtype)[0]
    if unit not in _UNITS:
        return value
    try:
        micros = value.astype("M8[us]" if isinstance(value, np.datetime64) else "m8[us]")
        plain = value.item() if unit == "D" and isinstance(value, np.datetime64) else micros.item()
        is_exact = isinstance(plain, (date, datetime, timedelta)) and bool(micros == value)
    except OverflowError:
        return value
    return plain if is_exact else value


def as_numpy_time(value: Any) -> Any:
    """Convert times of Python or pandas to numpy (in UTC; a time of day as the time since midnight); others are unchanged."""
    if hasattr(value, "to_datetime64"):  # pandas' are more exact than their base class
        return value.to_datetime64()
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(timezone.utc).replace(tzinfo=None)
    if isinstance(value, time):
        value = datetime.combine(date.min, value) - datetime.min
    if isinstance(value, date):
        return np.datetime64(value)
    return np.timedelta64(value) if isinstance(value, timedelta) else value
