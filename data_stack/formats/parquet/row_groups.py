"""Reads columns of row groups."""

from __future__ import annotations

import functools
import operator
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from data_stack.exception import DatasetFileCorruptError, RequestLimitError
from data_stack.formats.parquet.codecs import ListCodec, ScalarCodec
from data_stack.formats.parquet.columns import ArrayColumn, CellError, GroupColumn
from data_stack.formats.parquet.files import partition_names
from data_stack.formats.parquet.footer_facts import FooterFacts, bytes_claimed_by_pages
from data_stack.formats.parquet.footers import Footers, reading_parquet
from data_stack.formats.parquet.known_values import column_guarantee, partition_array, partition_guarantee, partition_value
from data_stack.formats.parquet.schema import Field, Schema
from data_stack.util.executor import n_processors, n_threads
from data_stack.util.request_limit import check_request, limit_bytes

Rows = npt.NDArray[np.int32]

_LOCAL_OPTIONS: Final[Mapping[str, Any]] = {"pre_buffer": False, "buffer_size": 1 << 18}
"""Options of pyarrow's reader for a local file that one thread decodes: it reads a small part of a column at a time, into memory
that it reuses and that stays in the processor's cache. The system reads ahead meanwhile."""

#: For a store, or several decoding threads, few large requests for all columns are better.
_OTHER_OPTIONS: Final[Mapping[str, Any]] = {"pre_buffer": True}
_FLOATS: Final = (np.float16, np.float32, np.float64)
#: Below this size, one thread decodes all columns as fast as several.
_FEW_BYTES = 2 << 20
#: Pages may claim this many bytes without a check; some writers count wrong.
_HARMLESS_PAGE_BYTES = 64 << 20
#: Smaller row groups leave little memory behind.
_LARGE_BYTES = 8 << 20


