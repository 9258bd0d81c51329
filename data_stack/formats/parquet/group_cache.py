"""Caches row groups in memory, and prefetches the next ones in the background."""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from data_stack.formats.parquet.columns import GroupColumn
from data_stack.formats.parquet.row_groups import GroupReading, RowGroups
from data_stack.util.executor import Executor, computing
from data_stack.util.forks import call_in_forks

#: The initial limit; it grows when evicted row groups are read again.
_FIRST_BYTES = 32 << 20
#: Row groups whose rows were all taken stay for the next epoch up to this total. With more, memory for the next row groups leaves
#: the processor's cache.
_MAX_FINISHED_BYTES = 16 << 20
#: Minimum number of evicted row groups with untaken rows to remember; else as many as are cached.
_FEWEST_REMEMBERED = 8
#: The limit grows if more than _MAX_RETURNS of the last _LAST_READS reads were of recently evicted row groups. A few occur at
#: the beginning of an epoch, because a worker process took only its share of the previous one.
_LAST_READS = 16
_MAX_RETURNS = 3
#: Among this many of the oldest row groups, one whose rows were all taken is evicted first.
_CANDIDATES = 64

Columns = dict[str, GroupColumn]
Reading = Callable[[int, Sequence[str]], GroupReading]


class GroupCache:
    """An LRU cache of columns of row groups. Threads may share it: one thread reads a column, the others wait.

    The limit adapts to the access pattern: streaming needs one or two row groups, a shuffle as many as its window, random access
    all that fit. The limit begins low. It grows when row groups are read again that were evicted with untaken samples.

    Args:
        reading: starts to read columns of a row group.
        max_bytes: limit of the cache; it always keeps one row group.
        n_samples: returns the number of samples of a row group.
    """

    def __init__(self, reading: Reading, max_bytes: int, n_samples: Callable[[int], int]) -> None:
        self._reading, self._max_bytes, self._n_samples = reading, max_bytes, n_samples
        self._reset()
        call_in_forks(self._begin_in_fork)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._groups: OrderedDict[int, Columns] = OrderedDict()
        self._n_taken: dict[int, int] = {}
        self._n_bytes = self._last_bytes = 0
        self._limit = min(_FIRST_BYTES, self._max_bytes)
        self._gone: OrderedDict[int, int] = OrderedDict()
        self._returns: deque[bool] = deque(maxlen=_LAST_READS)
        self._being_read: dict[int, threading.Event] = {}
        self._ahead = ReadAhead(self._reading)

    def _begin_in_fork(self) -> None:
        self._inherited = self._groups, self._ahead  # not freed: Arrow might wait for a lock that a thread of the parent held
        self._reset()

    @property
    def n_bytes(self) -> int:
        """Bytes in the cache."""
        return self._n_bytes

    def next_to_read(self, groups: Iterable[int], names: Sequence[str]) -> int:
        """Choose the row group to read next: one that is cached or prefetched, else one that no other thread is reading, so that
        several threads read different ones.

        Args:
            groups: at least one row group.
            names: names of the columns.
        """
        with self._lock:
            return min(groups, key=lambda group: self._read_priority(group, names))

    def has(self, group: int, names: Sequence[str]) -> bool:
        """Whether columns of a row group are cached or prefetched."""
        return self._keeps(group, names) or self._ahead.is_ready(group)

    def is_at_hand(self, group: int, names: Sequence[str]) -> bool:
        """Whether a row group is cached, prefetched or being read."""
        return self._read_priority(group, names) != 2

    def _keeps(self, group: int, names: Sequence[str]) -> bool:
        found = self._groups.get(group)
        return found is not None and all(map(found.__contains__, names))

    def _read_priority(self, group: int, names: Sequence[str]) -> int:
        if self._keeps(group, names):
            return 0
        if self._ahead.is_ready(group):
            return 1
        return 3 if group in self._being_read or self._ahead.has(group) else 2

    def expect(self, groups: Sequence[int], names: Sequence[str]) -> None:
        """Prefetch row groups, see :class:`ReadAhead`; return at once.

        Args:
            groups: row groups in the order of their use.
            names: names of the columns.
        """
        with self._lock:
            missing = [group for group in groups if not self._keeps(group, names) and group not in self._being_read]
        self._ahead.expect(missing, names, self._last_bytes, self._max_bytes)

    def columns(self, group: int, names: Sequence[str], n_taken: int) -> Columns:
        """Return columns of a row group, at least those of ``names``.

        Args:
            group: number of the row group.
            names: names of the columns.
            n_taken: number of its samples that the caller takes.

        Raises:
            DatasetFileCorruptError, StorageError: the row group cannot be read.
        """
        while True:
            with self._lock:
                found = self._groups.get(group)
                if found is not None and all(map(found.__contains__, names)):
                    self._groups.move_to_end(group)
                    self._n_taken[group] += n_taken
                    return found
            mine = threading.Event()
            try:
                with self._lock:
                    event = self._being_read.setdefault(group, mine)
                    found = self._groups.get(group, {})
                    if event is mine and not found:
                        self._make_room()
                if event is mine:
                    missing = [name for name in names if name not in found]
                    read: Columns = {}
                    if missing:  # another thread may have been faster
                        read = (self._ahead.take(group, missing) or self._reading(group, missing)).columns()
                    with self._lock:
                        return self._keep(group, {**found, **read}, n_taken)
            finally:  # also after an interrupt: waiting threads then read by themselves
                with self._lock:
                    if self._being_read.get(group) is mine:
                        del self._being_read[group]
                mine.set()
            event.wait()

    def _make_room(self) -> None:
        """Evict row groups whose rows were all taken, if the next row group would exceed the limit."""
        while self._n_bytes + self._last_bytes > min(self._limit, _MAX_FINISHED_BYTES):
            oldest = next(filter(self._is_finished, itertools.islice(self._groups, _CANDIDATES)), None)
            if oldest is None:
                return
            self._drop(oldest)

    def _keep(self, group: int, columns: Columns, n_taken: int) -> Columns:
        """Cache columns, and evict other row groups to make room."""
        kept = self._groups.get(group, {})
        new = {name: column for name, column in columns.items() if name not in kept}
        columns = self._groups[group] = {**kept, **new}
        self._groups.move_to_end(group)
        self._n_taken[group] = self._n_taken.get(group, 0) + n_taken
        n_bytes = self._last_bytes = _n_bytes(new)
        self._n_bytes += n_bytes
        if new:
            gone = self._gone.pop(group, 0)
            self._returns.append(gone > 0)
            if gone and sum(self._returns) > _MAX_RETURNS:  # it was evicted too early
                self._limit = min(self._max_bytes, self._limit + max(gone, n_bytes))
        while self._n_bytes > self._limit and len(self._groups) > 1:
            oldest = itertools.islice(self._groups, min(_CANDIDATES, len(self._groups) - 1))
            self._drop(next(filter(self._is_finished, oldest), next(iter(self._groups))))
        return columns

    def _is_finished(self, group: int) -> bool:
        """Whether all samples were taken, once or several times."""
        return self._n_taken[group] % max(1, self._n_samples(group)) == 0

    def _drop(self, group: int) -> None:
        is_finished = self._is_finished(group)
        n_bytes = _n_bytes(self._groups.pop(group))
        del self._n_taken[group]
        self._n_bytes -= n_bytes
        if not is_finished:
            self._gone[group] = n_bytes
            if len(self._gone) > max(_FEWEST_REMEMBERED, len(self._groups)):
                self._gone.popitem(last=False)


