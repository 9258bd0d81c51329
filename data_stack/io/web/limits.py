"""Limits of requests: time, size and retries."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Final

from data_stack.exception import ConfigError

_TIMEOUT_VARIABLE: Final = "DATA_STACK_WEB_TIMEOUT"
_DEFAULT_TIMEOUT_SECONDS: Final = 30.0


@dataclass(frozen=True)
class Limits:
    """How slow, large and unreliable a server may be.

    Attributes:
        min_bytes_per_second: a slower transfer ends as stalled, after about the timeout.
        max_bytes: the largest resource that is accepted, in bytes. It does not apply to a resource
            whose definition has a size.
        n_retries: how often a source is asked again without progress. An interrupted transfer is
            resumed.
        backoff_seconds: the pause before the first retry; doubled each time, with jitter.
        max_wait_seconds: the longest pause between two tries, also where a server asks for more.
    """

    min_bytes_per_second: float = 1024.0
    max_bytes: int = 64 << 30
    n_retries: int = 4
    backoff_seconds: float = 0.5
    max_wait_seconds: float = 30.0


def web_timeout() -> float:
    """Return the longest silence of a server in seconds: ``DATA_STACK_WEB_TIMEOUT``, or else 30.

    Raises:
        ConfigError: the variable is not a positive number.
    """
    text = os.environ.get(_TIMEOUT_VARIABLE, "").strip()
    if not text:
        return _DEFAULT_TIMEOUT_SECONDS
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise ConfigError(
            f"{_TIMEOUT_VARIABLE} must be a positive number of seconds, got {text!r:.40}"
        )
    return seconds
