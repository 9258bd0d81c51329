"""Reads columns of row groups."""

from __future__ import annotations

import contextlib
import functools
import operator
import threading
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from data_stack.exception import DatasetFileCorruptError, DataStackError, RequestLimitError
from data_stack.formats.parquet.codecs import ListCodec, ScalarCodec
from data_stack.formats.parquet.codecs.binary import index_cells, null_mask, plain_cells
from data_stack.formats.parquet.columns import ArrayColumn, CellError, GroupColumn
from data_stack.formats.parquet.files import NULL_PARTITION, ParquetFiles, partition_names
from data_stack.formats.parquet.footer_facts import FooterFacts, bytes_claimed_by_pages
from data_stack.formats.parquet.footers import Footers
from data_stack.formats.parquet.int96 import exact_times, read_int96
from data_stack.formats.parquet.metadata import reading_parquet
from data_stack.formats.parquet.schema import Field, Schema
from data_stack.formats.parquet.selecting import is_instant
from data_stack.util.executor import n_processors, n_threads
from data_stack.util.request_limit import check_request, limit_bytes
from data_stack.values.stacked_values import objects

Rows = npt.NDArray[np.int32]

_BUFFER_BYTES: Final = (
    0 if pa.__version__.startswith("18.") else 1 << 18
)  # pyarrow 18 cannot read all files with it
_LOCAL_OPTIONS: Final[Mapping[str, Any]] = {"pre_buffer": False, "buffer_size": _BUFFER_BYTES}
"""Options of pyarrow's reader for a local file that one thread decodes: it reads a small part of a column at a time, into memory
that it reuses and that stays in the processor's cache. The system reads ahead meanwhile."""

_FLOATS: Final = (np.float16, np.float32, np.float64)
#: Below this size, one thread decodes all columns as fast as several.
_FEW_BYTES = 2 << 20
#: Pages may claim this many bytes without a check; some writers count wrong.
_HARMLESS_PAGE_BYTES = 64 << 20
#: Smaller row groups leave little memory behind.
_LARGE_BYTES = 8 << 20
#: Types of columns of more than 2 GiB.
_LARGE_TYPES: Final = {pa.binary(): pa.large_binary(), pa.string(): pa.large_string()}
#: Raised for bounds that a type cannot hold, such as dates out of range for Python.
_NO_BOUND: Final = (ValueError, TypeError, OverflowError, pa.ArrowException)