def _n_bytes(columns: Columns) -> int:
    return sum(column.n_bytes for column in columns.values())


# ---------------------------------------------------------------------- first rows

#: One in _PART rows of a row group is read alone, if no other rows of it are needed.
_PART = 32
#: Number of parts to keep: all of them take less memory than one row group.
_MAX_KEPT = 32
#: The usual size of a page.
_PAGE_BYTES = 1 << 20


class FirstRows:
    """The first rows of row groups, for sequences that begin in the previous row group: it reads one or two pages instead of the
    whole row group. Threads may share it.

    Args:
        groups: the row groups.
    """

    def __init__(self, groups: RowGroups) -> None:
        self._groups = groups
        # lru_cache has no lock that a fork could copy while it is held; two threads may read the same part
        self._kept = functools.lru_cache(maxsize=_MAX_KEPT)(self._read)

    def count(self, group: int) -> int:
        """How many first rows of a row group are read alone; 0 for a small row group."""
        return int(self._groups.footers.n_rows[group]) // _PART

    def columns(self, group: int, names: Sequence[str]) -> dict[str, GroupColumn]:
        """Columns of the first rows of a row group, :meth:`count` of them or more.

        Raises:
            DatasetFileCorruptError, ResourceChangedError, StorageError: see :meth:`RowGroups.read`.
        """
        return self._kept(group, tuple(names))

    def _read(self, group: int, names: tuple[str, ...]) -> dict[str, GroupColumn]:
        return _ReadingFirstRows(self._groups, group, names, self.count(group)).columns()


