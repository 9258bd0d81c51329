"""Caches row groups in memory, and prefetches the next ones in the background."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from typing import NamedTuple

from data_stack.formats.parquet.columns import GroupColumn
from data_stack.formats.parquet.row_groups import GroupReading
from data_stack.util.executor import Executor, computing
from data_stack.util.forks import call_in_forks

#: The initial limit; it grows when evicted row groups are read again. With more, memory for the next row groups leaves the
#: processor's cache.
_FIRST_BYTES = 24 << 20
#: Minimum number of evicted row groups to remember; else as many as are cached, or as one request has needed.
_FEWEST_REMEMBERED = 8
#: The limit grows if more than _MAX_RETURNS of the last _LAST_READS reads were of recently evicted row groups. A few occur at
#: the beginning of an epoch.
_LAST_READS = 16
_MAX_RETURNS = 3
#: Limit of prefetched bytes; one row group is always prefetched.
_MAX_AHEAD_BYTES = 32 << 20
#: Concurrent reads of a store; they mostly wait.
_MAX_REQUESTS = 16
#: A prefetched row group is dropped after this many calls: its iteration was abandoned.
_PATIENCE = 16

#: Reads row groups of stores. It has its own threads: a thread inside Arrow's code may crash Python at exit, so Python waits a
#: moment for these; a store may never answer.
_of_stores = Executor("data_stack-parquet", lambda: _MAX_REQUESTS, grace_seconds=5.0)

Columns = dict[str, GroupColumn]
Reading = Callable[[int, Sequence[str]], GroupReading]


class _Expected(NamedTuple):
    """A row group that is being read.

    Attributes:
        reading: reads it.
        n_bytes: estimated memory.
        since: number of the call that requested it.
        future: of the thread that reads it.
    """

    reading: GroupReading
    n_bytes: int
    since: int
    future: Future[None]


class GroupCache:
    """An LRU cache of columns of row groups. Threads may share it: one thread reads a column, the others wait.

    The limit adapts to the access pattern: streaming needs one or two row groups, a shuffle as many as its window, random access
    all that fit. The limit begins low. It grows when row groups are read again that were evicted.

    It prefetches row groups: Arrow reads and decodes without the GIL; the thread that takes a row group makes the values. Errors
    are dropped: the thread that needs the row group reads it again and raises the error.

    Args:
        reading: starts to read columns of a row group.
        max_bytes: limit of the cache; it always keeps one row group.
        check: raises if the file of a row group was replaced; it is called for each row group that is handed out. None: nothing
            can be replaced.
    """

    def __init__(
        self, reading: Reading, max_bytes: int, check: Callable[[int], None] | None = None
    ) -> None:
        self._reading = reading
        self._max_bytes = max_bytes
        self._check = check
        self._reset()
        call_in_forks(self._begin_in_fork)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._groups: OrderedDict[int, Columns] = OrderedDict()
        self.n_bytes = self._last_bytes = self._n_calls = self._most_wanted = 0
        self._limit = min(_FIRST_BYTES, self._max_bytes)
        self._gone: OrderedDict[int, int] = OrderedDict()
        self._returns: deque[bool] = deque(maxlen=_LAST_READS)
        self._reads: dict[int, threading.Lock] = {}
        self._expected: dict[int, _Expected] = {}

    def _begin_in_fork(self) -> None:
        self._inherited = (
            self._groups,
            self._expected,
        )  # not freed: Arrow might wait for a lock that a thread of the parent held
        self._reset()

    def next_to_read(self, groups: Collection[int], names: Sequence[str]) -> int:
        """Choose the row group to read next: one that is cached or prefetched, else one that no other thread is reading, so that
        several threads read different ones.

        Args:
            groups: at least one row group.
            names: names of the columns.
        """

        def priority(group: int) -> int:
            if self.has(group, names):
                return 0
            return 2 if self._is_being_read(group) or group in self._expected else 1

        with self._lock:
            self._most_wanted = max(self._most_wanted, len(groups))
            return min(groups, key=priority)

    def has(self, group: int, names: Sequence[str]) -> bool:
        """Whether columns of a row group are cached or prefetched."""
        expected = self._expected.get(group)
        return self._keeps(group, names) or (expected is not None and expected.future.done())

    def _keeps(self, group: int, names: Sequence[str]) -> bool:
        found = self._groups.get(group)
        return found is not None and all(map(found.__contains__, names))

    def _is_being_read(self, group: int) -> bool:
        return group in self._reads and self._reads[group].locked()

    def expect(self, groups: Sequence[int], names: Sequence[str]) -> None:
        """Prefetch row groups while there is room, and drop those that have waited too long; return at once.

        Args:
            groups: row groups in the order of their use.
            names: names of the columns.
        """
        with self._lock:
            self._n_calls += 1
            for group, each in list(self._expected.items()):
                if (
                    each.future.done()
                    and each.since + _PATIENCE < self._n_calls
                    and group not in groups
                ):
                    del self._expected[group]
            room = min(_MAX_AHEAD_BYTES, self._max_bytes) - sum(
                each.n_bytes for each in self._expected.values()
            )
            begun: dict[int, tuple[GroupReading, int]] = {}
            for group in groups:
                if (
                    group in self._expected
                    or self._keeps(group, names)
                    or self._is_being_read(group)
                ):
                    continue
                reading = self._reading(group, names)
                n_bytes = max(self._last_bytes, reading.known_bytes())  # the footer may state more
                if (self._expected or begun) and n_bytes > room:
                    break
                room -= n_bytes
                begun[group] = reading, n_bytes
            for group, (reading, n_bytes) in begun.items():
                reading.by_threads &= (
                    len(begun) == 1
                )  # several row groups keep the processors busy without more threads
                with contextlib.suppress(
                    Exception
                ):  # see the class; or Python exits, or cannot start a thread
                    future = (computing if reading.is_local else _of_stores).submit(reading.decode)
                    self._expected[group] = _Expected(reading, n_bytes, self._n_calls, future)

    def columns(self, group: int, names: Sequence[str]) -> Columns:
        """Return columns of a row group, at least those of ``names``.

        Raises:
            DatasetFileCorruptError, StorageError: the row group cannot be read.
            ResourceChangedError: its file was replaced.
        """
        if self._check is not None:
            self._check(group)
        with self._lock:
            if self._keeps(group, names):
                self._groups.move_to_end(group)
                return self._groups[group]
            read = self._reads.setdefault(group, threading.Lock())
        with read:
            with self._lock:
                found = self._groups.get(group, {})
                if not found:
                    self._make_room(self._last_bytes)
            missing = [name for name in names if name not in found]
            if missing:  # another thread may have been faster
                found = {**found, **self._take(group, missing).columns()}
            with self._lock:
                return self._keep(group, found)

    def _take(self, group: int, names: Sequence[str]) -> GroupReading:
        """Take a prefetched row group, and wait for one that is being read; else start to read it."""
        with self._lock:
            expected = self._expected.pop(group, None)
        if expected is None or not set(names) <= set(expected.reading.names):
            return self._reading(group, names)
        is_read = expected.future.cancel() or expected.future.exception() is None
        return expected.reading if is_read else self._reading(group, names)

    def _keep(self, group: int, columns: Columns) -> Columns:
        """Cache columns, and evict other row groups to make room."""
        kept = self._groups.get(group, {})
        n_bytes = sum(column.n_bytes for name, column in columns.items() if name not in kept)
        self._groups[group] = columns = {**columns, **kept}
        self._groups.move_to_end(group)
        if n_bytes:
            self._last_bytes = n_bytes
            self.n_bytes += n_bytes
            gone = self._gone.pop(group, 0)
            self._returns.append(gone > 0)
            if gone and sum(self._returns) > _MAX_RETURNS:  # it was evicted too early
                self._limit = min(self._max_bytes, self._limit + max(gone, n_bytes))
            self._make_room(0, n_kept=1)
        return columns

    def _make_room(self, n_bytes: int, n_kept: int = 0) -> None:
        while self.n_bytes + n_bytes > self._limit and len(self._groups) > n_kept:
            group, columns = self._groups.popitem(last=False)
            self._gone[group] = sum(column.n_bytes for column in columns.values())
            self.n_bytes -= self._gone[group]
            if len(self._gone) > max(_FEWEST_REMEMBERED, len(self._groups), self._most_wanted):
                self._gone.popitem(last=False)
