"""Caches row groups in memory, and prefetches the next ones in the background."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from typing import NamedTuple

from data_stack.formats.parquet.cache_limit import CacheLimit
from data_stack.formats.parquet.columns import GroupColumn
from data_stack.formats.parquet.row_group_reader import RowGroupReader
from data_stack.util.executor import Executor, computing
from data_stack.util.forks import call_in_forks

#: Limit of prefetched bytes; one row group is always prefetched.
_MAX_PREFETCHED_BYTES = 32 << 20
#: Concurrent reads of a store; they mostly wait.
_MAX_REQUESTS = 16
#: A prefetched row group is dropped after this many calls: its iteration was abandoned.
_MAX_CALLS_UNUSED = 16

#: Reads row groups of stores. It has its own threads: a thread inside Arrow's code may crash Python
#: at exit, so Python waits a moment for these; a store may never answer.
_of_stores = Executor("data_stack-parquet", lambda: _MAX_REQUESTS, grace_seconds=5.0)

Columns = dict[str, GroupColumn]
OpenRowGroup = Callable[[int, Sequence[str]], RowGroupReader]


class _Prefetch(NamedTuple):
    """A row group that is being read, or has been read.

    Attributes:
        reader: reads it.
        n_bytes: estimated memory.
        call_number: of the call that requested it.
        future: of the thread that reads it.
    """

    reader: RowGroupReader
    n_bytes: int
    call_number: int
    future: Future[None]


class RowGroupCache:
    """An LRU cache of columns of row groups. Threads may share it.

    One thread reads a column, the others wait. A :class:`CacheLimit` decides how many bytes are
    kept.

    Row groups are prefetched: Arrow reads and decodes without the GIL; the thread that takes a row
    group makes the values. Errors are dropped: the thread that needs the row group reads it again
    and raises the error.

    Args:
        open_row_group: returns a reader of columns of a row group.
        max_bytes: limit of the cache; it always keeps one row group.
        check: raises if the file of a row group was replaced. It is called before each row group is
            returned. None: files cannot be replaced.

    Attributes:
        n_bytes: memory of the cached columns.
    """

    n_bytes: int

    #: Guards all that follows; it is held for moments only.
    _lock: threading.Lock

    #: The cached columns by row group; the row group that was used last is the last one.
    _groups: OrderedDict[int, Columns]

    #: How many bytes to keep.
    _limit: CacheLimit

    #: Memory of the columns that were read last: an estimate for the next ones.
    _last_bytes: int

    #: For each row group a lock that a thread holds while it reads columns of it.
    _read_locks: dict[int, threading.Lock]

    #: Prefetched row groups.
    _prefetches: dict[int, _Prefetch]

    #: Number of calls of :meth:`prefetch`.
    _n_calls: int

    def __init__(
        self,
        open_row_group: OpenRowGroup,
        max_bytes: int,
        check: Callable[[int], None] | None = None,
    ) -> None:
        self._open_row_group = open_row_group
        self._max_bytes = max_bytes
        self._check = check
        self._reset()
        call_in_forks(self._reset_in_fork)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._groups = OrderedDict()
        self._limit = CacheLimit(self._max_bytes)
        self.n_bytes = 0
        self._last_bytes = 0
        self._read_locks = {}
        self._prefetches = {}
        self._n_calls = 0

    def _reset_in_fork(self) -> None:
        """Begin anew in a forked process, but keep what the parent had in memory.

        To free it, Arrow might wait for a lock that a thread of the parent held.
        """
        self._inherited = (self._groups, self._prefetches)
        self._reset()

    # ------------------------------------------------------------------ columns

    def columns(self, group: int, names: Sequence[str]) -> Columns:
        """Return columns of a row group, at least those of ``names``.

        Raises:
            DatasetFileCorruptError, StorageError: the row group cannot be read.
            ResourceChangedError: its file was replaced.
        """
        if self._check is not None:
            self._check(group)
        with self._lock:
            if self._has_columns(group, names):
                self._groups.move_to_end(group)
                return self._groups[group]
            read_lock = self._read_locks.setdefault(group, threading.Lock())
        with read_lock:
            with self._lock:
                columns = self._groups.get(group, {})
                if not columns:
                    self._evict(self._last_bytes, min_groups=0)
            # another thread may have been faster
            missing = [name for name in names if name not in columns]
            if missing:
                columns = {**columns, **self._take_reader(group, missing).columns()}
            with self._lock:
                return self._keep(group, columns)

    def has(self, group: int, names: Sequence[str]) -> bool:
        """Whether columns of a row group are cached or prefetched."""
        if self._has_columns(group, names):
            return True
        prefetch = self._prefetches.get(group)
        return prefetch is not None and prefetch.future.done()

    def _has_columns(self, group: int, names: Sequence[str]) -> bool:
        columns = self._groups.get(group)
        return columns is not None and all(map(columns.__contains__, names))

    def _is_being_read(self, group: int) -> bool:
        return group in self._read_locks and self._read_locks[group].locked()

    def _keep(self, group: int, columns: Columns) -> Columns:
        """Cache columns, and evict other row groups to make room.

        What another thread has cached meanwhile stays.
        """
        cached = self._groups.get(group, {})
        n_bytes = sum(column.n_bytes for name, column in columns.items() if name not in cached)
        columns = {**columns, **cached}
        self._groups[group] = columns
        self._groups.move_to_end(group)
        if n_bytes:
            self._last_bytes = n_bytes
            self.n_bytes += n_bytes
            self._limit.note_read(group, n_bytes)
            self._evict(0, min_groups=1)
        return columns

    def _evict(self, n_bytes_to_come: int, *, min_groups: int) -> None:
        """Evict the row groups that were used longest ago, until the limit is kept."""
        while (
            self.n_bytes + n_bytes_to_come > self._limit.n_bytes and len(self._groups) > min_groups
        ):
            group, columns = self._groups.popitem(last=False)
            n_bytes = sum(column.n_bytes for column in columns.values())
            self.n_bytes -= n_bytes
            self._limit.note_eviction(group, n_bytes, n_cached=len(self._groups))

    # ------------------------------------------------------------------ prefetching

    def next_to_read(self, groups: Collection[int], names: Sequence[str]) -> int:
        """Choose the row group to read next.

        It is one that is cached or prefetched, else one that no other thread is reading, so that
        several threads read different ones.

        Args:
            groups: at least one row group.
            names: names of the columns.
        """

        def rank(group: int) -> int:
            if self.has(group, names):
                return 0
            is_on_its_way = self._is_being_read(group) or group in self._prefetches
            return 2 if is_on_its_way else 1

        with self._lock:
            self._limit.note_request(len(groups))
            return min(groups, key=rank)

    def prefetch(self, groups: Sequence[int], names: Sequence[str]) -> None:
        """Prefetch row groups while there is room, and return at once.

        Row groups that were prefetched long ago, and not used, are dropped.

        Args:
            groups: row groups in the order of their use.
            names: names of the columns.
        """
        with self._lock:
            self._n_calls += 1
            self._drop_unused(groups)
            readers = self._open_next(groups, names)
            for group, (reader, n_bytes) in readers.items():
                if len(readers) > 1:  # they keep the processors busy without more threads
                    reader.by_threads = False
                executor = computing if reader.is_local else _of_stores
                # Errors are dropped, see the class. Or Python exits, or cannot start a thread.
                with contextlib.suppress(Exception):
                    future = executor.submit(reader.decode)
                    self._prefetches[group] = _Prefetch(reader, n_bytes, self._n_calls, future)

    def _drop_unused(self, wanted: Sequence[int]) -> None:
        """Drop row groups that were prefetched long ago, and are not wanted."""
        for group, prefetch in list(self._prefetches.items()):
            is_old = prefetch.call_number + _MAX_CALLS_UNUSED < self._n_calls
            if is_old and prefetch.future.done() and group not in wanted:
                del self._prefetches[group]

    def _open_next(
        self, groups: Sequence[int], names: Sequence[str]
    ) -> dict[int, tuple[RowGroupReader, int]]:
        """Open the row groups for which there is room, each with its estimated bytes.

        There is always room for one.
        """
        n_prefetched_bytes = sum(prefetch.n_bytes for prefetch in self._prefetches.values())
        room = min(_MAX_PREFETCHED_BYTES, self._max_bytes) - n_prefetched_bytes
        readers: dict[int, tuple[RowGroupReader, int]] = {}
        for group in groups:
            is_there = group in self._prefetches or self._has_columns(group, names)
            if is_there or self._is_being_read(group):
                continue
            reader = self._open_row_group(group, names)
            n_bytes = max(self._last_bytes, reader.known_bytes())  # the footer may state more
            is_first = not self._prefetches and not readers
            if n_bytes > room and not is_first:
                break
            room -= n_bytes
            readers[group] = (reader, n_bytes)
        return readers

    def _take_reader(self, group: int, names: Sequence[str]) -> RowGroupReader:
        """Take the reader of a prefetched row group, and wait for it; else open the row group."""
        with self._lock:
            prefetch = self._prefetches.pop(group, None)
        if prefetch is None or not set(names) <= set(prefetch.reader.names):
            return self._open_row_group(group, names)
        # a reader whose turn has not come is used here and now
        is_usable = prefetch.future.cancel() or prefetch.future.exception() is None
        if is_usable:
            return prefetch.reader
        return self._open_row_group(group, names)
