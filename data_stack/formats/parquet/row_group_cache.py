"""Holds row groups in memory: those that were read last, and those that are needed next."""

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

#: The maximum number of prefetched bytes. One row group is prefetched even if it is larger.
_MAX_PREFETCHED_BYTES = 32 << 20
#: The maximum number of concurrent reads of stores. Their threads mostly wait for the network.
_MAX_REQUESTS = 16
#: A prefetched row group that was not used is dropped after this many calls of ``prefetch``: the
#: iteration that needed it was abandoned.
_MAX_CALLS_UNUSED = 16

#: The threads that read row groups of stores. A store may never answer, so Python does not wait for
#: them at exit. But a thread inside of Arrow's code may crash Python at exit. So Python waits for
#: this time, within which most reads end.
_of_stores = Executor("data_stack-parquet", lambda: _MAX_REQUESTS, grace_seconds=5.0)

#: Columns of a row group by name.
Columns = dict[str, GroupColumn]
#: Returns the reader of a row group: takes its number and the names of the columns.
OpenRowGroup = Callable[[int, Sequence[str]], RowGroupReader]


class _Prefetch(NamedTuple):
    """A row group that a thread will read, is reading or has read.

    Attributes:
        reader: the reader of the row group, with the names of its columns.
        n_bytes: estimated memory of the columns, in bytes.
        call_number: number of the call of ``prefetch`` that requested the row group.
        future: the work of the thread.
    """

    reader: RowGroupReader
    n_bytes: int
    call_number: int
    future: Future[None]

    def has_columns(self, names: Sequence[str]) -> bool:
        """Return whether the reader reads all of these columns."""
        return set(names) <= set(self.reader.names)


