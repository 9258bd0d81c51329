"""Reads a column of the record batches of Arrow files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.dataset.iterator.access import DeclaredColumn
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.formats.arrow_ipc.arrow_rows import ArrowRows
from data_stack.formats.arrow_ipc.cell_readers import CellReader, list_values
from data_stack.formats.arrow_ipc.errors import reading_arrow
from data_stack.formats.arrow_ipc.mapped_values import MappedValues
from data_stack.formats.column_reader import ColumnReader, as_int64
from data_stack.values.stacked_values import objects, python_values
from data_stack.values.stacking import join_columns

_Array = npt.NDArray[Any]

#: The number of record batches that are decoded at once where a whole column is read.
_BATCHES_AT_ONCE: Final = 64

#: Text is read value by value if a record batch has fewer rows of a request on average: to take a
#: slice costs as much as about eight values.
_ROWS_OF_SLICE: Final = 8


class BatchColumn(ColumnReader):
    """Reads a column of the record batches of Arrow files.

    Args:
        rows: the rows of the files.
        number: the position of the column in them.
        cells: makes the values of cells.
        n_columns: how many columns of the files are read.

    Attributes:
        cells: makes the values of cells.
    """

    cells: CellReader

    #: The rows of the files.
    _rows: ArrowRows

    #: The position of the column.
    _number: int

    #: How many columns of the files are read.
    _n_columns: int

    #: The values in the maps of the files; None if they are not there as numpy has them.
    _mapped: MappedValues | None

    def __init__(self, rows: ArrowRows, number: int, cells: CellReader, n_columns: int) -> None:
        self.cells = cells
        self._rows = rows
        self._number = number
        self._n_columns = n_columns
        self._mapped = None
        are_mapped = all(file.is_mapped for file in rows.files)
        if are_mapped and cells.declared.is_fixed:
            self._mapped = MappedValues(rows, number, cells)

    def __len__(self) -> int:
        return self._rows.n_rows

    def declare(self) -> DeclaredColumn:
        return self.cells.declared

    # ------------------------------------------------------------------ values

    def value(self, index: int) -> Any:
        batch, row = self._rows.locate(index)
        file, _ = self._rows.file_of(batch)
        self._rows.files[file].check_unchanged()
        if self._mapped is not None:
            value = self._mapped.value(file, batch, row)
            if value is not None:
                return value if value.ndim else python_values(value)
        values = self._read_mapped(np.array([index]))
        if values is not None:
            return list_values(values)[0]
        with self._reading(batch):
            return self.cells.value(self._rows.column(batch, self._number), row)

    def values(self, indices: IndexArrayOfInts) -> list[Any]:
        return list_values(self.read(as_int64(indices)))

    def read(self, indices: npt.NDArray[np.int64] | None) -> _Array:
        if indices is None:
            self._rows.check_unchanged()
            return self._read_all()
        if not len(indices):
            return self._no_values()
        batches, rows_in_batches = self._rows.locate_many(indices)
        self._rows.check_unchanged(batches)
        mapped_values = self._read_mapped(indices)
        if mapped_values is not None:
            return mapped_values
        distinct_batches = np.unique(batches)
        are_scattered = len(indices) < _ROWS_OF_SLICE * len(distinct_batches)
        if self.cells.is_fast_for_one and are_scattered:
            return self._read_one_by_one(batches, rows_in_batches, distinct_batches)
        return self._read_by_batch(indices)

    def _read_one_by_one(
        self,
        batches: npt.NDArray[np.int64],
        rows_in_batches: npt.NDArray[np.int64],
        distinct_batches: npt.NDArray[np.int64],
    ) -> _Array:
        """Return values of which a record batch has few.

        Args:
            batches: the record batch of each value.
            rows_in_batches: the position of each value in its record batch.
            distinct_batches: the record batches, each once.
        """
        numbers = distinct_batches.tolist()
        columns = dict(zip(numbers, self._rows.columns(numbers, self._number), strict=True))
        values = []
        with self._reading(numbers[0]):
            for batch, row in zip(batches.tolist(), rows_in_batches.tolist(), strict=True):
                values.append(self.cells.value(columns[batch], row))
        return objects(values)

    def _read_by_batch(self, indices: npt.NDArray[np.int64]) -> _Array:
        """Return values that are taken from each record batch by one call."""
        groups, order = self._rows.group_by_batch(indices)
        columns = self._rows.columns([group.batch for group in groups], self._number)
        with self._reading(groups[0].batch):
            pieces = []
            for group, column in zip(groups, columns, strict=True):
                pieces.append(column.take(pa.array(group.rows)))
            values = self._values_of_pieces(pieces)
        if order is None:
            return values
        in_order = np.empty_like(values)
        in_order[order] = values
        return in_order

    def _read_mapped(self, indices: npt.NDArray[np.int64]) -> _Array | None:
        """Return values out of the maps of the files; None if they are not there."""
        if self._mapped is None:
            return None
        values = self._mapped.read(indices)
        if values is None:
            self._mapped = None
        return values

    def _read_all(self) -> _Array:
        """Return all values."""
        if not self._rows.n_rows:
            return self._no_values()
        parts = []
        for start in range(0, self._rows.n_batches, _BATCHES_AT_ONCE):
            batches = range(start, min(start + _BATCHES_AT_ONCE, self._rows.n_batches))
            columns = self._rows.columns(batches, self._number, is_alone=True)
            pieces = [column for column in columns if len(column)]
            if pieces:
                with self._reading(start):
                    parts.append(self._values_of_pieces(pieces))
        return join_columns(parts)

    def _values_of_pieces(self, pieces: Sequence[pa.Array]) -> _Array:
        """Return the values of cells, all of them by one call if they fit into one array."""
        if len(pieces) == 1:
            return self.cells.values(pieces[0])
        try:
            cells = pa.concat_arrays(pieces)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            # An array of text has at most 2 GiB; the dictionaries of some types cannot be joined.
            return join_columns([self.cells.values(piece) for piece in pieces])
        return self.cells.values(cells)

    def _no_values(self) -> _Array:
        """Return no values, of the dtype and shape that values have."""
        if not self._rows.n_rows:
            return self.cells.values(pa.nulls(0, self._rows.schema.field(self._number).type))
        return self.read(np.zeros(1, np.int64))[:0]

    def _reading(self, batch: int) -> Any:
        """Name the file of a record batch in the errors of a block."""
        file, _ = self._rows.file_of(batch)
        return reading_arrow(self._rows.files[file].file.name)

    # ------------------------------------------------------------------ the store

    @property
    def remote_bytes(self) -> int:
        # Rows are fetched with all of their columns, of which this is one.
        return int(self._rows.row_bytes / self._n_columns)

    def fetch(self, positions: range) -> None:
        self._rows.fetch(positions)
