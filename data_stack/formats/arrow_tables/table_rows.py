"""Columns of a table whose rows stay in their file."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.dataset.iterator import Batch, ColumnKey, Sample
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.formats.arrow_tables.arrow_column import ArrowColumn
from data_stack.formats.arrow_tables.json_column import JsonColumn
from data_stack.formats.arrow_tables.values import add_piece, pieces_of_digest
from data_stack.formats.column_reader import as_int64
from data_stack.formats.columns import ColumnsAccess, ColumnsDatasetIterator

#: The number of samples that an iteration reads at once.
_SAMPLES_AT_ONCE: Final = 256


@dataclass(frozen=True, eq=False)
class StoredRows:
    """The rows of a table in a file, for messages.

    Attributes:
        file_name: the name of the file.
        chosen: the numbers of the rows in the file, shape ``(n,)``, from 0, without a header; None
            for all rows of the file.
    """

    file_name: str
    chosen: npt.NDArray[np.int64] | None = None

    def locate(self, position: int) -> str:
        """Return where a row is in the file."""
        row = position if self.chosen is None else int(self.chosen[position])
        return f"row {row} of {self.file_name}"


class TableRows(ABC):
    """A table whose rows are read from a file when they are needed.

    Threads may share it. It is pickled without the rows.

    Attributes:
        schema: the types of the columns.
        nullable: the columns that have a missing value in some row.
        json_columns: columns of JSON text, whose parsed values are the values of samples.
    """

    schema: pa.Schema
    nullable: Collection[str]
    json_columns: Collection[str]

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of rows."""

    @abstractmethod
    def read(
        self, positions: npt.NDArray[np.int64] | None, names: Sequence[str]
    ) -> dict[str, pa.ChunkedArray]:
        """Read columns of some rows.

        Args:
            positions: the positions of the rows, shape ``(n,)``; None for all rows.
            names: the names of the columns.

        Returns:
            The cells of each column, of its type in the schema.

        Raises:
            ResourceChangedError: the file has changed since it was opened.
        """

    @property
    def remote_bytes(self) -> int:
        """The mean size of a row in bytes, if rows are read by range from a store; otherwise 0."""
        return 0

    @property
    def stored_rows(self) -> StoredRows | None:
        """The rows in their file; None if they are in none."""
        return None

    def fetch(self, positions: range) -> None:  # noqa: B027  # most have nothing to fetch
        """Fetch neighbouring rows from a store into its cache."""


class ChosenRows(TableRows):
    """Some rows and columns of a table.

    Args:
        rows: the table.
        positions: the positions of the chosen rows, shape ``(n,)``.
        nullable: the columns that have a missing value in some chosen row.
        columns: the names of the chosen columns.
    """

    #: The table.
    _rows: TableRows

    #: The positions of the chosen rows.
    _positions: npt.NDArray[np.int64]

    def __init__(
        self,
        rows: TableRows,
        positions: npt.NDArray[np.int64],
        nullable: Collection[str],
        columns: Sequence[str],
    ) -> None:
        self.schema = pa.schema([rows.schema.field(name) for name in columns])
        self.nullable = nullable
        self.json_columns = rows.json_columns
        self._rows = rows
        self._positions = positions

    def __len__(self) -> int:
        return len(self._positions)

    def read(
        self, positions: npt.NDArray[np.int64] | None, names: Sequence[str]
    ) -> dict[str, pa.ChunkedArray]:
        if positions is None:
            return self._rows.read(self._positions, names)
        return self._rows.read(self._positions[positions], names)

    @property
    def remote_bytes(self) -> int:
        return self._rows.remote_bytes

    @property
    def stored_rows(self) -> StoredRows | None:
        all_rows = self._rows.stored_rows
        if all_rows is None:
            return None
        return replace(all_rows, chosen=self._positions)

    def fetch(self, positions: range) -> None:
        chosen = self._positions[positions.start : positions.stop]
        self._rows.fetch(range(int(chosen[0]), int(chosen[-1]) + 1))


class RowsColumn(ArrowColumn):
    """Reads a column of Arrow cells from the rows of a table.

    Args:
        rows: the table.
        name: the name of the column.
    """

    #: The table.
    _rows: TableRows

    def __init__(self, rows: TableRows, name: str) -> None:
        field = rows.schema.field(name)
        super().__init__(_make_cells_of_type(rows, name, field.type), field)
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def value(self, index: int) -> Any:
        return self.value_of_cell(self._take(np.array([index])), 0)

    @functools.cached_property
    def _array_reader(self) -> None:
        """None: the values are not in memory."""
        return None

    def _take(self, indices: npt.NDArray[np.int64] | None) -> pa.ChunkedArray:
        return self._rows.read(indices, [self.name])[self.name]


