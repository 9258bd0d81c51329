"""A Parquet dataset as samples."""

from __future__ import annotations

import functools
import itertools
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.codecs.plain_data import canonical_json
from data_stack.dataset.iterator import (
    AccessedDatasetIterator,
    ColumnKey,
    IndexArray,
    Sample,
    SampleAccess,
    SourceAccess,
)
from data_stack.dataset.iterator.access import DeclaredColumn, DistinctValues
from data_stack.dataset.positions import IndexArrayOfInts, check_indices, check_integer
from data_stack.dataset.recipes.recipe_values import PartialContent
from data_stack.exception import ConfigError, DatasetOutOfBoundsError
from data_stack.formats.parquet.codecs import ArrowCodec
from data_stack.formats.parquet.codecs.binary import index_cells
from data_stack.formats.parquet.codecs.native import Nulls
from data_stack.formats.parquet.columns import ArrayColumn, CellError, Rows
from data_stack.formats.parquet.distinct import DistinctCells
from data_stack.formats.parquet.files import find_files
from data_stack.formats.parquet.footers import Footers, digest_of_row_groups
from data_stack.formats.parquet.group_cache import Columns, GroupCache
from data_stack.formats.parquet.inference import adapt_schema, add_masks, read_schema
from data_stack.formats.parquet.row_groups import GroupReading, RowGroups
from data_stack.formats.parquet.schema import Field, Schema
from data_stack.formats.parquet.selecting import as_predicate
from data_stack.formats.parquet.selection import Places, Selection, files_that_could_match, select
from data_stack.formats.parquet.types import dtype_name
from data_stack.io.job_threads import JobThreads
from data_stack.util.executor import n_threads
from data_stack.util.request_limit import current_request, decoding_for
from data_stack.values.stacking import SampleForm, assemble

#: Number of rows that an iteration decodes together.
_ROWS_AT_ONCE = 256
#: Maximum number of row groups of a batch that are candidates for prefetching.
_MAX_EXPECTED = 16
#: A request for one of this many rows of its row groups, or more of them, copies their columns as a whole first, which is faster
#: than to collect its rows from each of them.
_MAX_ROWS_FOR_ONE = 8
#: For fewer rows it is not worth the question.
_FEWEST_JOINED = 1024
#: Row groups of more bytes together are not copied as a whole.
_MAX_JOINED_BYTES = 32 << 20
#: Distinct cells of a column that may take this much memory while they are counted; of more, digests take less.
_MAX_DISTINCT_BYTES = 256 << 20