class RowGroups:
    """The row groups of a dataset. Threads may share it. It pickles without the footers.

    Args:
        footers: footers of the files.
        schema: of all fields, partition columns included.
        masks: the fields that the files lack, which say where another field is null: its name for each.

    Attributes:
        partitions: the partition columns, with a value for each file.
        absent: the fields that each file lacks.
        list_lengths: for each field of lists the length of all of them; None if they differ.
        with_nulls: for each field whether any value may be null.
        checked_pages: row groups and columns whose page headers agree with the footer.

    Raises:
        DatasetFileCorruptError: a file lacks a required field, or the name of a folder is not a value of its field.
    """

    def __init__(
        self, footers: Footers, schema: Schema, masks: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self.footers, self.schema, self.masks = footers, schema, dict(masks)
        files = footers.files
        partitioned = [schema[name] for name in partition_names(files.partitions) if name in schema]
        self.partitions = {field.name: partition_column(field, files) for field in partitioned}
        stored = schema.fields.keys() - self.partitions.keys() - self.masks.keys()
        required = {field.name for field in schema if not field.nullable}
        self.absent = [stored.difference(footers.columns(file)) for file in range(len(files.paths))]
        for file, absent in enumerate(self.absent):
            for name in sorted(absent & required):
                remedy = "exclude it with columns=…, or make the field nullable with schema=…"
                raise DatasetFileCorruptError(
                    f"{files.name(file)} has no column {name!r}, unlike other files: {remedy}"
                )
        files_with_rows = np.unique(footers.file_of[footers.n_rows > 0]).tolist()
        kinds = {id(columns): columns for columns in map(footers.columns, files_with_rows)}.values()
        counts = {name: {columns.get(name) for columns in kinds} for name in schema.fields}
        self.list_lengths = {
            field.name: _only(counts[field.name])
            for field in schema
            if isinstance(field.codec, ListCodec)
        }
        self.with_nulls = {
            name: field.nullable and None in counts[name] for name, field in schema.fields.items()
        }
        self.with_nulls |= {
            name: any(value is None for value in values) for name, values in self.partitions.items()
        }
        self.checked_pages: set[tuple[int, int]] = set()

    def read(self, group: int, names: Sequence[str]) -> dict[str, GroupColumn]:
        """Read columns of a row group.

        Raises:
            DatasetFileCorruptError: the file is damaged; the message names file, row group, row and field.
            StorageError: the file cannot be read.
        """
        return GroupReading(self, group, names).columns()

    def damage_error(
        self, group: int, name: str, error: CellError, rows: Rows | None = None
    ) -> DataStackError:
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
        return all(
            isinstance(field.codec, ScalarCodec)
            or self.list_lengths.get(name) is not None
            or (field.cells.is_fixed and not self.with_nulls[name])
            for name, field in self.schema.fields.items()
            if name in names
        )

    def estimate_bytes(self, names: Sequence[str]) -> float:
        """Estimate the bytes of these columns in all row groups, before compression, from the first file."""
        footers = self.footers
        n_rows_of_first = int(footers.n_rows[footers.file_of == 0].sum())
        if not n_rows_of_first:
            return 0.0
        facts = footers.facts(0)
        leaves = [leaf for name in names for leaf in facts.columns.get(name, [])]
        return (
            float(facts.chunks["n_raw_bytes"][:, leaves].sum())
            / n_rows_of_first
            * float(footers.n_rows.sum())
        )

    def empty(self, name: str) -> npt.NDArray[Any]:
        """A column without rows.

        Raises:
            DatasetFileCorruptError: the shape is too large for numpy.
        """
        field = self.schema[name]
        is_of_objects = self.with_nulls[name] and field.cells.fill(field) is None
        sizes = [size for size in field.shape if size is not None]
        is_ragged = len(sizes) != len(field.shape)
        if (
            is_of_objects
            or is_ragged
            or not isinstance(field.dtype, np.dtype)
            or field.dtype.kind in "USO"
        ):
            return np.empty(0, object)
        try:
            return np.empty((0, *sizes), field.dtype)
        except ValueError as error:
            raise DatasetFileCorruptError(
                f"field {name!r} cannot have the shape {field.shape}: {error}"
            ) from error

    def guarantee(self, group: int, types: pa.Schema, *, with_floats: bool) -> pc.Expression:
        """An expression that is true of all rows of a row group, from its partitions and footer.

        Args:
            group: the row group.
            types: the columns, with the types by which an expression sees them.
            with_floats: use bounds of floats, although NaN lies outside of them.
        """
        footers, found = self.footers, [pc.scalar(True)]
        file, n_rows, index = (
            int(footers.file_of[group]),
            int(footers.n_rows[group]),
            int(footers.index_of[group]),
        )
        facts, stored = footers.facts(file), footers.of(file).row_group(index)
        known = {
            **dict.fromkeys(self.absent[file]),
            **{name: values[file] for name, values in self.partitions.items()},
        }
        for field in map(self.schema.__getitem__, types.names):
            leaves = facts.columns.get(field.name, [])
            if field.name in known:
                found.append(partition_guarantee(field.name, known[field.name], types))
            elif (
                len(leaves) == 1
                and isinstance(field.codec, ScalarCodec)
                and (with_floats or field.dtype not in _FLOATS)
            ):
                n_nulls = int(facts.chunks["n_nulls"][index, leaves[0]])
                found.append(
                    _column_guarantee(
                        types.field(field.name),
                        stored.column(leaves[0]).statistics,
                        n_rows,
                        n_nulls,
                    )
                )
        return functools.reduce(operator.and_, found)


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

    def __init__(
        self, groups: RowGroups, group: int, names: Sequence[str], rows: Rows | None = None
    ) -> None:
        footers = self._footers = groups.footers
        self._groups, self._group, self.names, self._rows = groups, group, names, rows
        self.file, self._index = int(footers.file_of[group]), int(footers.index_of[group])
        self._n_rows = int(footers.n_rows[group]) if rows is None else len(rows)
        elsewhere = groups.partitions.keys() | groups.absent[self.file]
        self._masks = {name: groups.masks[name] for name in names if name in groups.masks}
        self._stored = [
            name
            for name in dict.fromkeys(self._masks.get(name, name) for name in names)
            if name not in elsewhere
        ]
        self._table: Any = None
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
            n_bytes = facts.chunks["n_values"][self._index, numbers] * facts.value_bytes[numbers]
            check_request(
                int(np.maximum(n_bytes, facts.chunks["n_raw_bytes"][self._index, numbers]).sum()),
                name,
            )
            if self.is_local:  # in a store, each check would be a request
                self._check_pages(source, facts, numbers)
            # the main thread keeps its memory as Arrow's threads do, and need not wait for them to start
            is_small = (
                threading.current_thread() is threading.main_thread()
                and self.known_bytes() < _FEW_BYTES
            )
            by_threads = self.by_threads and not is_small
            # else few large requests for all columns are better
            options = _LOCAL_OPTIONS if self.is_local and not by_threads else {"pre_buffer": True}
            file = pq.ParquetFile(
                source, metadata=footers.of(self.file), page_checksum_verification=True, **options
            )
            table = file.reader.read_row_group(
                self._index, column_indices=numbers, use_threads=by_threads
            )
            seconds = None
            if facts.is_int96[numbers].any():
                names_of_int96 = [
                    name for name in self._stored if facts.is_int96[facts.columns[name]].any()
                ]
                leaves = [leaf for name in names_of_int96 for leaf in facts.columns[name]]
                seconds = read_int96(source, footers.of(self.file), self._index, leaves, "s")
        if self._rows is not None:
            table = _rows_of(table, self._rows)
        if seconds is not None:
            if self._rows is not None:
                seconds = _rows_of(seconds, self._rows)
            for name in names_of_int96:
                table = self._with_exact_times(table, name, seconds.column(name))
        self._table = table
        self.is_decoded = True
        del file, table, seconds
        if self._table.nbytes >= _LARGE_BYTES:
            # each thread of Arrow keeps tens of MiB of freed memory; releasing it takes a millisecond or two
            pa.default_memory_pool().release_unused()

    def _with_exact_times(self, table: pa.Table, name: str, seconds: pa.ChunkedArray) -> pa.Table:
        """Replace a column of INT96, which pyarrow read in nanoseconds, by its exact times."""
        unit = "ns" if _has_nanoseconds(self._groups.schema[name]) else "us"
        try:
            exact = exact_times(table.column(name), seconds, unit)
        except CellError as error:
            raise self._groups.damage_error(self._group, name, error, self._rows) from error
        return table.set_column(table.schema.get_field_index(name), name, exact)

    def known_bytes(self) -> int:
        """The size of the columns before compression, from the footer; 0 if the footer was not read."""
        if not self._footers.is_read(self.file):
            return 0
        return int(
            self._footers.facts(self.file).chunks["n_raw_bytes"][self._index, self._numbers()].sum()
        )

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
            start, n_raw_bytes = (
                int(facts.chunks["start"][index, number]),
                int(facts.chunks["n_raw_bytes"][index, number]),
            )
            claimed, dictionary = bytes_claimed_by_pages(
                source, start, start + int(facts.chunks["n_bytes"][index, number])
            )
            if claimed > max(_HARMLESS_PAGE_BYTES, 4 * n_raw_bytes):
                raise DatasetFileCorruptError(
                    f"{name}, column {number} claims {claimed:,} bytes, the footer {n_raw_bytes:,}"
                )
            if (
                not facts.value_bytes[number]
                and dictionary * int(facts.chunks["n_values"][index, number]) > limit_bytes()
            ):
                self._check_repeated(source, number)
            self._groups.checked_pages.add((self._group, number))

    def _check_repeated(self, source: Any, number: int) -> None:
        """Count the decoded bytes of dictionary-encoded texts, which may be long and repeat in many rows."""
        metadata = self._footers.of(self.file)
        name = metadata.schema.column(number).path
        file = pq.ParquetFile(source, metadata=metadata, read_dictionary=[name], pre_buffer=False)
        (column,) = file.reader.read_row_group(
            self._index, column_indices=[number], use_threads=False
        ).columns
        n_bytes = 0
        for part in column.chunks:
            if isinstance(part, pa.DictionaryArray):
                lengths = pc.binary_length(part.dictionary).cast(pa.int64())
                n_bytes += pc.sum(lengths.take(part.indices.drop_null())).as_py() or 0
        check_request(n_bytes, f"{self._footers.name_of(self._group)}, column {name!r}")

    def columns(self, names: Sequence[str] | None = None) -> dict[str, GroupColumn]:
        """The columns. The cells are released.

        Args:
            names: some of the columns; None: all.

        Raises:
            DatasetFileCorruptError, ResourceChangedError, StorageError: see :meth:`RowGroups.read`.
        """
        self.decode()
        table, self._table = self._table, None
        found = {}
        for name in self.names if names is None else names:
            source = self._masks.get(name, name)
            if source not in self._stored:
                found[name] = self._make(name)
            elif name in self._masks:
                found[name] = ArrayColumn(null_mask(plain_cells(_join(table.column(source)))))
            else:
                found[name] = self._decode(name, table.column(name))
        return found

    def comparable_cells(self, name: str) -> pa.Array | None:
        """Return the cells of a column that Arrow compares as Python compares its values.

        None for other columns, and for cells that :meth:`columns` refuses, with a message.

        Raises:
            DatasetFileCorruptError, ResourceChangedError, StorageError: see :meth:`RowGroups.read`.
        """
        groups = self._groups
        field = groups.schema[name]
        is_stored = name in self._stored and name not in self._masks
        if not is_stored or not field.cells.compares_cells(field, field.arrow_type()):
            return None
        self.decode()
        cells = plain_cells(_join(self._table.column(name)))
        may_be_null = field.nullable and groups.with_nulls[name]
        if (
            not field.cells.compares_cells(field, cells.type)
            or len(cells) != self._n_rows
            or (cells.null_count and not may_be_null)
        ):
            return None
        try:
            cells.validate(full=True)
        except pa.ArrowException:  # text that is not valid UTF-8
            return None
        return cells

    def _make(self, name: str) -> GroupColumn:
        """A column that the file does not store."""
        groups, field = self._groups, self._groups.schema[name]
        if name in groups.masks:  # of a column that is absent or null
            return ArrayColumn(
                np.full(
                    self._n_rows,
                    self._footers.files.partitions[self.file].get(groups.masks[name]) is None,
                )
            )
        value = groups.partitions[name][self.file] if name in groups.partitions else None
        fill, n_rows = field.cells.fill(field), self._n_rows
        value = fill if value is None else value
        is_fixed = (
            isinstance(field.dtype, np.dtype)
            and field.dtype.kind not in "USO"
            and value is not None
        )
        if is_fixed and (fill is not None or not groups.with_nulls[name]):
            return ArrayColumn(np.full(n_rows, value, field.dtype))
        return ArrayColumn(objects([value] * n_rows))

    def _decode(self, name: str, stored: pa.ChunkedArray) -> GroupColumn:
        """Make a column from stored cells, and check that they match the schema and the footer."""
        groups, field = self._groups, self._groups.schema[name]
        try:
            cells = _join(stored)
            if len(cells) != self._n_rows:
                raise ValueError(f"{len(cells)} values, but the footer states {self._n_rows} rows")
            column = field.cells.column(field, cells, has_nulls=groups.with_nulls[name])
        except CellError as error:
            raise groups.damage_error(self._group, name, error, self._rows) from error
        except MemoryError:  # Arrow's, which is an ArrowException too
            raise
        except (ValueError, pa.ArrowException) as error:
            raise DatasetFileCorruptError(
                f"{groups.footers.name_of(self._group)}, field {name!r}: {error!s:.300}"
            ) from error
        shape = column.array.shape[1:] if isinstance(column, ArrayColumn) else None
        if name in groups.list_lengths and shape != (groups.list_lengths[name],):
            groups.list_lengths[name] = None
        return column


def _has_nanoseconds(field: Field) -> bool:
    """Whether a field has times in nanoseconds, perhaps inside of structs or lists."""
    if isinstance(field.dtype, np.dtype) and field.dtype.kind == "M":
        return np.datetime_data(field.dtype)[0] == "ns"
    return "timestamp[ns" in str(field.arrow_type())


def _rows_of(table: pa.Table, rows: Rows) -> pa.Table:
    """Copy some rows."""
    try:
        return table.take(index_cells(rows))
    except pa.ArrowNotImplementedError:  # pyarrow has no take() for columns of views
        return pa.concat_tables([table.slice(row, 1) for row in rows.tolist()]).combine_chunks()


def _join(column: pa.ChunkedArray) -> pa.Array:
    """Join the chunks of a column."""
    if column.num_chunks == 1:
        return column.chunk(0)
    if column.nbytes > 1 << 31:
        column = column.cast(_LARGE_TYPES.get(column.type, column.type))
    return column.combine_chunks() if column.num_chunks else pa.array([], column.type)


# ---------------------------------------------------------------------- values in the names of folders


def partition_column(field: Field, files: ParquetFiles) -> npt.NDArray[Any]:
    """The values in the names of the folders of each file, shape ``(n_files,)``.

    Raises:
        DatasetFileCorruptError: a name is not a value of the field.
    """
    type_ = (
        pa.timestamp(field.arrow_type().unit)
        if is_instant(field.arrow_type())
        else field.arrow_type()
    )

    def convert(texts: list[str | None]) -> npt.NDArray[Any]:
        cells = pa.array(texts, pa.string()).cast(type_)
        return field.cells.column(field, cells, has_nulls=None in texts).take(np.arange(len(texts)))

    texts = [values.get(field.name) for values in files.partitions]
    with contextlib.suppress(ValueError, pa.ArrowException):
        return convert(texts)
    for number, text in enumerate(texts):
        try:
            convert([text])
        except (ValueError, pa.ArrowException) as error:
            folder = f"{field.name}={NULL_PARTITION if text is None else text:.60}"
            raise DatasetFileCorruptError(
                f"{files.name(number)}: the folder {folder!r} is not a value: {error}"
            ) from error
    return objects(texts)


def partition_guarantee(name: str, value: Any, types: pa.Schema) -> pc.Expression:
    """An expression that is true of all rows of a partition; its value None stands for null."""
    if value is None:
        return pc.field(name).is_null()
    try:
        plain = value.item() if isinstance(value, np.generic) else value
        return pc.field(name) == pa.scalar(plain, types.field(name).type)
    except _NO_BOUND:
        return pc.scalar(True)


def _column_guarantee(field: pa.Field, statistics: Any, n_rows: int, n_nulls: int) -> pc.Expression:
    """An expression that is true of all rows of a column, with the type of ``field``; -1 for an unknown number of nulls."""
    column = pc.field(field.name)
    if n_nulls == n_rows:
        return column.is_null()
    try:
        if field.type == pa.time64("ns"):  # pyarrow rounds their statistics to microseconds
            return pc.scalar(True)
        if (
            statistics is None or not statistics.has_min_max or not statistics.min <= statistics.max
        ):  # NaN is not
            return pc.scalar(True)
        bounds = [
            column >= pa.scalar(statistics.min, field.type),
            column <= pa.scalar(statistics.max, field.type),
        ]
    except _NO_BOUND:
        return pc.scalar(True)
    return functools.reduce(
        operator.and_, bounds if n_nulls == 0 else [bound | column.is_null() for bound in bounds]
    )
