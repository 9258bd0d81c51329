"""How much is tried: a little by ``make test``, all of it by ``make test-full``."""

from __future__ import annotations

import os

FULL = os.environ.get("DATA_STACK_TESTS") == "full"
"""``make test-full`` sets ``DATA_STACK_TESTS=full``; tests with the mark ``full`` run only then."""


def sized(default: int, full: int, *, cost: int = 1) -> int:
    """How often something is tried; by default less often if it costs more."""
    return full if FULL else max(1, default // cost)
