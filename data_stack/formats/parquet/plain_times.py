"""Times of numpy as Python's own, where these hold them exactly."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

import numpy as np

_UNITS = frozenset({"D", "h", "m", "s", "ms", "us", "ns"})


def plain_time(value: np.datetime64 | np.timedelta64) -> Any:
    """A date for a day, a datetime, or a timedelta.

    What they cannot hold exactly stays as it is: single nanoseconds, the year 20,000, years and months, no time at all.
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
