"""Interrupts blocking calls to sources that are silent, or slower than a least rate."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable

_TICK_SECONDS = 0.05
#: The watching thread ends after this number of ticks without anything to watch.
_IDLE_TICKS = 100


class Watch:
    """Watches a block: once its source is overdue, another thread calls ``interrupt``, again and again until the block ends.

    The source is overdue after ``timeout_seconds`` without bytes. Each byte prolongs the time by as much as it takes at the least
    rate, never beyond ``timeout_seconds`` from then: a source that sends a byte now and then is overdue as early as a silent one.

    Args:
        interrupt: makes the blocking call of the block fail; it does not block itself.
        timeout_seconds: longest silence.
        least_bytes_per_second: a slower source is overdue after about ``timeout_seconds``.

    Attributes:
        is_overdue: whether the source was overdue.
        n_bytes: received so far.
    """

    def __init__(self, interrupt: Callable[[], None], timeout_seconds: float, least_bytes_per_second: float) -> None:
        self._interrupt, self._timeout, self._least = interrupt, timeout_seconds, least_bytes_per_second
        self.is_overdue, self.n_bytes = False, 0
        self._due, self._left = math.inf, timeout_seconds
        self._lock = threading.Lock()

    def __enter__(self) -> Watch:
        self.go()
        _watching.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        _watching.remove(self)
        with self._lock:  # from here on, nothing is interrupted
            self._due = math.inf

    def hold(self, n_received: int = 0) -> None:
        """Stop the clock, after ``n_received`` more bytes: what follows is not the source's time."""
        self.n_bytes += n_received
        self._left = min(self._timeout, self._due - time.monotonic() + n_received / self._least)
        self._due = math.inf

    def go(self) -> None:
        """Start the clock again."""
        self._due = time.monotonic() + self._left

    def look(self) -> None:
        """Interrupt the block if its source is overdue."""
        if time.monotonic() > self._due:
            with self._lock:
                if time.monotonic() > self._due:
                    self.is_overdue = True
                    self._interrupt()


class _Watching:
    """The watches of this process, and the thread that looks at them while there are any."""

    def __init__(self) -> None:
        self._watches: set[Watch] = set()
        self._lock = threading.RLock()  # a finalizer that reads may run inside of add()
        self._is_running = False

    def add(self, watch: Watch) -> None:
        with self._lock:
            self._watches.add(watch)
            if not self._is_running:
                threading.Thread(target=self._run, name="data_stack-watch", daemon=True).start()
                self._is_running = True

    def remove(self, watch: Watch) -> None:
        with self._lock:
            self._watches.discard(watch)

    def _run(self) -> None:
        n_idle = 0
        while True:
            time.sleep(_TICK_SECONDS)
            with self._lock:
                watches = list(self._watches)
                n_idle = 0 if watches else n_idle + 1
                if n_idle > _IDLE_TICKS:
                    self._is_running = False
                    return
            for watch in watches:
                watch.look()


_watching = _Watching()
os.register_at_fork(after_in_child=_watching.__init__)  # type: ignore[misc]  # its thread is the parent's
