"""Reads row groups in the background that will be asked for soon."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from data_stack.formats.parquet.row_groups import GroupReading
from data_stack.util.processors import n_threads

__all__ = ["ReadAhead"]

#: What waits to be asked for, at most; one row group always may.
_MOST_BYTES = 16 << 20
#: So many row groups are read at once of a store, most of whose time is waiting; of this machine one for each thread that should
#: compute.
_MOST_REQUESTS = 16
#: A thread that has nothing to read for so long ends.
_IDLE_SECONDS = 1.0
#: What waits while others were expected so many times is of an iteration that was broken off.
_PATIENCE = 16
#: So little of this machine that is wanted at once is read sooner than threads are started for it.
_FEW_BYTES = 8 << 20
#: How long the end of Python waits for what is being read.
_GRACE_SECONDS = 5.0


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

    def expect(
        self, groups: Sequence[int], names: Sequence[str], group_bytes: int, max_bytes: int, *, at_once: bool = False
    ) -> None:
        """Begin to read row groups, as far as there is room for them; what nobody came for since long ago goes.

        Args:
            groups: the one that is wanted first comes first.
            names: of the columns.
            group_bytes: what the last row group took that was read; one whose footer says more is taken to need that.
            max_bytes: what all of them may take; one may always be read.
            at_once: whether they are asked for now, one after the other: nothing is begun that is had sooner that way.
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
                if at_once and not _readers.are_there and _is_little([each.reading for each in begun.values()]):
                    begun.clear()
                self._expected.update(begun)
            for each in begun.values():
                each.reading.by_threads &= len(begun) == 1  # several keep the processors busy, with less coming and going
                with contextlib.suppress(Exception):  # see the class; or Python is at its end, or has no more threads
                    each.reading.open_local()
                    _readers.submit(each, n_threads() if each.reading.is_local else _MOST_REQUESTS)
                    each.is_submitted = True
        finally:  # also for an interrupt: nobody waits for what nobody reads
            for each in begun.values():
                if not each.is_submitted:
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
        if _readers.withdraw(expected):
            return expected.reading
        expected.is_over.wait()
        return expected.reading if expected.reading.is_decoded else None


def _is_little(readings: Sequence[GroupReading]) -> bool:
    return all(each.is_local for each in readings) and sum(each.stored_bytes for each in readings) < _FEW_BYTES


class _Expected:
    """A row group that is being read.

    Attributes:
        reading: of it.
        n_bytes: what it is taken to need.
        since: when it was expected, in calls.
        is_submitted: whether a thread will come to it.
        is_over: set when it has been read, or could not be.
    """

    def __init__(self, reading: GroupReading, least_bytes: int, since: int) -> None:
        self.reading, self.since = reading, since
        self.n_bytes = max(least_bytes, reading.stored_bytes)
        self.is_submitted = False
        self.is_over = threading.Event()

    def read(self) -> None:
        """Read it, or do not."""
        try:
            with contextlib.suppress(Exception):  # see ReadAhead
                self.reading.decode()
        finally:
            self.is_over.set()


class _Readers:
    """The threads that read what is expected, for all datasets of this process. A thread ends when it had nothing to read for a
    second.

    They are kept that long because Arrow's allocator gives new memory to a new thread, and the system clears that: this takes
    longer than to decode a row group of a megabyte.
    """

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._to_read: deque[_Expected] = deque()
        self._has_more = threading.Condition(self._lock)
        self._n_idle = 0
        self._threads: set[threading.Thread] = set()

    @property
    def are_there(self) -> bool:
        """Whether there is any."""
        return bool(self._threads) and self._pid == os.getpid()

    def submit(self, expected: _Expected, most_threads: int) -> None:
        """Let a thread read a row group.

        Args:
            expected: the row group.
            most_threads: a further thread is started for it, if none is idle, unless there are so many.

        Raises:
            RuntimeError: there is no thread, and none can be started.
        """
        if self._pid != os.getpid():  # a thread of the parent may have held the lock, and none is left
            self._reset()
        with self._lock:
            self._to_read.append(expected)
            if self._n_idle >= len(self._to_read) or len(self._threads) >= most_threads:
                self._has_more.notify()
                return
            thread = threading.Thread(target=self._serve, name="data_stack reads ahead", daemon=True)
            self._threads.add(thread)
            try:
                thread.start()
            except BaseException:
                self._threads.discard(thread)
                self._to_read.remove(expected)
                raise

    def withdraw(self, expected: _Expected) -> bool:
        """Whether no thread has come to a row group yet; then none will."""
        with self._lock:
            if expected not in self._to_read:
                return False
            self._to_read.remove(expected)
            return True

    def wait(self, seconds: float) -> None:
        """Read nothing more, and wait for what is being read, or so long."""
        if self._pid != os.getpid():
            return
        with self._lock:
            self._to_read.clear()
        end = time.monotonic() + seconds
        while self._n_idle < len(self._threads) and time.monotonic() < end:
            time.sleep(0.005)

    def _serve(self) -> None:
        """What a thread does."""
        while True:
            with self._lock:
                if not self._to_read:
                    self._n_idle += 1
                    self._has_more.wait_for(lambda: self._to_read, _IDLE_SECONDS)
                    self._n_idle -= 1
                if not self._to_read:
                    self._threads.discard(threading.current_thread())
                    return
                expected = self._to_read.popleft()
            expected.read()
            del expected


_readers = _Readers()
# A thread in the midst of Arrow's code may crash Python at its end, so they are given a moment; a store may never answer.
atexit.register(_readers.wait, _GRACE_SECONDS)