class RowGroups:
    """The row groups of a dataset. Threads may share it. It pickles without the footers.

    Args:
        footers: footers of the files.
        schema: of all fields, partition columns included.

    Raises:
        DatasetFileCorruptError: a file lacks a required field, or the name of a folder is not a value of its field.
    """

    def __init__(self, footers: Footers, schema: Schema) -> None:
        self.footers, self.schema = footers, schema
        partitions = footers.files.partitions
        self._partitioned = {name for name in partition_names(partitions) if name in schema}
        #: The values of the partition columns of each file.
        self._partition_values = [
            {name: partition_value(schema[name], values.get(name), footers.files, number) for name in self._partitioned}
            for number, values in enumerate(partitions)
        ]
        absent: dict[int, frozenset[str]] = {}  # most files have the same columns
        self._absent = []
        for file in range(len(footers.files.paths)):
            kind = id(footers.columns(file))
            if kind not in absent:
                absent[kind] = self._absent_of(file)
            self._absent.append(absent[kind])
        files_with_rows = np.unique(footers.file_of[footers.n_rows > 0]).tolist()
        kinds = {id(columns): columns for columns in map(footers.columns, files_with_rows)}.values()
        counts = {field.name: {columns.get(field.name) for columns in kinds} for field in schema}
        #: The known length of all lists of a field; None if they differ.
        self._list_lengths = {field.name: _only(counts[field.name]) for field in schema if isinstance(field.codec, ListCodec)}
        self._with_nulls = {field.name: self._has_nulls(field, None in counts[field.name]) for field in schema}
        #: Row groups and columns whose page headers agree with the footer.
        self.checked_pages: set[tuple[int, int]] = set()

    def __len__(self) -> int:
        return len(self.footers)

    def read(self, group: int, names: Sequence[str]) -> dict[str, GroupColumn]:
        """Read columns of a row group.

        Raises:
            DatasetFileCorruptError: the file is damaged; the message names file, row group, row and field.
            StorageError: the file cannot be read.
        """
        return self.reading(group, names).columns()

    def reading(self, group: int, names: Sequence[str], rows: Rows | None = None) -> GroupReading:
        """The same, in steps; keeps only ``rows``, if given."""
        return GroupReading(self, group, names, rows)

    def damage_error(
        self, group: int, name: str, error: CellError, rows: Rows | None = None
    ) -> DatasetFileCorruptError | RequestLimitError:
        """The error for a damaged cell; it names file, row group, row and field.

        Args:
            group: the row group.
            name: name of the column.
            error: has the position in the column and the reason.
            rows: the rows of the column, ascending; None for all.
        """
        row = error.row if rows is None else int(rows[error.row])
        place = f"{self.footers.name_of(group)}, row {row}, field {name!r}"
        if isinstance(error.__cause__, RequestLimitError):
            return error.__cause__.at(place)
        return DatasetFileCorruptError(f"{place}: {error.why}")

    def are_gathered(self, names: Sequence[str]) -> bool:
        """Whether these columns have one dtype and shape in all row groups, and rows can be copied without decoding.

        Lists count as equally long where the footers allow it, until a list of another length is read.
        """
        fields, lengths = [self.schema[name] for name in names], self._list_lengths
        return all(
            field.cells.is_gathered(field, list_length=lengths.get(field.name), has_nulls=self._with_nulls[field.name])
            for field in fields
        )

    def estimate_bytes(self, names: Sequence[str]) -> float:
        """Estimate the bytes of these columns in all row groups, before compression, from the first file."""
        footers = self.footers
        n_rows_of_first = int(footers.n_rows[footers.file_of == 0].sum())
        if not n_rows_of_first:
            return 0.0
        facts = footers.facts(0)
        leaves = [leaf for name in names for leaf in facts.columns.get(name, [])]
        return float(facts.n_raw_bytes[:, leaves].sum()) / n_rows_of_first * float(footers.n_rows.sum())

    def empty(self, name: str) -> npt.NDArray[Any]:
        """A column without rows."""
        is_of_objects = self._with_nulls[name] and not _gives_nan(self.schema[name])
        return np.empty(0, object) if is_of_objects else empty_column(self.schema[name])

    def guarantee(self, group: int, types: pa.Schema, *, with_floats: bool) -> pc.Expression:
        """An expression that is true of all rows of a row group, from its partitions and footer.

        Args:
            group: the row group.
            types: the columns, with the types by which an expression sees them.
            with_floats: use bounds of floats, although NaN lies outside of them.
        """
        footers, found = self.footers, [pc.scalar(True)]
        file, n_rows, index = int(footers.file_of[group]), int(footers.n_rows[group]), int(footers.index_of[group])
        facts, stored = footers.facts(file), footers.of(file).row_group(index)
        for field in map(self.schema.__getitem__, types.names):
            leaves = facts.columns.get(field.name, [])
            if field.name in self._partitioned:
                found.append(partition_guarantee(field, self._partition_values[file][field.name], types))
            elif field.name in self._absent[file]:
                found.append(pc.field(field.name).is_null())
            elif len(leaves) == 1 and isinstance(field.codec, ScalarCodec) and (with_floats or field.dtype not in _FLOATS):
                n_nulls = int(facts.n_nulls[index, leaves[0]])
                kind, n_known = types.field(field.name), None if n_nulls < 0 else n_nulls
                found.append(column_guarantee(kind, stored.column(leaves[0]), n_rows, n_known))
        return functools.reduce(operator.and_, found)

    # ------------------------------------------------------------------ inside

    def list_stored(self, group: int, names: Sequence[str]) -> list[str]:
        """The columns that the file of a row group stores; the others are partition columns, or absent."""
        absent = self._absent[int(self.footers.file_of[group])]
        return [name for name in names if name not in self._partitioned and name not in absent]

    def make_column(self, group: int, name: str, n_rows: int) -> GroupColumn:
        """A column that the file does not store."""
        value, field = self._partition_values[int(self.footers.file_of[group])].get(name), self.schema[name]
        gives_nan = _gives_nan(field)
        value = np.nan if value is None and gives_nan else value
        return ArrayColumn(partition_array(field, value, n_rows, has_nulls=self._with_nulls[name] and not gives_nan))

    def decode_column(self, group: int, name: str, stored: pa.ChunkedArray, n_rows: int, rows: Rows | None = None) -> GroupColumn:
        """Make a column from stored cells.

        Args:
            group: the row group.
            name: name of the column.
            stored: the cells.
            n_rows: expected number of cells.
            rows: the rows of the cells, ascending; None for all, or the first ones.

        Raises:
            DatasetFileCorruptError: the cells do not match the schema or the footer.
        """
        footers, field = self.footers, self.schema[name]
        try:
            cells = _join(stored)
            if len(cells) != n_rows:
                raise ValueError(f"{len(cells)} values, but the footer states {n_rows} rows")
            column = field.cells.column(field, cells, has_nulls=self._with_nulls[name])
            shape = column.array.shape[1:] if isinstance(column, ArrayColumn) else None
            if name in self._list_lengths and shape != (self._list_lengths[name],):
                self._list_lengths[name] = None
        except CellError as error:
            raise self.damage_error(group, name, error, rows) from error
        except MemoryError:  # Arrow's, which is an ArrowException too
            raise
        except (ValueError, pa.ArrowException) as error:
            raise DatasetFileCorruptError(f"{footers.name_of(group)}, field {name!r}: {error!s:.300}") from error
        return column

    def _absent_of(self, file: int) -> frozenset[str]:
        """The fields that a file lacks."""
        leaves = self.footers.columns(file)
        absent = frozenset(
            field.name for field in self.schema if field.name not in self._partitioned and field.name not in leaves
        )
        for name in absent:
            if not self.schema[name].nullable:
                raise DatasetFileCorruptError(
                    f"{self.footers.files.name(file)} has no column {name!r}, unlike other files or the schema; it has "
                    f"{', '.join(leaves)}. Exclude the column with columns=…, or make the field nullable with schema=…"
                )
        return absent

    def _has_nulls(self, field: Field, counted: bool) -> bool:
        """Whether a field may have nulls, by the names of folders and the counts in footers."""
        if field.name in self._partitioned:
            return any(values[field.name] is None for values in self._partition_values)
        return field.nullable and (counted or any(field.name in absent for absent in self._absent))


