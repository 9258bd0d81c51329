"""Limits of time, size and retries."""

from __future__ import annotations

import contextlib
import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from data_stack.exception import ConfigError
from data_stack.io.web.ranges import ByteRange as ByteRange

if TYPE_CHECKING:
    pass
_TIMEOUT: Final = "DATA_STACK_WEB_TIMEOUT"


@dataclass(frozen=True)
class Limits:
    """Limits of time, size and retries.

    Attributes:
        least_bytes_per_second: a slower transfer ends as stalled, after about the timeout.
        max_bytes: largest resource accepted without a defined size.
        n_retries: retries per source without progress; interrupted transfers are resumed.
        backoff_seconds: wait before the first retry; doubled each time, with jitter.
        max_wait_seconds: longest wait between two tries, also for a server's Retry-After.
    """

    least_bytes_per_second: float = 1024.0
    max_bytes: int = 64 << 30
    n_retries: int = 4
    backoff_seconds: float = 0.5
    max_wait_seconds: float = 30.0


def web_timeout() -> float:
    """Longest silence of a server in seconds: ``DATA_STACK_WEB_TIMEOUT``, or else 30.

    Raises:
        ConfigError: the variable is not a positive number.
    """
    text = os.environ.get(_TIMEOUT, "").strip() or "30"
    with contextlib.suppress(ValueError):
        if 0 < (seconds := float(text)) < math.inf:
            return seconds
    raise ConfigError(f"{_TIMEOUT} must be a positive number of seconds, got {text!r:.40}")
