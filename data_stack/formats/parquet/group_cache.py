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

__all__ = ["FirstRows", "GroupCache", "ReadAhead"]

#: What is kept at first; more as soon as row groups are asked for again that had to go.
_FIRST_BYTES = 32 << 20
#: Row groups of which all rows were taken are kept, for the next epoch, as long as there is no more than this in all. With more,
#: the memory that row groups are read into would not stay in the processor's cache.
_MOST_FINISHED_BYTES = 16 << 20
#: Of row groups that had to go before all their rows were taken, so many are known, or as many as are kept.
_FEWEST_REMEMBERED = 8
#: What may be kept grows where at least so many of the last reads were of row groups that had just gone. Now and then one of them
#: is that at the beginning of an epoch too, of which a worker process took but its share in the one before.
_LAST_READS = 16
_MOST_RETURNS = 3
#: So many of the oldest are looked at for one of which all rows have been taken: that goes first.
_CANDIDATES = 64

Columns = dict[str, GroupColumn]
Reading = Callable[[int, Sequence[str]], GroupReading]


class GroupCache:
    """Columns of row groups, the most recently used ones. Threads may share it: each column is read by one of them.

    It keeps no more than is used: streaming through a dataset needs a row group or two, a shuffle as many as its window, samples
    at random all that may be kept. So the limit begins low, and grows while row groups are wanted again and again that just had
    to go before all their samples were taken. One of which all were taken is wanted in the next epoch: nothing is kept for that.

    Args:
        reading: begins to read columns of a row group.
        max_bytes: what may be kept at most; one row group is always kept.
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
        """What is kept now."""
        return self._n_bytes

    def soonest(self, groups: Iterable[int], names: Sequence[str]) -> int:
        """Which of some row groups to ask for next: one that is kept, before others push it out, or was read ahead; or one that
        no other thread is reading, so that several threads with the same wants read different ones.

        Args:
            groups: at least one.
            names: of the columns that will be asked for.
        """
        with self._lock:
            return min(groups, key=lambda group: self._patience(group, names))

    def has(self, group: int, names: Sequence[str]) -> bool:
        """Whether columns of a row group are kept, or were read ahead."""
        return self._keeps(group, names) or self._ahead.is_ready(group)

    def is_at_hand(self, group: int, names: Sequence[str]) -> bool:
        """Whether a row group is kept, was read ahead, or is being read."""
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
        """Read row groups in the background that will be asked for soon, see :class:`ReadAhead`; returns at once.

        Args:
            groups: the one that is wanted first comes first.
            names: of the columns.
        """
        with self._lock:
            missing = [group for group in groups if not self._keeps(group, names) and group not in self._being_read]
        self._ahead.expect(missing, names, self._last_bytes, self._max_bytes)

    def columns(self, group: int, names: Sequence[str], n_taken: int) -> Columns:
        """Columns of a row group; there may be more than were asked for.

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
            finally:  # also for an interrupt: others wait, and each tries by itself then
                with self._lock:
                    if self._being_read.get(group) is mine:
                        del self._being_read[group]
                mine.set()
            event.wait()

    def _make_room(self) -> None:
        """Let row groups of which all rows were taken go before the next one is read, if there is too much with it."""
        while self._n_bytes + self._last_bytes > min(self._limit, _MOST_FINISHED_BYTES):
            oldest = next(filter(self._is_finished, itertools.islice(self._groups, _CANDIDATES)), None)
            if oldest is None:
                return
            self._drop(oldest)

    def _keep(self, group: int, columns: Columns, n_taken: int) -> Columns:
        """Keep columns, which may have gone while another one of their row group was read; others go for them."""
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
        """Whether all samples have been taken, once or several times."""
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
    """The first rows of row groups, for those who want no others of them now, as the last rows of sequences are that begin in the
    row group before. A page or two are read and decoded for them instead of the row group. Threads may share it.

    Args:
        groups: the row groups.
    """

    def __init__(self, groups: RowGroups) -> None:
        self._groups = groups
        # it needs no lock that a fork could find taken; two threads may read the same at once
        self._kept = functools.lru_cache(maxsize=_MOST_KEPT)(self._read)

    def count(self, group: int) -> int:
        """How many rows of a row group are had here; of small ones none are."""
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
        # of a store, too, from one page to the next, as far as rows are asked for
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
