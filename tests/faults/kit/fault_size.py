"""At which points a fault strikes, and what is counted."""

from __future__ import annotations

import collections
import time


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
