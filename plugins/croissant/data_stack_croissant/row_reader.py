"""Reads the rows of record sets."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from data_stack.exception import DatasetFileCorruptError
from data_stack_croissant.file_opener import FileOpener
from data_stack_croissant.file_rows import file_properties, iterate_rows
from data_stack_croissant.record_column import FILE_PREFIX, RecordColumn
from data_stack_croissant.record_set import Join, RecordSet
from data_stack_croissant.record_sets import RecordSets

#: Number of rows that are converted together.
_BATCH_ROWS: Final = 4096
#: Number of rows that are converted together if their values are whole files, or that are joined
#: together.
_BATCH_FILES: Final = 128

#: Limits of the rows that a join makes: in all, and for each row that it reads. The larger counts.
_MAX_JOINED: Final = 1_000_000
_MAX_JOINED_PER_ROW: Final = 1000

_Values: TypeAlias = dict[tuple[str, str], Any]
"""The values of a row, each by the identifier of its table and its key in that table."""


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of a record set before it is converted.

    Attributes:
        path: path of the file of the row, for messages.
        values: the values of the row.
    """

    path: str
    values: _Values


class RowReader:
    """Reads the rows of record sets.

    Args:
        record_sets: the record sets of the document.
        raw: the retrieved resources by their names.
        places: the resources of each FileObject and FileSet, see
            :class:`~data_stack_croissant.sources.Sources`.
    """

    _record_sets: RecordSets
    _files: FileOpener

    def __init__(
        self,
        record_sets: RecordSets,
        raw: Mapping[str, Any],
        places: Mapping[str, Sequence[tuple[str, str]]],
    ) -> None:
        self._record_sets = record_sets
        self._files = FileOpener(record_sets.files, raw, places)

    def read(self, record_set: RecordSet) -> Iterator[list[tuple[Any, ...]]]:
        """Yield the rows of a record set in batches.

        Each row has the values of its columns in their order.

        Raises:
            DatasetFileCorruptError: a file differs from its description in the document.
            ArchiveError: an archive is damaged, or unpacks to names outside of it.
        """
        rows: Iterator[_Row] = iter(())
        if record_set.table is not None:
            rows = self._rows_of_table(record_set, record_set.table)
        for join in record_set.joins:
            rows = self._join(record_set, join, rows)

        has_files = any(column.reads_files for column in record_set.columns)
        batch_size = _BATCH_FILES if has_files else _BATCH_ROWS
        n_records = 0
        for batch in _batches(rows, batch_size):
            columns = [_convert(column, batch, n_records) for column in record_set.columns]
            n_records += len(batch)
            yield list(zip(*columns, strict=True))

    # ------------------------------------------------------------------ joins

    def _join(self, record_set: RecordSet, join: Join, rows: Iterator[_Row]) -> Iterator[_Row]:
        """Yield rows with the values of the rows of another table that have the same key.

        A row without a partner gets None for these values. The other table is held in memory.

        Raises:
            DatasetFileCorruptError: the keys repeat so often that there are too many rows.
        """
        table = str(join.right.table)
        columns_of_table = record_set.columns_of(table)
        missing_values: _Values = {(table, column.key): None for column in columns_of_table}
        partners_by_key = self._read_partners(record_set, join)
        n_read = sum(len(partners) for partners in partners_by_key.values())
        n_joined = 0
        for batch in _batches(rows, _BATCH_FILES):
            n_read += len(batch)
            for key, row in zip(_convert(join.left, batch), batch, strict=True):
                partners = partners_by_key.get(key, [missing_values])
                n_joined += len(partners)
                if n_joined > max(_MAX_JOINED, _MAX_JOINED_PER_ROW * n_read):
                    raise DatasetFileCorruptError(
                        f"the join of {table!r} by {join.left.where} has more than "
                        f"{n_joined - 1:,} rows, made of {n_read:,}, as its values repeat too "
                        f"often; ask its publisher"
                    )
                for partner in partners:
                    yield _Row(row.path, {**row.values, **partner})

    def _read_partners(self, record_set: RecordSet, join: Join) -> dict[Any, list[_Values]]:
        """Return the rows of the right table of a join by their keys, without missing keys."""
        partners_by_key: dict[Any, list[_Values]] = {}
        rows = self._rows_of_table(record_set, str(join.right.table))
        for batch in _batches(rows, _BATCH_FILES):
            keys = _convert(join.right, batch)
            for key, row in zip(keys, batch, strict=True):
                if key is not None:
                    partners_by_key.setdefault(key, []).append(row.values)
        return partners_by_key

    # ------------------------------------------------------------------ tables

    def _rows_of_table(self, record_set: RecordSet, table: str) -> Iterator[_Row]:
        """Yield the rows of a table with the values that a record set reads.

        Raises:
            DatasetFileCorruptError: a row lacks one of these values.
        """
        columns = record_set.columns_of(table)
        keys = {column.key for column in columns}  # several columns may read one value
        for path, values in self._values_of_table(record_set, table, columns):
            if not keys <= values.keys():
                raise _missing_value_error(path, values, columns)
            yield _Row(path, {(table, key): values[key] for key in keys})

    def _values_of_table(
        self, record_set: RecordSet, table: str, columns: Sequence[RecordColumn]
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the path of the file of each row of a table, and the values of the row by key.

        The table is the record set itself, another record set, or files.
        """
        if table == record_set.identifier:
            for row in record_set.rows:
                yield "the document", row
        elif table in self._record_sets.all and table not in self._record_sets.files:
            yield from self._values_of_record_set(self._record_sets.all[table])
        else:
            yield from self._values_of_files(self._record_sets.files[table], columns)

    def _values_of_record_set(
        self, record_set: RecordSet
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield where each row of a record set is from, and its values by field."""
        identifiers = [column.identifier for column in record_set.columns]
        for batch in self.read(record_set):
            for values in batch:
                by_identifier = dict(zip(identifiers, values, strict=True))
                yield f"record set {record_set.identifier}", by_identifier

    def _values_of_files(
        self, node: Any, columns: Sequence[RecordColumn]
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the path of the file of each row of a FileObject or FileSet, and its values."""
        for path, stream in self._files.open_files(node):
            properties = file_properties(path)
            for number, values in enumerate(iterate_rows(node, columns, path, stream)):
                yield path, {**properties, f"{FILE_PREFIX}lineNumbers": number, **values}


def _missing_value_error(
    path: str, values: Mapping[str, Any], columns: Sequence[RecordColumn]
) -> DatasetFileCorruptError:
    """Return the error for a row that lacks the value of a column."""
    column = next(column for column in columns if column.key not in values)
    key = column.key.removeprefix(FILE_PREFIX)
    return DatasetFileCorruptError(f"{path!r} has no {key!r:.80}, but {column.where} needs it")


def _batches(rows: Iterator[_Row], n_rows: int) -> Iterator[list[_Row]]:
    """Yield rows in lists of at most ``n_rows``."""
    while True:
        batch = list(itertools.islice(rows, n_rows))
        if not batch:
            return
        yield batch


def _convert(
    column: RecordColumn, batch: Sequence[_Row], first_record: int | None = None
) -> list[Any]:
    """Return the values of a column in some rows, see :meth:`RecordColumn.convert`."""
    if column.table is None:
        values = [column.value] * len(batch)
    else:
        values = [row.values[column.table, column.key] for row in batch]
    paths = [row.path for row in batch]
    return column.convert(values, paths, first_record)
