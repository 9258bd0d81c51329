"""Random pauses, so that processes that wait or retry do not all ask at the same moment."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Final

#: The state of Python's own generator is the user's, and processes forked from one would all draw the same pauses.
_RANDOM: Final = random.SystemRandom()


def jittered(seconds: float) -> float:
    """Between half of that time and all of it."""
    return seconds * _RANDOM.uniform(0.5, 1.0)


def polls(most_seconds: float, *, first: float, longest: float) -> Iterator[bool]:
    """True at once, and again after each of the growing pauses, until the time is over::

        for _ in polls(10.0, first=0.01, longest=1.0):
            if is_ready():
                break

    Args:
        most_seconds: all pauses together.
        first: length of the first pause in seconds; the next one is 1.5 times as long, and so on.
        longest: limit of a pause.
    """
    end = time.monotonic() + most_seconds
    yield True
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(jittered(first), left))
        first = min(first * 1.5, longest)
        yield True
