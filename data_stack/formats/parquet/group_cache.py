"""Keeps row groups in memory while they are used, and reads in the background those that come next."""

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

#: The first limit; it grows when evicted row groups are read again.
_FIRST_BYTES = 32 << 20
#: Row groups whose rows were all taken stay for the next epoch below this total. Beyond it, memory for the next row groups would
#: leave the processor's cache.
_MOST_FINISHED_BYTES = 16 << 20
#: Evicted row groups with untaken rows that are remembered at least; otherwise as many as are cached.
_FEWEST_REMEMBERED = 8
#: The limit grows where more of the last reads than that were of row groups evicted shortly before. Single ones occur at the
#: beginning of an epoch, when a worker process took only its share in the one before.
_LAST_READS = 16
_MOST_RETURNS = 3
#: Among so many of the oldest, one whose rows were all taken is evicted first.
_CANDIDATES = 64

Columns = dict[str, GroupColumn]
Reading = Callable[[int, Sequence[str]], GroupReading]


class GroupCache:
    """An LRU cache of columns of row groups. Threads may share it: one of them reads a column, the others wait.

    The limit adapts to the access pattern: streaming needs a row group or two, a shuffle as many as its window, random access
    all that fit. It begins low, and grows when row groups are read again that were evicted with samples still untaken.

    Args:
        reading: begins to read columns of a row group.
        max_bytes: limit of the cache; one row group is kept in any case.
        n_samples: how many samples a row group has.
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
        self._inherited = self._groups, self._ahead  # freed here, Arrow might wait for a lock that a thread of the parent held
        self._reset()

    @property
    def n_bytes(self) -> int:
        """Bytes in the cache."""
        return self._n_bytes

    def soonest(self, groups: Iterable[int], names: Sequence[str]) -> int:
        """Which of some row groups to read next: one that is cached or prefetched, else one that no other thread is reading, so
        that several threads read different ones.

        Args:
            groups: at least one.
            names: of the columns.
        """
        with self._lock:
            return min(groups, key=lambda group: self._patience(group, names))

    def has(self, group: int, names: Sequence[str]) -> bool:
        """Whether columns of a row group are cached or prefetched."""
        return self._keeps(group, names) or self._ahead.is_ready(group)

    def is_at_hand(self, group: int, names: Sequence[str]) -> bool:
        """Whether a row group is cached, prefetched or being read."""
        return self._patience(group, names) != 2

    def _keeps(self, group: int, names: Sequence[str]) -> bool:
        found = self._groups.get(group)
        return found is not None and all(map(found.__contains__, names))

    def _patience(self, group: int, names: Sequence[str]) -> int:
        if self._keeps(group, names):
            return 0
        if self._ahead.is_ready(group):
            return 1
        return 3 if group in self._being_read or self._ahead.has(group) else 2

    def expect(self, groups: Sequence[int], names: Sequence[str]) -> None:
        """Prefetch row groups, see :class:`ReadAhead`; return at once.

        Args:
            groups: in the order of their use.
            names: of the columns.
        """
        with self._lock:
            missing = [group for group in groups if not self._keeps(group, names) and group not in self._being_read]
        self._ahead.expect(missing, names, self._last_bytes, self._max_bytes)

    def columns(self, group: int, names: Sequence[str], n_taken: int) -> Columns:
        """Columns of a row group, at least those of ``names``.

        Args:
            group: its number.
            names: of the columns.
            n_taken: how many of its samples are taken now.

        Raises:
            DatasetFileCorruptError, StorageError: as the reading function.
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
                    if missing:  # another thread may have been quicker
                        read = (self._ahead.take(group, missing) or self._reading(group, missing)).columns()
                    with self._lock:
                        return self._keep(group, {**found, **read}, n_taken)
            finally:  # also for an interrupt: threads that wait then read by themselves
                with self._lock:
                    if self._being_read.get(group) is mine:
                        del self._being_read[group]
                mine.set()
            event.wait()

    def _make_room(self) -> None:
        """Evict row groups whose rows were all taken, if the next one would exceed the limit."""
        while self._n_bytes + self._last_bytes > min(self._limit, _MOST_FINISHED_BYTES):
            oldest = next(filter(self._is_finished, itertools.islice(self._groups, _CANDIDATES)), None)
            if oldest is None:
                return
            self._drop(oldest)

    def _keep(self, group: int, columns: Columns, n_taken: int) -> Columns:
        """Cache columns, and evict other row groups for them."""
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
            if gone and sum(self._returns) > _MOST_RETURNS:  # it should not have gone
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

