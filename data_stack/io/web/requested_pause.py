"""Reads how long a server asks to wait before the next request."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime


def requested_pause_seconds(headers: Mapping[str, str]) -> float | None:
    """Return how many seconds a server asks to wait; None if it does not ask.

    ``Retry-After`` is a number of seconds or a date
    (https://www.rfc-editor.org/rfc/rfc9110#field.retry-after). Without it, the ``t`` of
    ``RateLimit`` tells.
    """
    value = headers.get("Retry-After", "").strip()
    if not value:
        rate_limit = re.search(r";\s*t=(\d{1,12})\b", headers.get("RateLimit", ""))
        if rate_limit is None:
            return None
        return float(rate_limit[1])
    if re.fullmatch(r"[0-9]{1,12}", value):
        return float(value)
    try:
        date = parsedate_to_datetime(value)
        return max(0.0, date.timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None
