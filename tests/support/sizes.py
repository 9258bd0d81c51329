"""How much is tried: a little by ``make test``, all of it by ``make test-full``, at other places in
each run.
"""

from __future__ import annotations

import os
import random

FULL = os.environ.get("DATA_STACK_TESTS") == "full"
"""``make test-full`` sets ``DATA_STACK_TESTS=full``; tests with the mark ``full`` run only then."""

SEED = int(os.environ.get("DATA_STACK_SEED", "1"))
"""Decides what is drawn at random. ``make test-full`` draws another one in each run, and prints it."""


def sized(default: int, full: int, *, cost: int = 1) -> int:
    """How often something is tried; by default less often if it costs more."""
    return full if FULL else max(1, default // cost)


def spread(total: int, n: int) -> list[int]:
    """``n`` of the places 1 to ``total``, evenly, with the first and last; all of them if there are
    no more.

    ``make test-full`` moves those between by up to half of their distance, as its seed says.
    """
    if n == 1 < total:
        return [1 + total // 2]
    if total <= n:
        return list(range(1, total + 1))
    chance, step = random.Random(SEED), (total - 1) / (n - 1)
    moves = [0.0, *(chance.uniform(-0.5, 0.5) if FULL else 0.0 for _ in range(n - 2)), 0.0]
    return sorted({1 + round((i + move) * step) for i, move in enumerate(moves)})
