"""How much is tried: a little by ``make test``, all of it by ``make test-full``."""

from __future__ import annotations

import os

FULL = os.environ.get("DATA_STACK_TESTS") == "full"
"""``make test-full`` sets ``DATA_STACK_TESTS=full``; tests with the mark ``full`` run only then."""


def sized(default: int, full: int, *, cost: int = 1) -> int:
    """How often something is tried; by default less often if it costs more."""
    return full if FULL else max(1, default // cost)


def spread(total: int, n: int) -> list[int]:
    """``n`` of the places 1 to ``total``, evenly, with the first and last; all of them if there are no more."""
    if n == 1 < total:
        return [1 + total // 2]
    return sorted({1 + round(i * (total - 1) / max(1, n - 1)) for i in range(n)}) if total > n else list(range(1, total + 1))
