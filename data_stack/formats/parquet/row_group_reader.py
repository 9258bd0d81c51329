"""Reads columns of one row group."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.parquet.arrow_errors import reading_parquet
from data_stack.formats.parquet.codecs.cells import index_cells, null_mask, plain_cells
from data_stack.formats.parquet.columns import ArrayColumn, CellError, GroupColumn
from data_stack.formats.parquet.footers import Footers
from data_stack.formats.parquet.int96 import exact_times, read_int96
from data_stack.formats.parquet.row_group_layout import RowGroupLayout, Rows
from data_stack.formats.parquet.schema import Field
from data_stack.util.executor import n_processors, n_threads
from data_stack.util.request_limit import check_request
from data_stack.values.stacked_values import objects

#: Size of the buffer through which pyarrow reads a local file; 0 for no buffer, as pyarrow 18
#: cannot read all files with one.
_BUFFER_BYTES: Final = 0 if pa.__version__.startswith("18.") else 1 << 18
#: pyarrow's error at each file with lists of size 0.
_ERROR_OF_LISTS_WITHOUT_ELEMENTS: Final = "Expected all lists to be of size=0 "
#: Below this size, one thread decodes all columns as fast as several.
_FEW_BYTES: Final = 2 << 20
#: After decoding at least this much, freed memory is given back to the system. Smaller row groups
#: leave little freed memory.
_LARGE_BYTES: Final = 8 << 20
#: One array of Arrow holds less text than this, except in large types.
_MAX_BYTES_OF_ARRAY: Final = 1 << 31
#: The large type of each type whose arrays have that limit.
_LARGE_TYPES: Final = {pa.binary(): pa.large_binary(), pa.string(): pa.large_string()}


class RowGroupReader:
    """Reads columns of a row group in two steps: it decodes the pages, then makes values of cells.

    Decoding is most of the work and releases the GIL, so another thread may do it.

    Args:
        layout: the layout of all row groups.
        group: number of the row group.
        names: the names of the columns.
        rows: the rows to keep, ascending, at least one; None for all.

    Attributes:
        names: as given.
        file: number of the file.
        is_local: whether the file is one of this machine.
        by_threads: whether Arrow decodes columns in its own threads, one per processor. These keep
            their memory, whereas a new thread must allocate its own first.
        is_decoded: whether nothing is left for :meth:`decode`.
    """

    names: Sequence[str]
    file: int
    is_local: bool
    by_threads: bool
    is_decoded: bool

    #: The layout, as given.
    _layout: RowGroupLayout
    #: The footers of all files.
    _footers: Footers
    #: Number of the row group in the dataset.
    _group: int
    #: The rows to keep; None for all.
    _rows: Rows | None
    #: Number of the row group in its file.
    _index: int
    #: Number of rows to keep.
    _n_rows: int
    #: For each wanted mask the column whose nulls it marks.
    _masks: dict[str, str]
    #: Columns to read from the file, each once.
    _stored: list[str]
    #: The decoded columns, until values are made of them.
    _table: pa.Table | None

    def __init__(
        self,
        layout: RowGroupLayout,
        group: int,
        names: Sequence[str],
        rows: Rows | None = None,
    ) -> None:
        footers = layout.footers
        self._layout = layout
        self._footers = footers
        self._group = group
        self._rows = rows
        self.names = names
        self.file = int(footers.file_of[group])
        self._index = int(footers.index_of[group])
        if rows is None:
            self._n_rows = int(footers.n_rows[group])
        else:
            self._n_rows = len(rows)
        self._masks = {name: layout.masks[name] for name in names if name in layout.masks}
        self._stored = self._list_stored_columns()
        self._table = None
        self.is_local = footers.files.is_local
        self.is_decoded = not self._stored
        self.by_threads = n_threads() == n_processors()

    def _list_stored_columns(self) -> list[str]:
        """Return the columns to read from the file, those of masks included, each once."""
        stored = []
        for name in self.names:
            source = self._masks.get(name, name)
            is_stored = (
                source not in self._layout.partitions
                and source not in self._layout.absent[self.file]
            )
            if is_stored and source not in stored:
                stored.append(source)
        return stored

    # ------------------------------------------------------------------ the pages

    def known_bytes(self) -> int:
        """Return the bytes of the columns before compression; 0 if the footer was not read."""
        if not self._footers.is_read(self.file):
            return 0
        chunks = self._footers.facts(self.file).chunks
        return int(chunks["n_raw_bytes"][self._index, self._leaves()].sum())

    def decode(self) -> None:
        """Read and decode the pages.

        Raises:
            DatasetFileCorruptError, ResourceChangedError, StorageError: see
                :meth:`RowGroups.read`.
        """
        if self.is_decoded:
            return
        footers = self._footers
        name = footers.name_of(self._group)
        with reading_parquet(name), footers.files.open(self.file) as source:
            footers.check_unchanged(self.file, source)
            self._check_memory(name, source)
            table = self._read_table(source)
            seconds = self._read_seconds(source)
        if self._rows is not None:
            table = _take_rows(table, self._rows)
        if seconds is not None:
            table = self._with_exact_times(table, seconds)
            del seconds  # so that release_unused() can release its memory
        self._table = table
        self.is_decoded = True
        if table.nbytes >= _LARGE_BYTES:
            # Each thread of Arrow keeps tens of MiB of freed memory; releasing it takes a
            # millisecond or two.
            pa.default_memory_pool().release_unused()

    def _leaves(self) -> list[int]:
        """Return the numbers of the leaf columns in the file that store the columns to read.

        A nested column has several leaves. Their paths would be ambiguous: "a.b" may be a column,
        or the field b of a struct a.
        """
        columns = self._footers.facts(self.file).columns
        leaves: list[int] = []
        for name in self._stored:
            leaves.extend(columns[name])
        return leaves

    def _check_memory(self, name: str, source: Any) -> None:
        """Refuse columns whose decoded values exceed the limit of a request.

        Args:
            name: the name of the row group, for messages.
            source: the open file.

        Raises:
            RequestLimitError: they do.
            DatasetFileCorruptError, ValueError: the headers of the pages are damaged.
        """
        facts = self._footers.facts(self.file)
        leaves = self._leaves()
        chunks = facts.chunks[self._index, leaves]
        value_bytes = chunks["n_values"] * facts.value_bytes[leaves]
        check_request(int(np.maximum(value_bytes, chunks["n_raw_bytes"]).sum()), name)
        if self.is_local:  # in a store, each check would be a request
            self._layout.page_checks.check(source, self._group, leaves)

    def _read_table(self, source: Any) -> pa.Table:
        """Read and decode the stored columns, all rows of them."""
        # The main thread keeps its memory as Arrow's threads do, and need not wait for them to
        # start.
        is_main_thread = threading.current_thread() is threading.main_thread()
        is_small = is_main_thread and self.known_bytes() < _FEW_BYTES
        by_threads = self.by_threads and not is_small
        # One thread decodes a local file while it reads it, a small part of a column at a time,
        # into memory that is reused and that stays in the processor's cache. The system reads
        # ahead meanwhile. Everything else is read first, in few large requests for all columns.
        reads_in_parts = self.is_local and not by_threads
        buffer_bytes = _BUFFER_BYTES if reads_in_parts else 0
        file = pq.ParquetFile(
            source,
            metadata=self._footers.of(self.file),
            page_checksum_verification=True,
            pre_buffer=not reads_in_parts,
            buffer_size=buffer_bytes,
        )
        try:
            return file.reader.read_row_group(
                self._index, column_indices=self._leaves(), use_threads=by_threads
            )
        except pa.ArrowInvalid as error:
            for name in self._stored:
                is_unreadable = _has_lists_without_elements(file.schema_arrow.field(name).type)
                if is_unreadable and _ERROR_OF_LISTS_WITHOUT_ELEMENTS in str(error):
                    raise DatasetFileCorruptError(
                        f"{self._footers.name_of(self._group)}, field {name!r}: pyarrow cannot "
                        "read fixed_size_list[0], lists without elements, from Parquet: "
                        "leave the field out with columns=…"
                    ) from error
            raise

    def _read_seconds(self, source: Any) -> pa.Table | None:
        """Read the columns that have times of INT96 in seconds; None without such columns."""
        facts = self._footers.facts(self.file)
        leaves: list[int] = []
        for name in self._stored:
            leaves_of_column = facts.columns[name]
            if facts.is_int96[leaves_of_column].any():
                leaves.extend(leaves_of_column)
        if not leaves:
            return None
        return read_int96(source, self._footers.of(self.file), self._index, leaves, "s")

    def _with_exact_times(self, table: pa.Table, seconds: pa.Table) -> pa.Table:
        """Replace the columns of INT96, which pyarrow read in nanoseconds, by their exact times."""
        if self._rows is not None:
            seconds = _take_rows(seconds, self._rows)
        for name in seconds.column_names:
            unit = "ns" if _has_nanoseconds(self._layout.schema[name]) else "us"
            try:
                exact = exact_times(table.column(name), seconds.column(name), unit)
            except CellError as error:
                raise self._layout.damage_error(self._group, name, error, self._rows) from error
            table = table.set_column(table.schema.get_field_index(name), name, exact)
        return table

    # ------------------------------------------------------------------ the values

    def columns(self, names: Sequence[str] | None = None) -> dict[str, GroupColumn]:
        """Make the columns, and release the decoded pages, so it is called once.

        Args:
            names: some of the columns; None: all.

        Raises:
            DatasetFileCorruptError, ResourceChangedError, StorageError: see
                :meth:`RowGroups.read`.
        """
        self.decode()
        if names is None:
            names = self.names
        table = self._table
        self._table = None
        columns: dict[str, GroupColumn] = {}
        for name in names:
            source = self._masks.get(name, name)
            if table is None or source not in self._stored:
                columns[name] = self._make_absent(name)
            elif name in self._masks:
                cells = plain_cells(_join_chunks(table.column(source)))
                columns[name] = ArrayColumn(null_mask(cells))
            else:
                columns[name] = self._make_stored(name, table.column(name))
        return columns

    def comparable_cells(self, name: str) -> pa.Array | None:
        """Return the cells of a column that Arrow compares as Python compares its values.

        None for other columns, and for cells that :meth:`columns` refuses, with a message.

        Raises:
            DatasetFileCorruptError, ResourceChangedError, StorageError: see
                :meth:`RowGroups.read`.
        """
        field = self._layout.schema[name]
        is_stored = name in self._stored and name not in self._masks
        if not is_stored or not field.cells.compares_cells(field, field.arrow_type()):
            return None
        self.decode()
        if self._table is None:
            return None
        cells = plain_cells(_join_chunks(self._table.column(name)))
        may_be_null = field.nullable and self._layout.with_nulls[name]
        is_sound = len(cells) == self._n_rows and (may_be_null or not cells.null_count)
        if not is_sound or not field.cells.compares_cells(field, cells.type):
            return None
        try:
            cells.validate(full=True)
        except pa.ArrowException:  # text that is not valid UTF-8
            return None
        return cells

    def _make_absent(self, name: str) -> GroupColumn:
        """Make a column that the file does not store: of a partition, or null in all rows."""
        layout = self._layout
        field = layout.schema[name]
        if name in layout.masks:
            values = self._footers.files.partitions[self.file]
            is_null = values.get(layout.masks[name]) is None
            return ArrayColumn(np.full(self._n_rows, is_null))

        value = None
        if name in layout.partitions:
            value = layout.partitions[name][self.file]
        fill = field.cells.fill(field)
        if value is None:
            value = fill
        has_none = layout.with_nulls[name] and fill is None
        is_of_numbers = isinstance(field.dtype, np.dtype) and field.dtype.kind not in "USO"
        if is_of_numbers and value is not None and not has_none:
            return ArrayColumn(np.full(self._n_rows, value, field.dtype))
        return ArrayColumn(objects([value] * self._n_rows))

    def _make_stored(self, name: str, stored: pa.ChunkedArray) -> GroupColumn:
        """Make a column from stored cells, which must match the schema and the footer."""
        layout = self._layout
        field = layout.schema[name]
        try:
            cells = _join_chunks(stored)
            if len(cells) != self._n_rows:
                raise ValueError(f"{len(cells)} values, but the footer states {self._n_rows} rows")
            column = field.cells.column(field, cells, has_nulls=layout.with_nulls[name])
        except CellError as error:
            raise layout.damage_error(self._group, name, error, self._rows) from error
        except MemoryError:  # Arrow's, which is an ArrowException too
            raise
        except (ValueError, pa.ArrowException) as error:
            raise DatasetFileCorruptError(
                f"{self._footers.name_of(self._group)}, field {name!r}: {error!s:.300}"
            ) from error
        layout.note_list_length(name, column)
        return column


def _has_lists_without_elements(type_: pa.DataType) -> bool:
    # The text of a nested type has the types inside of it.
    text = str(type_)
    return "fixed_size_list<" in text and ">[0]" in text


def _has_nanoseconds(field: Field) -> bool:
    """Whether a field has times in nanoseconds, perhaps inside of structs or lists."""
    if isinstance(field.dtype, np.dtype) and field.dtype.kind == "M":
        unit, _ = np.datetime_data(field.dtype)
        return unit == "ns"
    # The text of a nested type has the types inside of it.
    return "timestamp[ns" in str(field.arrow_type())


def _take_rows(table: pa.Table, rows: Rows) -> pa.Table:
    """Return a table with copies of some rows, in the order of ``rows``."""
    try:
        return table.take(index_cells(rows))
    except pa.ArrowNotImplementedError:  # pyarrow has no take() for columns of views
        slices = [table.slice(row, 1) for row in rows.tolist()]
        return pa.concat_tables(slices).combine_chunks()


def _join_chunks(column: pa.ChunkedArray) -> pa.Array:
    """Join the chunks of a column to one array."""
    if column.num_chunks == 0:
        return pa.nulls(0, column.type)
    if column.num_chunks == 1:
        return column.chunk(0)
    if column.nbytes > _MAX_BYTES_OF_ARRAY:
        column = column.cast(_LARGE_TYPES.get(column.type, column.type))
    return column.combine_chunks()
