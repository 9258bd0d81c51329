"""The first rows of row groups of which no others are wanted."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from data_stack.formats.parquet.columns import GroupColumn
from data_stack.formats.parquet.row_groups import GroupReading, RowGroups

__all__ = ["FirstRows"]

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
