"""Reads samples of a Parquet dataset."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.dataset.iterator import ColumnKey, Sample, SampleAccess
from data_stack.dataset.iterator.access import DeclaredColumn, DistinctValues
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import DataStackError
from data_stack.formats.parquet.codecs import ArrowCodec
from data_stack.formats.parquet.codecs.cells import index_cells
from data_stack.formats.parquet.columns import ArrayColumn, CellError, GroupColumn
from data_stack.formats.parquet.content_digest import digest_of_row_groups
from data_stack.formats.parquet.distinct import DistinctCells
from data_stack.formats.parquet.filtering import RowSelector
from data_stack.formats.parquet.row_group_cache import Columns, RowGroupCache
from data_stack.formats.parquet.row_group_reader import RowGroupReader
from data_stack.formats.parquet.row_groups import RowGroups
from data_stack.formats.parquet.schema import Schema
from data_stack.formats.parquet.selection import RowsOfGroup, Selection
from data_stack.formats.parquet.types import dtype_name
from data_stack.io.job_threads import JobThreads
from data_stack.util.executor import n_threads
from data_stack.util.request_limit import current_request, decoding_for
from data_stack.values.stacking import SampleForm, assemble

#: Number of rows that an iteration decodes together.
_N_ROWS_AT_ONCE = 256
#: Maximum number of row groups of a batch that are candidates for prefetching.
_MAX_CANDIDATES = 16

#: A request may join the columns of its row groups before it takes its rows, which is faster than
#: taking rows from each row group. It does so if the row groups have at most this many rows for
#: each row that it asks for.
_MAX_ROWS_PER_SAMPLE = 8
#: Requests for fewer rows do not join columns.
_MIN_JOINED_ROWS = 1024
#: Row groups of more bytes together are not joined.
_MAX_JOINED_BYTES = 32 << 20

#: The most memory that the distinct cells of a column may take while they are counted. For more,
#: the caller counts digests of the values, which take less.
_MAX_DISTINCT_BYTES = 256 << 20


class ParquetAccess(SampleAccess):
    """Access to rows, whose row groups are the blocks.

    It pickles without the cache.

    Args:
        groups: the row groups.
        schema: the fields of the samples, all or some of those of the row groups.
        selector: selects the rows.
        max_cached_bytes: limit of the cache of row groups, in bytes.

    Attributes:
        groups: the row groups.
        schema: the fields of the samples.
        selector: selects the rows.
        max_cached_bytes: limit of the cache of row groups, in bytes.
        cache: the cache of row groups.
    """

    groups: RowGroups
    schema: Schema
    selector: RowSelector
    max_cached_bytes: int
    cache: RowGroupCache

    #: The names of the columns.
    _names: list[str]

    #: The columns of the last request: those to prefetch.
    _recent_names: list[str]

    #: The file of each row group: a list is five times as fast to look up one number.
    _file_of_group: list[int]

    def __init__(
        self, groups: RowGroups, schema: Schema, selector: RowSelector, max_cached_bytes: int
    ) -> None:
        self.groups = groups
        self.schema = schema
        self.selector = selector
        self._names = list(schema.fields)
        self._recent_names = self._names
        self._prepare_cache(max_cached_bytes)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        # _prepare_cache() makes these two again.
        del state["cache"]
        del state["_file_of_group"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare_cache(self.max_cached_bytes)

    def _prepare_cache(self, max_cached_bytes: int) -> None:
        """Set the attributes that are not pickled."""
        self._file_of_group = self.groups.footers.file_of.tolist()
        self.limit_cache(max_cached_bytes)

    def limit_cache(self, max_cached_bytes: int) -> None:
        """Empty the cache of row groups, and change its limit."""
        self.max_cached_bytes = max_cached_bytes
        self.cache = RowGroupCache(self._open_group, max_cached_bytes, self._check_group)

    def _open_group(self, group: int, names: Sequence[str]) -> RowGroupReader:
        """Return a reader of the selected rows of a row group."""
        return self.groups.open(group, names, self.selection.rows_of(group))

    def _check_group(self, group: int) -> None:
        """Raise if the local file of a row group is not the one that was opened.

        In a store, that would be a request.
        """
        self.groups.footers.check_local(self._file_of_group[group])

    # ------------------------------------------------------------------ what is known

    @property
    def selection(self) -> Selection:
        """The selected rows."""
        return self.selector.selection

    @property
    def n_samples(self) -> int:  # type: ignore[override]  # read-only here
        return self.selector.selection.n_rows

    @property
    def fixed_columns(self) -> bool:  # type: ignore[override]  # read-only here
        return self.groups.are_gathered(self._names)

    @property
    def releases_gil(self) -> bool:  # type: ignore[override]  # read-only here
        return any(field.codec.releases_gil for field in self.schema)

    @property
    def prefers_blocks(self) -> bool:  # type: ignore[override]  # read-only here
        is_local = self.groups.footers.files.is_local
        return not is_local and self.groups.estimate_bytes(self._names) > self.max_cached_bytes

    def blocks(self) -> npt.NDArray[np.int64]:
        return self.selection.lengths

    def locate(self, position: int) -> str:
        group, row = self.selection.locate(position)
        rows = self.selection.rows_of(group)
        if rows is not None:
            row = int(rows[row])
        return f"row {row} of {self.groups.footers.name_of(group)}"

    def declare_columns(self) -> dict[str, DeclaredColumn]:
        declared = {}
        for field in self.schema:
            arrow_type = None
            if isinstance(field.codec, ArrowCodec):  # cells of other codecs are bytes, not values
                arrow_type = field.arrow_type()
            declared[field.name] = DeclaredColumn(
                dtype_name(field.dtype), field.shape, field.nullable, arrow_type
            )
        return declared

    def content_fingerprint(self) -> str:
        return digest_of_row_groups(self.groups.footers, self.selector.chosen)

    # ------------------------------------------------------------------ samples

    def sample(self, position: int) -> Sample:
        group, row = self.selector.selection.locate(position)
        columns = self.cache.columns(group, self._names)
        return self._sample_of(columns, group, row)

    def _sample_of(self, columns: Columns, group: int, row: int) -> Sample:
        """Return the sample at a selected row of a row group.

        Raises:
            DataStackError: a cell is damaged; the message names the row and the field.
        """
        sample: dict[str, Any] = {}
        name = ""  # the field of a damaged cell
        try:
            for name in self._names:
                sample[name] = columns[name].value(row)
        except CellError as error:
            raise self._damage_error(group, name, error) from error
        return sample

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        batch = self.batch(positions)
        if not batch:  # the schema has no fields
            return [{} for _ in range(len(positions))]
        rows = zip(*batch.values(), strict=True)
        return [dict(zip(batch, values, strict=True)) for values in rows]

    def batch(self, positions: IndexArrayOfInts) -> dict[str, npt.NDArray[Any]]:
        return dict(zip(self._names, self._read(self._names, positions), strict=True))

    def columns(
        self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None
    ) -> list[npt.NDArray[Any]]:
        names = self._find_names(keys)
        if positions is None:
            positions = np.arange(self.n_samples, dtype=np.int64)
        return self._read(names, positions)

    def _find_names(self, keys: Sequence[ColumnKey]) -> list[str]:
        """Return the names of columns.

        Raises:
            ConfigError: the samples have no such column.
        """
        form = SampleForm("dict", tuple(self._names))
        return [str(form.find(key)) for key in keys]

    def iterate(self, start: int, stop: int) -> Iterator[Sample]:
        if start == 0:  # all samples, or the first ones
            return itertools.islice(self._iterate_all(), stop)
        return super().iterate(start, stop)

    def _iterate_all(self) -> Iterator[Sample]:
        """Yield all samples, row group by row group. The next row group is read meanwhile."""
        groups = self.selection.groups.tolist()
        for block, group in enumerate(groups):
            columns = self.cache.columns(group, self._names)
            self.cache.prefetch(groups[block + 1 : block + 2], self._names)
            n_rows = int(self.selection.lengths[block])
            for start in range(0, n_rows, _N_ROWS_AT_ONCE):
                rows = np.arange(start, min(start + _N_ROWS_AT_ONCE, n_rows))
                yield from self._iterate_rows(columns, group, rows)
            del columns  # may release memory before the next row group is read

    def _iterate_rows(
        self, columns: Columns, group: int, rows: npt.NDArray[np.int64]
    ) -> Iterator[Sample]:
        try:
            values = [list(columns[name].take(rows)) for name in self._names]
        except CellError:
            # A cell is damaged, or the cells are too large together: yield those before it.
            for row in rows.tolist():
                yield self._sample_of(columns, group, row)
        else:
            for values_of_sample in zip(*values, strict=True):
                yield dict(zip(self._names, values_of_sample, strict=True))

    # ------------------------------------------------------------------ columns

    def _read(self, names: Sequence[str], positions: IndexArrayOfInts) -> list[npt.NDArray[Any]]:
        """Read columns of the samples at ``positions``."""
        if not len(positions):
            return self._empty_columns(names)
        self._recent_names = list(names)
        with decoding_for(current_request()):
            joined = self._read_joined(names, positions)
            if joined is not None:
                return joined
            return self._read_group_by_group(names, self.selection.locate_many(positions))

    def _empty_columns(self, names: Sequence[str]) -> list[npt.NDArray[Any]]:
        """Return columns without rows, of the dtypes and shapes that rows have."""
        if not self.n_samples:
            return [self.groups.empty(name) for name in names]
        first_sample = self._read(names, np.zeros(1, np.int64))
        return [column[:0] for column in first_sample]

    def _read_group_by_group(
        self, names: Sequence[str], parts: Sequence[RowsOfGroup]
    ) -> list[npt.NDArray[Any]]:
        """Read columns of samples from each row group, and put them into order."""
        if len(parts) == 1:
            (part,) = parts
            columns = self.cache.columns(part.group, names)
            return [self._take(columns[name], part.group, name, part.positions) for name in names]
        part_of_group = {part.group: part for part in parts}
        pieces: list[list[npt.NDArray[Any]]] = [[] for _ in names]
        places: list[npt.NDArray[np.intp]] = []
        for group, columns in self._read_groups(names, part_of_group):
            part = part_of_group[group]
            places.append(part.places)
            for name, pieces_of_column in zip(names, pieces, strict=True):
                pieces_of_column.append(self._take(columns[name], group, name, part.positions))
            del columns  # may release memory before the next row group is read
        return [assemble(pieces_of_column, places) for pieces_of_column in pieces]

    def _read_joined(
        self, names: Sequence[str], positions: IndexArrayOfInts
    ) -> list[npt.NDArray[Any]] | None:
        """Read columns of row groups as wholes, and take the samples from all of them at once.

        Returns:
            The columns; None if few rows are wanted, if the row groups are large, or if a column is
            not an array of one dtype and shape.
        """
        if len(positions) < _MIN_JOINED_ROWS:
            return None
        located = self.selection.locate_in_joined_groups(positions, _MAX_ROWS_PER_SAMPLE)
        if located is None:
            return None
        groups, places = located
        arrays = self._read_arrays(names, groups)
        if arrays is None:
            return None
        parts_of_columns: list[list[npt.NDArray[Any]]] = []
        for name in names:
            parts = [arrays[group][name] for group in groups]
            forms = {(part.dtype, part.shape[1:]) for part in parts}
            if len(forms) > 1:
                return None
            parts_of_columns.append(parts)
        # Only now, as joining takes memory: all columns can be joined.
        return [np.concatenate(parts).take(places, axis=0) for parts in parts_of_columns]

    def _read_arrays(
        self, names: Sequence[str], groups: Sequence[int]
    ) -> dict[int, dict[str, npt.NDArray[Any]]] | None:
        """Read columns of row groups as arrays, by row group and name.

        Returns:
            The arrays; None if a column is not an array, or if all are too large together.
        """
        arrays: dict[int, dict[str, npt.NDArray[Any]]] = {}
        n_bytes = 0
        for group, columns in self._read_groups(names, groups):
            arrays_of_group: dict[str, npt.NDArray[Any]] = {}
            for name in names:
                column = columns[name]
                if not isinstance(column, ArrayColumn):
                    return None
                arrays_of_group[name] = column.array
                n_bytes += column.n_bytes
            arrays[group] = arrays_of_group
            # Estimated from the first row group on: stopping later, with a small cache, row groups
            # would have to be read again.
            expected_bytes = n_bytes // len(arrays) * len(groups)
            if expected_bytes > _MAX_JOINED_BYTES:
                return None
        return arrays

    def _read_groups(
        self, names: Sequence[str], groups: Iterable[int]
    ) -> Iterator[tuple[int, Columns]]:
        """Yield row groups with their columns; first those that are cached or prefetched."""
        remaining = dict.fromkeys(groups)
        while remaining:
            group = self.cache.next_to_read(remaining, names)
            del remaining[group]
            # If the next one is not there, neither is any other: read some at the same time.
            if remaining and not self.cache.has(group, names):
                candidates = list(itertools.islice(remaining, _MAX_CANDIDATES))
                self.cache.prefetch(candidates, names)
            yield group, self.cache.columns(group, names)

    def _take(
        self, column: GroupColumn, group: int, name: str, rows: npt.NDArray[np.int64]
    ) -> npt.NDArray[Any]:
        """Take rows of a column; a damaged cell raises with its row and field."""
        try:
            return column.take(rows)
        except CellError as error:
            raise self._damage_error(group, name, error) from error

    def _damage_error(self, group: int, name: str, error: CellError) -> DataStackError:
        """Return the error that names the row and the field of a damaged cell."""
        return self.groups.damage_error(group, name, error, self.selection.rows_of(group))

    def prefetch(
        self, positions: IndexArrayOfInts, keys: Sequence[int | str] | None = None
    ) -> None:
        if not len(positions):
            return
        names = self._recent_names if keys is None else [str(key) for key in keys]
        self.cache.prefetch(self.selection.groups_of(positions), names)

    # ------------------------------------------------------------------ distinct values

    def distinct_values(
        self, key: ColumnKey, positions: IndexArrayOfInts | None = None
    ) -> DistinctValues | None:
        (name,) = self._find_names([key])
        field = self.schema[name]
        n_samples = self.n_samples if positions is None else len(positions)
        if n_samples == 0 or not field.cells.compares_cells(field, field.arrow_type()):
            return None
        distinct = self._collect_distinct_cells(name, positions, n_samples)
        if distinct is None:
            return None
        cells, first = distinct.find()
        try:
            has_nulls = self.groups.with_nulls[name]
            column = field.cells.column(field, cells, has_nulls=has_nulls)
            values = column.take(np.arange(len(cells)))
        except (ValueError, pa.ArrowException):  # raised again, with the place, when it is read
            return None
        return DistinctValues(values, first)

    def _collect_distinct_cells(
        self, name: str, positions: IndexArrayOfInts | None, n_samples: int
    ) -> DistinctCells | None:
        """Read a column row group by row group for its distinct cells.

        Returns:
            The cells; None if Arrow cannot compare them, or if they need much memory.
        """
        distinct = DistinctCells(n_samples)
        is_refused = threading.Event()

        def add_group(part: RowsOfGroup) -> None:
            if is_refused.is_set():
                return
            if distinct.n_bytes > _MAX_DISTINCT_BYTES:
                is_refused.set()
                return
            cells = self._open_group(part.group, [name]).comparable_cells(name)
            if cells is None:
                is_refused.set()
                return
            if positions is not None:
                cells = cells.take(index_cells(part.positions.astype(np.int32)))
            distinct.add(cells, part.places)

        if positions is None:
            parts = self.selection.locate_all()
        else:
            parts = self.selection.locate_many(positions)
        JobThreads(parts, add_group, n_threads()).run()
        return None if is_refused.is_set() else distinct