def _gives_nan(field: Field) -> bool:
    """Whether missing values are NaN."""
    return isinstance(field.codec, ScalarCodec) and field.codec.nulls == "nan"


def _only(counts: set[int | None]) -> int | None:
    """The average length of lists, if all files agree; single lists may differ."""
    (length,) = counts if len(counts) == 1 else (None,)
    return length if length is not None and length >= 0 else None


class GroupReading:
    """Reads columns of a row group in two steps: read and decode the pages, make values of the cells.

    Decoding is most of the work and releases the GIL, so another thread may do it.

    Args:
        groups: all row groups.
        group: number of the row group.
        names: names of the columns.
        rows: the rows to keep, ascending, at least one; None for all.

    Attributes:
        by_threads: let Arrow decode columns in its own threads, one per processor. These keep their memory, whereas a new thread
            must allocate its own first.
        file: the number of the file.
    """

    def __init__(self, groups: RowGroups, group: int, names: Sequence[str], rows: Rows | None = None) -> None:
        footers = self._footers = groups.footers
        self._groups, self._group, self.names, self._rows = groups, group, names, rows
        self.file, self._index = int(footers.file_of[group]), int(footers.index_of[group])
        self._n_rows = int(footers.n_rows[group]) if rows is None else len(rows)
        self._stored = groups.list_stored(group, names)
        self._table: pa.Table | None = None
        self.is_local = footers.files.folder.path is not None
        self.is_decoded = not self._stored
        self.by_threads = n_threads() == n_processors()

    def decode(self) -> None:
        """Read and decode the pages.

        Raises:
            DatasetFileCorruptError, ResourceChangedError, StorageError: see :meth:`RowGroups.read`.
        """
        if self.is_decoded:
            return
        footers, name = self._footers, self._footers.name_of(self._group)
        with reading_parquet(name), footers.files.open(self.file) as source:
            footers.check_unchanged(self.file, source)
            facts = footers.facts(self.file)
            numbers = self._numbers()
            n_bytes = facts.n_values[self._index, numbers] * facts.value_bytes[numbers]
            check_request(int(np.maximum(n_bytes, facts.n_raw_bytes[self._index, numbers]).sum()), name)
            if self.is_local:  # in a store, each check would be a request
                self._check_pages(source, facts, numbers)
            # the main thread keeps its memory as Arrow's threads do, and need not wait for them to start
            is_small = threading.current_thread() is threading.main_thread() and self.known_bytes() < _FEW_BYTES
            by_threads = self.by_threads and not is_small
            options = _LOCAL_OPTIONS if self.is_local and not by_threads else _OTHER_OPTIONS
            file = pq.ParquetFile(source, metadata=footers.of(self.file), page_checksum_verification=True, **options)
            table = file.reader.read_row_group(self._index, column_indices=numbers, use_threads=by_threads)
        self._table, self.is_decoded = table if self._rows is None else _rows_of(table, self._rows), True
        del file, table
        if self._table.nbytes >= _LARGE_BYTES:
            # each thread of Arrow keeps tens of MiB of freed memory; releasing it takes a millisecond or two
            pa.default_memory_pool().release_unused()

    def known_bytes(self) -> int:
        """The size of the columns before compression, from the footer; 0 if the footer was not read."""
        if not self._footers.is_read(self.file):
            return 0
        return int(self._footers.facts(self.file).n_raw_bytes[self._index, self._numbers()].sum())

    def _numbers(self) -> list[int]:
        """The numbers of the columns. Paths are ambiguous: "a.b" may be a column, or the field b of a struct a."""
        columns = self._footers.facts(self.file).columns
        return [number for name in self._stored for number in columns[name]]

    def _check_pages(self, source: Any, facts: FooterFacts, numbers: list[int]) -> None:
        """Compare the uncompressed sizes in page headers with the footer: pyarrow allocates them before it decompresses a page.

        Each column chunk is checked once.
        """
        name, index = self._footers.name_of(self._group), self._index
        for number in numbers:
            if (self._group, number) in self._groups.checked_pages:
                continue
            start, n_raw_bytes = int(facts.starts[index, number]), int(facts.n_raw_bytes[index, number])
            claimed, dictionary = bytes_claimed_by_pages(source, start, start + int(facts.n_bytes[index, number]))
            if claimed > max(_HARMLESS_PAGE_BYTES, 4 * n_raw_bytes):
                raise DatasetFileCorruptError(f"{name}, column {number} claims {claimed:,} bytes, the footer {n_raw_bytes:,}")
            if not facts.value_bytes[number] and dictionary * int(facts.n_values[index, number]) > limit_bytes():
                self._check_repeated(source, number)
            self._groups.checked_pages.add((self._group, number))

    def _check_repeated(self, source: Any, number: int) -> None:
        """Count the decoded bytes of dictionary-encoded texts, which may be long and repeat in many rows."""
        metadata = self._footers.of(self.file)
        name = metadata.schema.column(number).path
        file = pq.ParquetFile(source, metadata=metadata, read_dictionary=[name], pre_buffer=False)
        (column,) = file.reader.read_row_group(self._index, column_indices=[number], use_threads=False).columns
        n_bytes = 0
        for part in column.chunks:
            if isinstance(part, pa.DictionaryArray):
                lengths = pc.binary_length(part.dictionary).cast(pa.int64())
                n_bytes += pc.sum(lengths.take(part.indices.drop_null())).as_py() or 0
        check_request(n_bytes, f"{self._footers.name_of(self._group)}, column {name!r}")

    def columns(self) -> dict[str, GroupColumn]:
        """The columns.

        Raises:
            DatasetFileCorruptError, ResourceChangedError, StorageError: see :meth:`RowGroups.read`.
        """
        self.decode()
        groups, group = self._groups, self._group
        table, self._table = self._table, None
        return {
            name: groups.decode_column(group, name, table.column(name), self._n_rows, self._rows)
            if table is not None and name in self._stored
            else groups.make_column(group, name, self._n_rows)
            for name in self.names
        }