class ParquetDataset(AccessedDatasetIterator):
    """The rows of Parquet files: dicts with a value for each field.

    ::

        train = ParquetDataset("s3://bucket/frames", columns=["id", "image"], filters=col("speed") > 3)
        len(train)                              # exact, from the footers
        train[17]["image"]                      # one row; its row group is read, and kept for its neighbours
        train.read_batch([3, 1, 4])["image"]    # columns, stacked
        train.read_column("id")                 # this column of all rows; no image is touched
        Loader(train, 256, shuffle=BlockShuffled(window=8))

    It reads what :class:`ParquetWriter` wrote, what Petastorm wrote (with the package ``lazy-data-stack-petastorm``, which runs
    nothing of the pickled schema), and any other Parquet, whose schema is inferred.

    A missing value is None. The column of a field is an array of objects, for all rows, if any footer counts a null; otherwise it
    has the field's dtype. Lists and arrays of different shapes become arrays of objects.

    Row groups are read whole, but only the columns in use. The most recently used row groups are cached, or the rows that the
    filter selects. Images and other cells that take long to decode are cached encoded, and decoded on access. To read many rows
    in random order, a block-wise shuffle reads each row group once, and prefetches the next ones.

    The constructor reads the footers; it does not open files in folders that the filter excludes. If the manifest lists a file,
    its footer is read for a filter or with the first row of the file, and checked against the manifest. Reading a file that was
    replaced or touched later raises (:class:`~data_stack.exception.ResourceChangedError`), also where its rows are cached, and so
    does the fingerprint: rows of two files are never mixed. A local file is known by its size, times and inode, one in a store by
    its SHA-256 or ETag, each also by its footer.

    Threads and forked processes may share a dataset. Its pickle is small and includes the rows that the filter selects; another
    process reads the footers that it needs.

    Args:
        source: a folder (with Hive's partitions, too), a file (its path, a resource or open binary file), a list of files, a
            storage connector, a URL (``mongodb://``, ``s3://``, ``hdfs://`` …) or resources of a dataset.
        columns: names, regular expressions or fields; None for all, in the order of the schema.
        filters: which rows: an expression of pyarrow (``col("speed") > 3``), filters (``[("speed", ">", 3)]``), or an object with
            ``get_fields()`` and ``do_include(values)``. A filter may use columns that ``columns`` omits. None for all.
        prefix: folder below ``source``.
        schema: of the columns; it replaces the schema in the files.
        row_groups: the numbers of the row groups, counted through all files; None for all.
        filesystem: of pyarrow or fsspec; ``source`` is then a path in it.
        nulls: how nulls are read. "none": as None. "nan": as NaN in floats and NaT in times, also in lists; integers and bools
            become float64, if any file has a null in their column. "mask": as 0, and a column of bools ``<name>_is_null`` follows
            each column of numbers or times in which any file has a null; ``columns`` names columns of the files only. Nulls of
            text, bytes, decimals, structs and lists, and with "mask" those inside of lists, are None.
        timestamp_unit: unit of all timestamps: "s", "ms", "us" or "ns"; a timestamp that does not fit raises. None: the unit of
            each column; of INT96, which has none, that of the writer, else the one that holds the times of the first row group.
            Filters compare stored values; ``nulls`` and ``timestamp_unit`` do not affect them.
        max_cached_bytes: limit of the cache of row groups.

    Attributes:
        schema: the fields of the samples.
        with_nulls: for each field of the files whether a value may be null, as far as the footers tell.
        account: what else is in the folder, and which columns of files are not read
            (:class:`~data_stack.io.account.PlaceAccount`). LeftOutWarning names what may be data.

    Raises:
        ResourceNotFoundError: ``source`` has no Parquet files.
        DatasetFileCorruptError: a footer is damaged, or files differ in their columns.
        ConfigError: a field does not exist, or the filter is invalid.
    """

    _keeps_access = False

    def __init__(
        self,
        source: Any,
        columns: Iterable[str | Field | re.Pattern[str]] | None = None,
        filters: Any = None,
        *,
        prefix: str = "",
        schema: Schema | None = None,
        row_groups: Any = None,
        filesystem: Any = None,
        nulls: Nulls = "none",
        timestamp_unit: str | None = None,
        max_cached_bytes: int = 1 << 30,
    ) -> None:
        files = find_files(source, prefix, filesystem=filesystem)
        footers = Footers(files, lazily=True)
        predicate = self._predicate = None if filters is None else as_predicate(filters)
        whole = read_schema(footers, timestamp_unit) if schema is None else schema
        if predicate is None:
            footers.read_all(trusting=True)
        else:
            for name in predicate.fields:
                whole[name]  # raises if the field does not exist
            chosen = (
                files_that_could_match(files, whole, predicate) if row_groups is None else files
            )  # else numbers would change
            footers = footers if chosen is files else Footers(chosen, lazily=True)
            footers.read_all()  # the statistics are needed
        self._footers = footers
        self._groups = self._stored_groups = RowGroups(footers, whole)
        account = files.account
        if schema is None and columns is None:
            account = account.with_left_out(footers.columns_left_out(whole.fields))
        self.account = account
        account.warn()
        with_nulls = self.with_nulls = self._groups.with_nulls
        read = adapt_schema(whole, with_nulls, nulls, timestamp_unit)
        self.schema = read if columns is None else read.view(columns)
        if read is not whole:
            self.schema, masks = add_masks(self.schema, with_nulls)
            self._groups = RowGroups(footers, self.schema, masks)
        self._chosen = _chosen_groups(row_groups, footers)
        self._names = self._recent_names = list(self.schema.fields)
        self.limit_cache(check_integer("max_cached_bytes", max_cached_bytes, at_least=0))

    def limit_cache(self, max_cached_bytes: int) -> None:
        """Empty the cache of row groups, and change its limit."""
        self._max_cached_bytes = max_cached_bytes
        self._cache = GroupCache(self._reading, max_cached_bytes, self._check_group)

    if TYPE_CHECKING:  # samples are dicts

        def read_batch(self, indices: IndexArray) -> dict[str, npt.NDArray[Any]]: ...

    def make_access(self) -> SampleAccess:
        return _ParquetAccess(self)

    def __len__(self) -> int:
        return self._selection.n_rows

    @property
    def metadata(self) -> Mapping[bytes, bytes]:
        """The key-value metadata of the dataset."""
        return self._footers.metadata

    @property
    def all_columns(self) -> set[str]:
        """The names of the columns of all files; :attr:`schema` has only those of the first file."""
        return {
            name
            for file in range(len(self._footers.files.paths))
            for name in self._footers.columns(file)
        }

    @property
    def time_zones(self) -> Mapping[str, str]:
        """The time zones of the columns of instants in the first file, by name; their samples are in UTC."""
        return self._footers.time_zones

    @property
    def block_lengths(self) -> npt.NDArray[np.int64]:
        """Number of samples of each row group that has any, shape ``(n_row_groups,)``."""
        return self._selection.lengths

    @property
    def is_local(self) -> bool:
        """Whether the files have paths on this machine; otherwise they are in a store."""
        return self._footers.files.folder.path is not None

    @functools.cached_property
    def _selection(self) -> Selection:
        return select(self._stored_groups, self._chosen, self._predicate)

    def _reading(self, group: int, names: Sequence[str]) -> GroupReading:
        """Start to read a row group; keep only the rows that the filter selects."""
        return GroupReading(self._groups, group, names, self._selection.rows_of(group))

    def _check_group(self, group: int) -> None:
        """Raise if the local file of a row group is not the one that was opened; in a store, that would be a request."""
        self._footers.check_local(self._file_of_group[group])

    @functools.cached_property
    def _file_of_group(self) -> list[int]:
        # a list is five times as fast to look up one number
        files: list[int] = self._footers.file_of.tolist()
        return files

    def _arguments(self) -> dict[str, Any]:
        content = None if self._predicate is None else self._predicate.content()
        if '{"unnamed":' in canonical_json(content):  # no text or value in it is written like this
            reason = f"a function in the filter {self._predicate!r:.80} has no name; define it in a module"
            content = PartialContent(content, reason)
        return {"fields": [field.to_json() for field in self.schema], "filter": content}

    def __getstate__(self) -> dict[str, Any]:
        made_again = {"_cache", "_file_of_group"}
        if self._predicate is None:
            made_again.add("_selection")
        return {name: value for name, value in self.__dict__.items() if name not in made_again}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.limit_cache(self._max_cached_bytes)