#: This part of a row group is read by itself, if no other rows of it are wanted.
_PART = 32
#: So many are kept, the most recently used ones: all of them take less than one row group.
_MOST_KEPT = 32
#: A page has as many bytes, as a rule.
_PAGE_BYTES = 1 << 20


class FirstRows:
    """The first rows of row groups, for sequences that begin in the row group before: a page or two are read instead of the
    whole row group. Threads may share it.

    Args:
        groups: the row groups.
    """

    def __init__(self, groups: RowGroups) -> None:
        self._groups = groups
        # it needs no lock that a fork could find taken; two threads may read the same at once
        self._kept = functools.lru_cache(maxsize=_MOST_KEPT)(self._read)

    def count(self, group: int) -> int:
        """How many first rows of a row group are read by themselves; 0 for a small one."""
        return int(self._groups.footers.n_rows[group]) // _PART

    def columns(self, group: int, names: Sequence[str]) -> dict[str, GroupColumn]:
        """Columns of the first rows of a row group; there may be more of them than :meth:`count` says.

        Raises:
            DatasetFileCorruptError, ResourceChangedError, StorageError: see :meth:`RowGroups.read`.
        """
        return self._kept(group, tuple(names))

    def _read(self, group: int, names: tuple[str, ...]) -> dict[str, GroupColumn]:
        return _ReadingFirstRows(self._groups, group, names, self.count(group)).columns()


class _ReadingFirstRows(GroupReading):
    """As :class:`GroupReading`, of the first rows: pages behind these are not read.

    Args:
        n_rows: so many.
    """

    def __init__(self, groups: RowGroups, group: int, names: Sequence[str], n_rows: int) -> None:
        super().__init__(groups, group, names)
        self._n_rows = n_rows

    def _options(self) -> Mapping[str, Any]:
        # also of a store: page by page, until there are enough rows
        return {"pre_buffer": False, "buffer_size": _PAGE_BYTES}

    def _table_of(self, file: pq.ParquetFile, index: int, numbers: list[int]) -> pa.Table:
        batches: list[Any] = []
        for batch in file.reader.iter_batches(self._n_rows, [index], column_indices=numbers, use_threads=False):
            batches.append(batch)
            if sum(map(len, batches)) >= self._n_rows:
                break
        if not batches:
            raise pa.ArrowInvalid("there are no rows")
        return pa.Table.from_batches(batches)


#: Prefetched bytes at most; one row group is prefetched in any case.
_MOST_BYTES = 16 << 20
#: Concurrent reads of a store, which mostly wait.
_MOST_REQUESTS = 16
#: A prefetched row group is dropped after so many further calls: its iteration was broken off.
_PATIENCE = 16

#: Reads row groups of stores. Not with all else that waits: a thread in the midst of Arrow's code may crash Python at its end, so
#: it is given a moment; a store may never answer.
_of_stores = Executor("data_stack-parquet", lambda: _MOST_REQUESTS, grace_seconds=5.0)


class ReadAhead:
    """Row groups that are prefetched. Threads may share it.

    Arrow reads and decodes without the GIL; the thread that takes a row group makes the values. Errors are dropped: the thread
    that needs the row group reads it again and gets the error.

    Args:
        reading: begins to read columns of a row group.
    """

    def __init__(self, reading: Callable[[int, Sequence[str]], GroupReading]) -> None:
        self._reading = reading
        self._lock = threading.Lock()
        self._expected: dict[int, _Expected] = {}
        self._n_calls = 0

    def expect(self, groups: Sequence[int], names: Sequence[str], group_bytes: int, max_bytes: int) -> None:
        """Begin to read row groups, as far as there is room for them, and drop those that have waited too long.

        Args:
            groups: in the order of their use.
            names: of the columns.
            group_bytes: memory of the last row group that was read; the footer may say more.
            max_bytes: for all of them; one row group is read in any case.
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
        finally:  # also for an interrupt: no thread may wait for a row group that is not read
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
            The row group, still unread if no thread has begun; None if these columns were not prefetched, or could not be read.
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
        n_bytes: memory that it will take, estimated.
        since: when it was expected, in calls.
        future: of the thread that reads it; None without such a thread.
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