def empty_column(field: Field) -> npt.NDArray[Any]:
    """A column without values.

    Raises:
        DatasetFileCorruptError: the shape is too large for numpy.
    """
    sizes = [size for size in field.shape if size is not None]
    if not isinstance(field.dtype, np.dtype) or field.dtype.kind in "USO" or len(sizes) != len(field.shape):
        return np.empty(0, object)
    try:
        return np.empty((0, *sizes), field.dtype)
    except ValueError as error:
        raise DatasetFileCorruptError(f"field {field.name!r} cannot have the shape {field.shape}: {error}") from error


def _rows_of(table: pa.Table, rows: Rows) -> pa.Table:
    """Copy some rows."""
    # pa.array(rows) would import pandas if it is installed
    places = pa.Array.from_buffers(pa.int32(), len(rows), [None, pa.py_buffer(rows)])
    try:
        return table.take(places)
    except pa.ArrowNotImplementedError:  # pyarrow has no take() for columns of views
        return pa.concat_tables([table.slice(row, 1) for row in rows.tolist()]).combine_chunks()


def _join(column: pa.ChunkedArray) -> pa.Array:
    """Join the chunks of a column."""
    if column.num_chunks == 1:
        return column.chunk(0)
    if pa.types.is_binary(column.type) and column.nbytes > 1 << 31:
        column = column.cast(pa.large_binary())
    if pa.types.is_string(column.type) and column.nbytes > 1 << 31:
        column = column.cast(pa.large_string())
    return column.combine_chunks() if column.num_chunks else pa.array([], column.type)