class _ParquetAccess(SourceAccess):
    """Access to rows, whose row groups are the blocks."""

    source: ParquetDataset
    n_samples = property(attrgetter("source._selection.n_rows"))
    fixed_columns = property(lambda self: self.source._groups.are_gathered(self.source._names))
    releases_gil = property(
        lambda self: any(field.codec.releases_gil for field in self.source.schema)
    )

    @property
    def prefers_blocks(self) -> bool:  # type: ignore[override]  # read-only here
        dataset = self.source
        return (
            not dataset.is_local
            and dataset._groups.estimate_bytes(dataset._names) > dataset._max_cached_bytes
        )

    def sample(self, position: int) -> Sample:
        source = self.source
        group, row = source._selection.locate(position)
        columns = source._cache.columns(group, source._names)
        try:
            return {name: columns[name].value(row) for name in source._names}
        except CellError:  # raised again, with the place of the cell
            return {
                name: self._decode(group, name, columns[name].value, row) for name in source._names
            }

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        batch = self.batch(positions)
        rows = zip(*batch.values(), strict=True) if batch else itertools.repeat((), len(positions))
        return [dict(zip(batch, values, strict=True)) for values in rows]

    def batch(self, positions: IndexArrayOfInts) -> dict[str, npt.NDArray[Any]]:
        names = self.source._names
        return dict(zip(names, self._read(names, positions), strict=True))

    def columns(
        self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None
    ) -> list[npt.NDArray[Any]]:
        form = SampleForm("dict", tuple(self.source._names))
        wanted = np.arange(self.n_samples, dtype=np.int64) if positions is None else positions
        return self._read([form.find(key) for key in keys], wanted)

    def distinct_values(
        self, key: ColumnKey, positions: IndexArrayOfInts | None = None
    ) -> DistinctValues | None:
        source = self.source
        name = SampleForm("dict", tuple(source._names)).find(key)
        field = source.schema[name]
        if not field.cells.compares_cells(field, field.arrow_type()):
            return None
        n_samples = self.n_samples if positions is None else len(positions)
        if n_samples == 0:
            return None
        distinct = self._collect_distinct(name, positions, n_samples)
        if distinct is None:
            return None
        cells, first = distinct.find()
        try:
            column = field.cells.column(field, cells, has_nulls=source._groups.with_nulls[name])
            values = column.take(np.arange(len(cells)))
        except (ValueError, pa.ArrowException):  # raised again, with the place, when it is read
            return None
        return DistinctValues(values, first)

    def _collect_distinct(
        self, name: str, positions: IndexArrayOfInts | None, n_samples: int
    ) -> DistinctCells | None:
        """Read a column row group by row group for its distinct cells.

        None if Arrow cannot compare its cells, or if the distinct ones need much memory.
        """
        source = self.source
        selection = source._selection
        distinct = DistinctCells(n_samples)
        is_refused = threading.Event()

        def add_group(piece: tuple[int, Rows | None, Places]) -> None:
            group, rows, places = piece
            if is_refused.is_set() or distinct.n_bytes > _MAX_DISTINCT_BYTES:
                is_refused.set()
                return
            cells = source._reading(group, [name]).comparable_cells(name)
            if cells is None:
                is_refused.set()
                return
            if rows is not None:
                cells = cells.take(index_cells(rows.astype(np.int32)))
            distinct.add(cells, places)

        pieces: list[tuple[int, Rows | None, Places]]
        if positions is None:
            pieces = [(group, None, places) for group, places in selection.places_of_groups()]
        else:
            pieces = list(selection.locate_all(positions))
        JobThreads(pieces, add_group, n_threads()).run()
        return None if is_refused.is_set() else distinct

    def iterate(self, start: int, stop: int) -> Iterator[Sample]:
        return (
            itertools.islice(self._iterate(), stop) if start == 0 else super().iterate(start, stop)
        )

    def blocks(self) -> npt.NDArray[np.int64]:
        return self.source.block_lengths

    def prefetch(
        self, positions: IndexArrayOfInts, keys: Sequence[int | str] | None = None
    ) -> None:
        if len(positions):
            names = self.source._recent_names if keys is None else [str(key) for key in keys]
            self.source._cache.expect(self.source._selection.groups_of(positions), names)

    def locate(self, position: int) -> str:
        group, row = self.source._selection.locate(position)
        rows = self.source._selection.rows_of(group)
        return f"row {row if rows is None else rows[row]} of {self.source._footers.name_of(group)}"

    def declare_columns(self) -> dict[str, DeclaredColumn]:
        declared = {}
        for field in self.source.schema:
            type_ = (
                field.arrow_type() if isinstance(field.codec, ArrowCodec) else None
            )  # else its cells are bytes, not values
            declared[field.name] = DeclaredColumn(
                dtype_name(field.dtype), field.shape, field.nullable, type_
            )
        return declared

    def content_fingerprint(self) -> str:
        return digest_of_row_groups(self.source._footers, self.source._chosen)

    # ------------------------------------------------------------------ reading

    def _iterate(self) -> Iterator[Sample]:
        selection, cache, names = self.source._selection, self.source._cache, self.source._names
        for block, group in enumerate(selection.groups.tolist()):
            every = np.arange(selection.lengths[block])
            columns = cache.columns(group, names)
            cache.expect(selection.groups[block + 1 : block + 2].tolist(), names)
            for rows in np.split(every, every[_ROWS_AT_ONCE::_ROWS_AT_ONCE]):
                try:
                    values = [list(columns[name].take(rows)) for name in names]
                except CellError:  # damaged, or too much at once: one by one
                    for row in rows.tolist():
                        yield {
                            name: self._decode(group, name, columns[name].value, row)
                            for name in names
                        }
                else:
                    for sample in zip(*values, strict=True):
                        yield dict(zip(names, sample, strict=True))
            del columns  # before the next ones are read

    def _read(self, names: Sequence[str], positions: IndexArrayOfInts) -> list[npt.NDArray[Any]]:
        """Columns of the samples at ``positions``, row group by row group."""
        source = self.source
        if not len(positions):
            if not len(source):
                return [source._groups.empty(name) for name in names]
            return [column[:0] for column in self._read(names, np.zeros(1, np.int64))]
        source._recent_names = list(names)
        with decoding_for(current_request()):
            if (joined := self._read_joined(names, positions)) is not None:
                return joined
            parts = source._selection.locate_all(positions)
            if len(parts) == 1:
                ((group, rows, _),) = parts
                columns = source._cache.columns(group, names)
                return [self._decode(group, name, columns[name].take, rows) for name in names]
            return self._gather(names, parts)

    def _read_joined(self, names: Sequence[str], positions: IndexArrayOfInts) -> list[Any] | None:
        """What :meth:`_read` returns, by one copy of each column of all row groups together, of which many rows are wanted.

        None where few rows are wanted, the row groups are large, or any column is not an array of one dtype and shape.
        """
        if (
            len(positions) < _FEWEST_JOINED
            or (found := self.source._selection.joined(positions, _MAX_ROWS_FOR_ONE)) is None
        ):
            return None
        (groups, places), held, n_bytes = found, dict[int, Columns](), 0
        for group, columns in self._in_turn(names, groups):
            held[group] = columns
            n_bytes += sum(columns[name].n_bytes for name in names)
            expected = (
                n_bytes // len(held) * len(groups)
            )  # known from the first: no row group is read twice, with a small cache
            if expected > _MAX_JOINED_BYTES or not all(
                isinstance(columns[name], ArrayColumn) for name in names
            ):
                return None
        columns_of = [[held[group][name].array for group in groups] for name in names]  # type: ignore[attr-defined]  # see above
        is_alike = all(
            len({(part.dtype, part.shape[1:]) for part in parts}) == 1 for parts in columns_of
        )
        return (
            [np.concatenate(parts).take(places, axis=0) for parts in columns_of]
            if is_alike
            else None
        )

    def _in_turn(
        self, names: Sequence[str], groups: Iterable[int]
    ) -> Iterator[tuple[int, Columns]]:
        """Columns of row groups, in the order in which they are there."""
        cache, wanted = self.source._cache, dict.fromkeys(groups)
        while wanted:
            group = cache.next_to_read(wanted, names)
            del wanted[group]
            if wanted and not cache.has(
                group, names
            ):  # the others are not cached either: read them at the same time
                cache.expect(list(itertools.islice(wanted, _MAX_EXPECTED)), names)
            yield group, cache.columns(group, names)

    def _gather(self, names: Sequence[str], parts: list[tuple[int, Rows, Places]]) -> list[Any]:
        wanted, pieces, slots = {group: (rows, places) for group, rows, places in parts}, [], []
        for group, columns in self._in_turn(names, wanted):
            rows, places = wanted[group]
            slots.append(places)
            pieces.append([self._decode(group, name, columns[name].take, rows) for name in names])
            del columns  # before the next ones are read
        return [assemble(of_column, slots) for of_column in zip(*pieces, strict=True)]

    def _decode(self, group: int, name: str, decode: Callable[[Any], Any], rows: Any) -> Any:
        """The values of a row, or of rows, of a column."""
        try:
            return decode(rows)
        except CellError as error:
            raise self.source._groups.damage_error(
                group, name, error, self.source._selection.rows_of(group)
            ) from error


def _chosen_groups(choice: Any, footers: Footers) -> npt.NDArray[np.int64]:
    """The numbers of the chosen row groups, ascending.

    Raises:
        ConfigError: a row group does not exist, or the choice is invalid.
    """
    try:
        return np.unique(
            check_indices(range(len(footers)) if choice is None else list(choice), len(footers))
        ).astype(np.int64)
    except (DatasetOutOfBoundsError, TypeError) as error:
        raise ConfigError(
            f"row_groups must be numbers of the dataset's {len(footers)} row groups: {error}"
        ) from error