class _ReadingFirstRows(GroupReading):
    """Reads only the first rows, and no pages behind them.

    Args:
        n_rows: how many rows to read.
    """

    def __init__(self, groups: RowGroups, group: int, names: Sequence[str], n_rows: int) -> None:
        super().__init__(groups, group, names)
        self._n_rows = n_rows

    def _options(self) -> Mapping[str, Any]:
        # page by page until it has enough rows, also from a store
        return {"pre_buffer": False, "buffer_size": _PAGE_BYTES}

    def _table_of(self, file: pq.ParquetFile, index: int, numbers: list[int]) -> pa.Table:
        batches: list[Any] = []
        for batch in file.reader.iter_batches(self._n_rows, [index], column_indices=numbers, use_threads=False):
            batches.append(batch)
            if sum(map(len, batches)) >= self._n_rows:
                break
        if not batches:
            raise pa.ArrowInvalid("the row group has no rows")
        return pa.Table.from_batches(batches)


#: Limit of prefetched bytes; one row group is always prefetched.
_MAX_BYTES = 16 << 20
#: Concurrent reads of a store; they mostly wait.
_MAX_REQUESTS = 16
#: A prefetched row group is dropped after this many calls: its iteration was abandoned.
_PATIENCE = 16

#: Reads row groups of stores. It has its own threads: a thread inside Arrow's code may crash Python at exit, so Python waits a
#: moment for these; a store may never answer.
_of_stores = Executor("data_stack-parquet", lambda: _MAX_REQUESTS, grace_seconds=5.0)


class ReadAhead:
    """Prefetches row groups. Threads may share it.

    Arrow reads and decodes without the GIL; the thread that takes a row group makes the values. Errors are dropped: the thread
    that needs the row group reads it again and raises the error.

    Args:
        reading: starts to read columns of a row group.
    """

    def __init__(self, reading: Callable[[int, Sequence[str]], GroupReading]) -> None:
        self._reading = reading
        self._lock = threading.Lock()
        self._expected: dict[int, _Expected] = {}
        self._n_calls = 0

    def expect(self, groups: Sequence[int], names: Sequence[str], group_bytes: int, max_bytes: int) -> None:
        """Start to read row groups while there is room, and drop those that have waited too long.

        Args:
            groups: row groups in the order of their use.
            names: names of the columns.
            group_bytes: memory of the last row group that was read; the footer may state more.
            max_bytes: limit for all prefetched row groups; one row group is always read.
        """
        begun: dict[int, _Expected] = {}
        try:
            with self._lock:
                self._n_calls += 1
                for group, each in list(self._expected.items()):
                    if each.is_over.is_set() and each.since + _PATIENCE < self._n_calls and group not in groups:
                        del self._expected[group]
                room = min(_MAX_BYTES, max_bytes) - sum(each.n_bytes for each in self._expected.values())
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
                each.reading.by_threads &= len(begun) == 1  # several row groups keep the processors busy without more threads
                with contextlib.suppress(Exception):  # see the class; or Python exits, or cannot start a thread
                    each.reading.open_local()
                    each.future = (computing if each.reading.is_local else _of_stores).submit(each.read)
        finally:  # also after an interrupt: no thread may wait for a row group that is not read
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
        """Take a prefetched row group; wait for one that is being read.

        Returns:
            The row group, unread if no thread has started; None if these columns were not prefetched, or could not be read.
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
        reading: reads it.
        n_bytes: estimated memory.
        since: number of the call that requested it.
        future: of the thread that reads it; None without a thread.
        is_over: set after reading, also after an error.
    """

    def __init__(self, reading: GroupReading, least_bytes: int, since: int) -> None:
        self.reading, self.since = reading, since
        self.n_bytes = max(least_bytes, reading.stored_bytes if reading.has_footer else 0)
        self.future: Future[None] | None = None
        self.is_over = threading.Event()

    def read(self) -> None:
        """Read it; drop errors."""
        try:
            with contextlib.suppress(Exception):  # see ReadAhead
                self.reading.decode()
        finally:
            self.is_over.set()
