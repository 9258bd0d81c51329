"""Waits for what other processes do."""

from __future__ import annotations

import time
from collections.abc import Callable

#: How long a test waits for what must happen, on a busy machine too.
PATIENCE_SECONDS = 60.0


def wait_until(condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> bool:
    """Wait until a condition holds, but no longer than ``seconds``; return whether it holds."""
    end = time.monotonic() + seconds
    while True:
        if condition():
            return True
        if time.monotonic() >= end:
            return False
        time.sleep(0.01)
