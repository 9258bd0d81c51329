"""Reads row groups in the background that will be asked for soon."""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Callable, Sequence

from data_stack.formats.parquet.row_groups import GroupReading

__all__ = ["ReadAhead"]

#: What waits to be asked for, at most; one row group always may.
_MOST_BYTES = 16 << 20
#: So many row groups are read at once, at most.
_MOST_THREADS = 16
#: What waits while others were expected so many times is of an iteration that was broken off.
_PATIENCE = 16
#: How long the end of Python waits for what is being read.
_GRACE_SECONDS = 5.0


class ReadAhead:
    """Row groups that are expected to be asked for. Threads may share it.

    Each is read by a thread of its own, which ends with it: nearly all of its time is spent in Arrow, which reads and decodes
    without Python's lock. Values are made of it by whoever takes it. What could not be read is as if nobody had expected it:
    whoever asks for it reads it again, and is told.

    Args:
        reading: begins to read columns of a row group.
    """

    def __init__(self, reading: Callable[[int, Sequence[str]], GroupReading]) -> None:
        self._reading = reading
        self._lock = threading.Lock()
        self._expected: dict[int, _Expected] = {}
        self._n_threads = self._n_calls = 0

    def expect(self, groups: Sequence[int], names: Sequence[str], group_bytes: int, max_bytes: int) -> None:
        """Begin to read row groups, as far as there is room for them; what nobody came for since long ago goes.

        Args:
            groups: the one that is wanted first comes first.
            names: of the columns.
            group_bytes: what the last row group took that was read; one whose footer says more is taken to need that.
            max_bytes: what all of them may take; one may always be read.
        """
        with self._lock:
            self._n_calls += 1
            for group, each in list(self._expected.items()):
                if each.is_over.is_set() and each.since + _PATIENCE < self._n_calls and group not in groups:
                    del self._expected[group]
            room = min(_MOST_BYTES, max_bytes) - sum(each.n_bytes for each in self._expected.values())
            begun: list[_Expected] = []
            for group in groups:
                if group in self._expected:
                    continue
                each = _Expected(self._reading(group, names), group_bytes, self._n_calls)
                if self._n_threads >= _MOST_THREADS or (self._expected and each.n_bytes > room):
                    break
                room -= each.n_bytes
                begun.append(each)
                self._expected[group] = each
                self._n_threads += 1
        for each in begun:
            each.reading.by_threads = len(begun) == 1  # several keep the processors busy, with less coming and going
            thread = threading.Thread(target=self._read, args=(each,), name="data_stack reads ahead", daemon=True)
            try:
                each.reading.open_local()
                thread.start()
                _threads.add(thread)
            except Exception:  # noqa: BLE001  # see the class; or Python is at its end, or there are too many threads
                self._finish(each)

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
            None if it was not expected with these columns, or could not be read.
        """
        with self._lock:
            expected = self._expected.pop(group, None)
        if expected is None:
            return None
        expected.is_over.wait()
        return expected.reading if expected.reading.is_decoded and set(names) <= set(expected.reading.names) else None

    def _read(self, expected: _Expected) -> None:
        try:
            expected.reading.decode()
        except Exception:  # noqa: BLE001, S110  # see the class
            pass
        finally:
            self._finish(expected)

    def _finish(self, expected: _Expected) -> None:
        with self._lock:
            self._n_threads -= 1
        expected.is_over.set()


# A thread in the midst of Arrow's code may crash Python at its end, so each is given a moment; a store may never answer it.
_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


@atexit.register
def _wait_for_all() -> None:
    end = time.monotonic() + _GRACE_SECONDS
    for thread in list(_threads):
        thread.join(max(0.0, end - time.monotonic()))


class _Expected:
    """A row group that is being read.

    Attributes:
        reading: of it.
        n_bytes: what it is taken to need.
        since: when it was expected, in calls.
        is_over: set when it has been read, or could not be.
    """

    def __init__(self, reading: GroupReading, least_bytes: int, since: int) -> None:
        self.reading, self.since = reading, since
        self.n_bytes = max(least_bytes, reading.stored_bytes)
        self.is_over = threading.Event()
