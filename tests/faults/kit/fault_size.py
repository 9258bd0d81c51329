"""Whether the small or the full form of the fault tests runs, and what is counted in them."""

from __future__ import annotations

import collections
import os
import time

FAULTS_FULL = os.environ.get("DATA_STACK_FAULTS") == "full"
"""``make faults`` sets ``DATA_STACK_FAULTS=full``; ``make test`` does not."""


def sized(small: int, full: int, *, cost: int = 1) -> int:
    """How often something is tried; in the small form less often if it costs more."""
    return full if FAULTS_FULL else max(1, small // cost)


def spread(total: int, n: int) -> list[int]:
    """``n`` of the places 1 to ``total``, evenly, with the first and last; all of them if there are no more."""
    if total <= n:
        return list(range(1, total + 1))
    if n == 1:
        return [1 + total // 2]
    return sorted({1 + round(i * (total - 1) / (n - 1)) for i in range(n)})


class Figures:
    """What happened how often in one scenario."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.counts: collections.Counter[str] = collections.Counter()
        self._started = time.monotonic()

    def __str__(self) -> str:
        counts = ", ".join(f"{number} {what}" for what, number in self.counts.items())
        return f"{self.name}: {counts} ({time.monotonic() - self._started:.0f} s)"
