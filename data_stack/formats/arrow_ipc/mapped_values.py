"""Reads values of one dtype and shape out of the maps of Arrow files."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.formats.arrow_ipc.arrow_rows import ArrowRows
from data_stack.formats.arrow_ipc.cell_readers import CellReader

_Array = npt.NDArray[Any]
_Integers = npt.NDArray[np.int64]

#: Marks a record batch whose values were not found yet.
_UNKNOWN: Final = -1


class MappedValues:
    """Reads values of one dtype and shape out of the maps of Arrow files.

    Where the values of each record batch begin in the map of its file is found once. Then a batch
    of samples is one indexing of numpy for each file, from however many record batches: 20 times
    as fast as to take the rows of 200 record batches one after the other.

    Args:
        rows: the rows of the files, all of which are mapped.
        number: the position of the column.
        cells: makes the values of cells, which have one dtype and shape.
    """

    #: The rows of the files.
    _rows: ArrowRows

    #: The position of the column.
    _number: int

    #: Makes the values of cells.
    _cells: CellReader

    #: The dtype of the values.
    _dtype: np.dtype[Any]

    #: The shape of each value.
    _shape: tuple[int, ...]

    #: The number of items of each value.
    _n_items: int

    #: The map of each file that was read, as windows of as many items as a value has.
    _windows: dict[int, _Array]

    #: The item in the map of its file at which the values of each record batch begin.
    _firsts: _Integers

    def __init__(self, rows: ArrowRows, number: int, cells: CellReader) -> None:
        self._rows = rows
        self._number = number
        self._cells = cells
        declared = cells.declared
        self._dtype = np.dtype(declared.dtype)
        self._shape = tuple(size or 0 for size in declared.shape or ())
        self._n_items = math.prod(self._shape)
        self._windows = {}
        self._firsts = np.full(rows.n_batches, _UNKNOWN, np.int64)

    def read(self, positions: _Integers) -> _Array | None:
        """Return the values of rows.

        Returns:
            Shape ``(n, ...)``; None if the maps do not hold the values as numpy has them: truth
            values are bits, and some writers do not align numbers.
        """
        if not self._n_items:
            return None
        batches, rows_in_batches = self._rows.locate_many(positions)
        firsts = self._firsts[batches]
        unknown = firsts == _UNKNOWN
        if unknown.any():
            for batch in np.unique(batches[unknown]).tolist():
                first = self._find_first(batch)
                if first is None:
                    return None
                self._firsts[batch] = first
            firsts = self._firsts[batches]
        return self._take(batches, firsts + rows_in_batches * self._n_items)

    def value(self, file: int, batch: int, row: int) -> _Array | None:
        """Return one value, with a shape of ``()`` if it is a number.

        Args:
            file: the number of the file.
            batch: the record batch of the value.
            row: the position of the value in it.

        Returns:
            None if the record batch was not read before.
        """
        first = int(self._firsts[batch])
        if first == _UNKNOWN:
            return None
        items = self._windows[file][first + row * self._n_items]
        value: _Array = items.reshape(self._shape).copy()
        return value

    def _take(self, batches: _Integers, starts: _Integers) -> _Array:
        """Return the values that begin at items of the maps.

        Args:
            batches: the record batch of each value.
            starts: the item at which each value begins.
        """
        values = np.empty((len(starts), self._n_items), self._dtype)
        files = self._rows.files_of(batches)
        for file in np.unique(files).tolist():
            places = np.flatnonzero(files == file)
            values[places] = self._windows[file][starts[places]]
        return values.reshape(len(starts), *self._shape)

    def _find_first(self, batch: int) -> int | None:
        """Return the item at which the values of a record batch begin; None if it has none."""
        cells = self._rows.column(batch, self._number)
        values = self._cells.values(cells, lent=True)
        if values.dtype != self._dtype or not values.flags.c_contiguous:
            return None
        file, _ = self._rows.file_of(batch)
        mapped = np.frombuffer(self._rows.files[file].map or b"", np.uint8)
        n_bytes = _address_of(values) - _address_of(mapped)
        first, n_misaligned_bytes = divmod(n_bytes, self._dtype.itemsize)
        is_in_map = n_bytes >= 0 and n_bytes + values.nbytes <= len(mapped)
        if not is_in_map or n_misaligned_bytes > 0:
            return None
        if file not in self._windows:
            n_items_in_map = len(mapped) // self._dtype.itemsize
            items = mapped[: n_items_in_map * self._dtype.itemsize].view(self._dtype)
            windows = np.lib.stride_tricks.sliding_window_view(items, self._n_items)
            self._windows[file] = windows
        return first


def _address_of(values: _Array) -> int:
    """Return where the values of an array are in memory."""
    address: int = values.__array_interface__["data"][0]
    return address