class JsonRowsColumn(JsonColumn):
    """Reads a column of JSON text from the rows of a table.

    Args:
        rows: the table.
        name: the name of the column.
    """

    #: The table.
    _rows: TableRows

    def __init__(self, rows: TableRows, name: str) -> None:
        super().__init__(_make_cells_of_type(rows, name, pa.string()), name)
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def value(self, index: int) -> Any:
        return self.value_of_cell(self._take(np.array([index])), 0)

    def values(self, indices: IndexArrayOfInts) -> list[Any]:
        return self.values_of_cells(self._take(as_int64(indices)))

    def _take(self, indices: npt.NDArray[np.int64] | None) -> pa.ChunkedArray:
        return self._rows.read(indices, [self.name])[self.name]


def _make_cells_of_type(rows: TableRows, name: str, type_: pa.DataType) -> pa.ChunkedArray:
    """Return cells from which a column learns its type: a null if it may have nulls, or none.

    The cells of the rows themselves stay in the file.
    """
    n_nulls = 1 if name in rows.nullable else 0
    return pa.chunked_array([pa.nulls(n_nulls, type_)])


def columns_of_rows(rows: TableRows) -> dict[str, RowsColumn | JsonRowsColumn]:
    """Return the readers of all columns of a table.

    Raises:
        ConfigError: the type of a column is unsupported.
    """
    columns: dict[str, RowsColumn | JsonRowsColumn] = {}
    for name in rows.schema.names:
        if name in rows.json_columns:
            columns[name] = JsonRowsColumn(rows, name)
        else:
            columns[name] = RowsColumn(rows, name)
    return columns


def digests_of_rows(rows: TableRows, columns: dict[str, RowsColumn | JsonRowsColumn]) -> list[str]:
    """Return what :meth:`ArrowColumn.digest` returns for each column, and read the rows once."""
    digests = {name: column.begin_digest() for name, column in columns.items()}
    for positions in pieces_of_digest(len(rows)):
        cells = rows.read(positions, list(columns))
        every_row = pa.array(np.arange(len(positions)))
        for name, digest in digests.items():
            # A digest counts bytes of nulls, which take() makes the same as for a table in memory.
            add_piece(digest, cells[name].take(every_row))
    return [digest.hexdigest() for digest in digests.values()]


class RowsAccess(ColumnsAccess):
    """Access to the rows of a table, of which each is read once for all of its columns.

    Args:
        source: the iterator over the table.
        rows: the table.
        columns: the readers of its columns.
    """

    #: The table.
    _rows: TableRows

    #: The readers of the columns of the table.
    _columns: Mapping[str, Any]

    def __init__(
        self, source: ColumnsDatasetIterator, rows: TableRows, columns: Mapping[str, Any]
    ) -> None:
        super().__init__(source)
        self._rows = rows
        self._columns = columns

    @property
    def fixed_columns(self) -> bool:  # type: ignore[override]  # read-only here
        """False: a row must be parsed, also if its columns have one dtype and shape."""
        return False

    def sample(self, position: int) -> Sample:
        return self.source._form.make(self.values_of_sample(position, self.source._form.keys))

    def values_of_sample(self, position: int, keys: Sequence[ColumnKey]) -> list[Any]:
        columns = self._columns_of(keys)
        cells = self._rows.read(np.array([position]), list(columns))
        names = [self.source._form.find(key) for key in keys]
        return [columns[name].value_of_cell(cells[name], 0) for name in names]

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        self.await_prefetched(positions)
        columns = self._columns_of(self.source._form.keys)
        cells = self._rows.read(as_int64(positions), list(columns))
        values = [column.values_of_cells(cells[name]) for name, column in columns.items()]
        return [self.source._form.make(row) for row in zip(*values, strict=True)]

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        self.await_prefetched(positions)
        arrays = self.columns(self.source._form.keys, positions)
        return self.source._form.make(arrays)  # type: ignore[no-any-return]  # a batch

    def columns(
        self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None
    ) -> list[npt.NDArray[Any]]:
        wide_positions = None if positions is None else as_int64(positions)
        columns = self._columns_of(keys)
        cells = self._rows.read(wide_positions, list(columns))
        names = [self.source._form.find(key) for key in keys]
        return [columns[name].array_of_cells(cells[name]) for name in names]

    def iterate(self, start: int, stop: int) -> Iterator[Any]:
        for first in range(start, stop, _SAMPLES_AT_ONCE):
            yield from self.samples(np.arange(first, min(first + _SAMPLES_AT_ONCE, stop)))

    def remote_bytes(self) -> float:
        return self._rows.remote_bytes

    def fetches(
        self, positions: range, keys: Sequence[ColumnKey] | None = None
    ) -> list[Callable[[], object]]:
        return [functools.partial(self._rows.fetch, positions)]

    def _columns_of(self, keys: Sequence[ColumnKey]) -> dict[str, RowsColumn | JsonRowsColumn]:
        """Return some columns, each once."""
        names = [self.source._form.find(key) for key in keys]
        return {name: self._columns[name] for name in names}
