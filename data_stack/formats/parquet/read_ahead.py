"""Reads row groups in the background that will be asked for soon."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from data_stack.formats.parquet.row_groups import GroupReading
from data_stack.util.executor import Executor, computing

__all__ = ["ReadAhead"]

#: What waits to be asked for, at most; one row group always may.
_MOST_BYTES = 16 << 20
#: So many row groups are read at once of a store, most of whose time is waiting.
_MOST_REQUESTS = 16
#: What waits while others were expected so many times is of an iteration that was broken off.
_PATIENCE = 16

#: Reads row groups of stores. Not with all else that waits: a thread in the midst of Arrow's code may crash Python at its end, so
#: it is given a moment; a store may never answer.
_of_stores = Executor("data_stack-parquet", lambda: _MOST_REQUESTS, grace_seconds=5.0)


class ReadAhead:
    """Row groups that are expected to be asked for. Threads may share it.

    Nearly all of the time is spent in Arrow, which reads and decodes without Python's lock. Values are made of a row group by
    whoever takes it. What could not be read is as if nobody had expected it: whoever asks for it reads it again, and is told.

    Args:
        reading: begins to read columns of a row group.
    """

    def __init__(self, reading: Callable[[int, Sequence[str]], GroupReading]) -> None:
        self._reading = reading
        self._lock = threading.Lock()
        self._expected: dict[int, _Expected] = {}
        self._n_calls = 0

    def expect(self, groups: Sequence[int], names: Sequence[str], group_bytes: int, max_bytes: int) -> None:
        """Begin to read row groups, as far as there is room for them; what nobody came for since long ago goes.

        Args:
            groups: the one that is wanted first comes first.
            names: of the columns.
            group_bytes: what the last row group took that was read; one whose footer says more is taken to need that.
            max_bytes: what all of them may take; one may always be read.
        """
        begun: dict[int, _Expected] = {}
        try:
            with self._lock:
                self._n_calls += 1
                for group, each in list(self._expected.items()):
                    if each.is_over.is_set() and each.since + _PATIENCE < self._n_calls and group not in groups:
                        del self._expected[group]
                room = min(_MOST_BYTES, max_bytes) - sum(each.n_bytes for each in self._expected.values())
                for group in groups:
                    if group in self._expected:
                        continue
                    each = _Expected(self._reading(group, names), group_bytes, self._n_calls)
                    if (self._expected or begun) and each.n_bytes > room:
                        break
                    room -= each.n_bytes
                    begun[group] = each
                self._expected.update(begun)
            for each in begun.values():
                each.reading.by_threads &= len(begun) == 1  # several keep the processors busy, with less coming and going
                with contextlib.suppress(Exception):  # see the class; or Python is at its end, or has no more threads
                    each.reading.open_local()
                    each.future = (computing if each.reading.is_local else _of_stores).submit(each.read)
        finally:  # also for an interrupt: nobody waits for what nobody reads
            for each in begun.values():
                if each.future is None:
                    each.is_over.set()

    def is_ready(self, group: int) -> bool:
        """Whether a row group has been read."""
        expected = self._expected.get(group)
        return expected is not None and expected.is_over.is_set()

    def has(self, group: int) -> bool:
        """Whether a row group has been read, or is being read."""
        return group in self._expected

    def take(self, group: int, names: Sequence[str]) -> GroupReading | None:
        """A row group that has been read, which is the caller's now; waits for one that is being read.

        Returns:
            The row group, which is yet to be read if no thread has come to it; None if it was not expected with these columns, or
            could not be read.
        """
        with self._lock:
            expected = self._expected.pop(group, None)
        if expected is None or not set(names) <= set(expected.reading.names):
            return None
        if expected.future is not None and expected.future.cancel():
            return expected.reading
        expected.is_over.wait()
        return expected.reading if expected.reading.is_decoded else None


class _Expected:
    """A row group that is being read.

    Attributes:
        reading: of it.
        n_bytes: what it is taken to need.
        since: when it was expected, in calls.
        future: of the thread that reads it; None if none will.
        is_over: set when it has been read, or could not be.
    """

    def __init__(self, reading: GroupReading, least_bytes: int, since: int) -> None:
        self.reading, self.since = reading, since
        self.n_bytes = max(least_bytes, reading.stored_bytes)
        self.future: Future[None] | None = None
        self.is_over = threading.Event()

    def read(self) -> None:
        """Read it, or do not."""
        try:
            with contextlib.suppress(Exception):  # see ReadAhead
                self.reading.decode()
        finally:
            self.is_over.set()
