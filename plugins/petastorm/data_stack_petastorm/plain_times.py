"""Converts times of numpy to Python's, where that is exact."""

from __future__ import annotations

from datetime import date, datetime, timedelta
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
