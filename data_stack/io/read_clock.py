"""Measures how long each thread waits for the bytes of resources."""

from __future__ import annotations

import threading
import time
from types import TracebackType


class ReadClock(threading.local):
    """Adds up the time that this thread spends in ``with read_clock:``.

    A block inside of another one is not counted again: a resource may read another resource.

    Attributes:
        seconds: the time so far. A caller takes the difference of two values.
    """

    seconds: float
    #: The number of blocks that this thread is in.
    _depth: int
    #: When the outermost block began.
    _began_at: float

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth = 0
        self._began_at = 0.0

    def __enter__(self) -> None:
        self._depth += 1
        if self._depth == 1:
            self._began_at = time.perf_counter()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.seconds += time.perf_counter() - self._began_at


read_clock = ReadClock()
"""The clock of this thread."""