class RowGroupCache:
    """An LRU cache of the columns of row groups. Threads may share it.

    If several threads need a row group, one of them reads it and the others wait for it. A
    :class:`CacheLimit` decides how many bytes are cached.

    The row groups that are needed next are prefetched by threads of their own. These read and
    decode the pages, which Arrow does without the GIL. The values are made by the thread that needs
    them. If prefetching fails, the error is dropped: the thread that needs the row group reads it
    again, and raises the error.

    Args:
        open_row_group: returns a reader of columns of a row group.
        max_bytes: limit of the cache in bytes. The row group that was read last is cached even if
            it is larger.
        check: called with the number of a row group before it is returned; raises if its file was
            replaced. None if files cannot be replaced.

    Attributes:
        n_bytes: memory of the cached columns, in bytes.
    """

    n_bytes: int

    #: Returns a reader of columns of a row group.
    _open_row_group: OpenRowGroup

    #: The limit of the cache in bytes.
    _max_bytes: int

    #: Raises if the file of a row group was replaced; None if files cannot be replaced.
    _check: Callable[[int], None] | None

    #: Guards the attributes below. A thread holds it for moments only, never while it reads.
    _lock: threading.Lock

    #: The cached columns by row group; the row group that was used last is the last one.
    _groups: OrderedDict[int, Columns]

    #: Decides how many bytes are cached.
    _limit: CacheLimit

    #: Memory of the row group that was read last, in bytes: the estimate for the next one.
    _last_bytes: int

    #: A lock for each row group that was ever read. A thread holds it while it reads columns of the
    #: row group, and takes it before ``_lock``.
    _read_locks: dict[int, threading.Lock]

    #: The prefetched row groups that were not used yet: at most one prefetch for each row group.
    _prefetches: dict[int, _Prefetch]

    #: Number of calls of :meth:`prefetch`.
    _n_calls: int

    #: In a forked process: what the parent process had cached. Nobody reads it.
    _inherited: tuple[OrderedDict[int, Columns], dict[int, _Prefetch]]

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
        """Begin again in a forked process.

        What the parent process had cached stays in memory: Arrow might wait forever to free it, for
        a lock that a thread of the parent held.
        """
        self._inherited = (self._groups, self._prefetches)
        self._reset()

    # ------------------------------------------------------------------ columns

    def columns(self, group: int, names: Sequence[str]) -> Columns:
        """Return columns of a row group by name: those of ``names``, and others that are cached.

        Args:
            group: number of the row group.
            names: the names of the columns.

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
            # While this thread waited, another one may have read the columns.
            with self._lock:
                columns = self._groups.get(group, {})
                if not columns:
                    # Evicting before reading lets the new row group take the released memory.
                    self._evict(self._last_bytes, min_groups=0)
            missing = [name for name in names if name not in columns]
            if missing:
                read_columns = self._take_reader(group, missing).columns()
                columns = {**columns, **read_columns}
            with self._lock:
                return self._keep(group, columns)

    def has(self, group: int, names: Sequence[str]) -> bool:
        """Return whether columns of a row group are cached, or were prefetched."""
        if self._has_columns(group, names):
            return True
        prefetch = self._prefetches.get(group)
        return prefetch is not None and prefetch.future.done() and prefetch.has_columns(names)

    def _has_columns(self, group: int, names: Sequence[str]) -> bool:
        """Return whether columns of a row group are cached."""
        columns = self._groups.get(group)
        if columns is None:
            return False
        for name in names:  # all() would take twice as long, for each sample
            if name not in columns:
                return False
        return True

    def _is_being_read(self, group: int) -> bool:
        return group in self._read_locks and self._read_locks[group].locked()

    def _keep(self, group: int, columns: Columns) -> Columns:
        """Cache columns, evict other row groups to make room, and return all cached columns.

        If a column was cached meanwhile, the cached one stays.
        """
        cached = self._groups.get(group, {})
        n_new_bytes = 0
        for name, column in columns.items():
            if name not in cached:
                n_new_bytes += column.n_bytes
        all_columns = {**columns, **cached}
        self._groups[group] = all_columns
        self._groups.move_to_end(group)
        if n_new_bytes:
            self._last_bytes = n_new_bytes
            self.n_bytes += n_new_bytes
            self._limit.note_read(group, n_new_bytes)
            self._evict(0, min_groups=1)
        return all_columns

    def _evict(self, n_bytes_to_come: int, *, min_groups: int) -> None:
        """Evict the row groups that were used longest ago, until the limit is kept.

        Args:
            n_bytes_to_come: size of the columns that are read next, for which there must be room.
            min_groups: this many row groups stay, even if the limit is not kept.
        """
        while len(self._groups) > min_groups:
            if self.n_bytes + n_bytes_to_come <= self._limit.n_bytes:
                return
            group, columns = self._groups.popitem(last=False)
            n_bytes = sum(column.n_bytes for column in columns.values())
            self.n_bytes -= n_bytes
            self._limit.note_eviction(group, n_bytes, n_cached=len(self._groups))

    # ------------------------------------------------------------------ prefetching

    def next_to_read(self, groups: Collection[int], names: Sequence[str]) -> int:
        """Choose the row group to read next, of several that are needed in any order.

        A row group that is cached or was prefetched comes first. Of the others, one comes first
        that no thread is reading or prefetching: so several threads read different ones, and one
        that is on its way has time to arrive.

        Args:
            groups: at least one row group.
            names: the names of the columns.
        """

        def rank(group: int) -> int:
            if self.has(group, names):
                return 0
            if group in self._prefetches or self._is_being_read(group):
                return 2
            return 1

        with self._lock:
            # The cache should hold as many row groups as a request needs.
            self._limit.note_request(len(groups))
            return min(groups, key=rank)

    def prefetch(self, groups: Sequence[int], names: Sequence[str]) -> None:
        """Begin to prefetch row groups, as many as there is room for, and return at once.

        Row groups that were prefetched long ago, and not used, are dropped.

        Args:
            groups: row groups in the order of their use.
            names: the names of the columns.
        """
        with self._lock:
            self._n_calls += 1
            self._drop_unused(groups)
            readers = self._open_next(groups, names)
            for group, (reader, n_bytes) in readers.items():
                if len(readers) > 1:
                    # One thread for each reader keeps the processors busy.
                    reader.by_threads = False
                if reader.is_local:
                    executor = computing
                else:
                    executor = _of_stores
                # submit() raises if Python exits or cannot start a thread. Then the row group is
                # not prefetched.
                with contextlib.suppress(Exception):
                    future = executor.submit(reader.decode)
                    self._prefetches[group] = _Prefetch(reader, n_bytes, self._n_calls, future)

    def _drop_unused(self, needed: Sequence[int]) -> None:
        """Drop row groups that were prefetched long ago, except those that are needed."""
        for group, prefetch in list(self._prefetches.items()):
            is_old = prefetch.call_number + _MAX_CALLS_UNUSED < self._n_calls
            if is_old and prefetch.future.done() and group not in needed:
                del self._prefetches[group]

    def _open_next(
        self, groups: Sequence[int], names: Sequence[str]
    ) -> dict[int, tuple[RowGroupReader, int]]:
        """Return the readers of the row groups to prefetch, with the estimated bytes of each.

        Row groups that are cached, prefetched or being read are left out. The others are taken in
        their order while there is room. If nothing is prefetched, there is room for one in any
        case.
        """
        n_prefetched_bytes = sum(prefetch.n_bytes for prefetch in self._prefetches.values())
        room = min(_MAX_PREFETCHED_BYTES, self._max_bytes) - n_prefetched_bytes
        readers: dict[int, tuple[RowGroupReader, int]] = {}
        for group in groups:
            if group in self._prefetches or self._is_being_read(group):
                continue
            if self._has_columns(group, names):
                continue
            reader = self._open_row_group(group, names)
            # The footer states the bytes before compression, which may be more than the estimate.
            n_bytes = max(self._last_bytes, reader.known_bytes())
            is_first = not self._prefetches and not readers
            if n_bytes > room and not is_first:
                break
            room -= n_bytes
            readers[group] = (reader, n_bytes)
        return readers

    def _take_reader(self, group: int, names: Sequence[str]) -> RowGroupReader:
        """Return a reader of a row group, after its prefetch if there is one.

        The prefetch is removed. If a thread is reading the row group, this method waits for it.
        """
        with self._lock:
            prefetch = self._prefetches.pop(group, None)
        if prefetch is None or not prefetch.has_columns(names):
            return self._open_row_group(group, names)
        has_not_begun = prefetch.future.cancel()
        if has_not_begun:
            return prefetch.reader  # it reads in this thread
        has_failed = prefetch.future.exception() is not None  # waits for the thread
        if has_failed:
            return self._open_row_group(group, names)
        return prefetch.reader
