"""Random pauses, so that processes that wait or retry do not all ask at the same moment."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Final

#: The state of Python's own generator is the user's, and processes that were forked from one
#: process would all draw the same pauses from it.
_RANDOM: Final = random.SystemRandom()

#: How many times as long as the pause before each pause is.
_GROWTH: Final = 1.5


def jittered(seconds: float) -> float:
    """Return a random duration between half of ``seconds`` and all of it."""
    return seconds * _RANDOM.uniform(0.5, 1.0)


def polls(max_seconds: float, *, first: float, longest: float) -> Iterator[None]:
    """Yield at once, and again after each of growing pauses, until the time is over::

        for _ in polls(10.0, first=0.01, longest=1.0):
            if is_ready():
                break

    Args:
        max_seconds: limit of all pauses together.
        first: length of the first pause in seconds; each pause is 1.5 times as long as the one
            before.
        longest: limit of a pause in seconds.
    """
    end = time.monotonic() + max_seconds
    pause = first
    yield
    while True:
        seconds_left = end - time.monotonic()
        if seconds_left <= 0:
            return
        time.sleep(min(jittered(pause), seconds_left))
        pause = min(pause * _GROWTH, longest)
        yield
