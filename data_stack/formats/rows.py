"""Contiguous rows of one size in a resource, fetched by position."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.columns import Column
from data_stack.io.positional import PositionalFile
from data_stack.values.exact import python_values

#: Rows this close are fetched together: a read costs about as much as this number of bytes.
_GAP_BYTES = 1 << 14
#: Maximum size of a request, so that a large batch is not in memory twice.
_REQUEST_BYTES = 16 << 20


class StoredRowsColumn(Column):
    """The rows of an array in C order, read on demand; the rows of a batch in one request if the store supports it.

    Args:
        file: the file of the array.
        offset: offset of the first row in bytes.
        shape: shape of the array; at least one dimension.
        dtype: dtype of the array.
    """

    def __init__(self, file: PositionalFile, offset: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._file, self._offset, self._length = file, offset, shape[0]
        self._row_shape, self._dtype = shape[1:], dtype
        self._row_bytes = math.prod(self._row_shape) * dtype.itemsize

    def __len__(self) -> int:
        return self._length

    @property
    def remote_bytes(self) -> int:
        return self._row_bytes if self._file.resource.prefetches else 0

    def value(self, index: int) -> Any:
        row = self._run(index, 1)[0]
        return row if self._row_shape else python_values(row)

    def read(self, indices: IndexArrayOfInts | None) -> npt.NDArray[Any]:
        if indices is None:
            return self._run(0, self._length)
        rows: npt.NDArray[Any] = np.empty((len(indices), *self._row_shape), self._dtype)
        if not len(indices) or not self._row_bytes:
            return rows
        order = np.argsort(indices, kind="stable")
        ascending = indices[order]
        steps = np.diff(ascending)
        if np.all(steps == 1) and np.array_equal(ascending, indices):
            return self._run(int(indices[0]), len(indices))
        pieces = ascending // max(1, _REQUEST_BYTES // self._row_bytes)
        breaks = np.flatnonzero((steps > 1 + _GAP_BYTES // self._row_bytes) | (np.diff(pieces) > 0)) + 1
        runs = np.split(np.arange(len(ascending)), breaks)
        while runs:
            group: list[npt.NDArray[np.int64]] = []
            n_bytes = 0
            while runs and (not group or n_bytes < _REQUEST_BYTES):
                run = runs.pop()
                n_bytes += int(ascending[run[-1]] - ascending[run[0]] + 1) * self._row_bytes
                group.append(run)
            self._fill(rows, order, ascending, group[::-1])
        return rows

    def _fill(
        self,
        rows: npt.NDArray[Any],
        order: npt.NDArray[np.int64],
        ascending: IndexArrayOfInts,
        runs: list[npt.NDArray[np.int64]],
    ) -> None:
        """Fetch runs of rows in one request into ``rows``."""
        bounds = [(int(ascending[run[0]]), int(ascending[run[-1]]) + 1) for run in runs]
        ranges = [(self._offset + first * self._row_bytes, (end - first) * self._row_bytes) for first, end in bounds]
        for run, (first, end), data in zip(runs, bounds, self._file.read_ranges(ranges), strict=True):
            if len(data) != (end - first) * self._row_bytes:
                raise self._cut_short(first, end - first, len(data))
            stored: npt.NDArray[Any] = np.ndarray((end - first, *self._row_shape), self._dtype, data)
            rows[order[run]] = stored[ascending[run] - first]

    def _run(self, first: int, count: int) -> npt.NDArray[Any]:
        """Read consecutive rows into a new array."""
        values = np.empty(count * self._row_bytes, np.uint8)
        n_read = self._file.readinto_at(self._offset + first * self._row_bytes, values.data)
        if n_read != len(values):
            raise self._cut_short(first, count, n_read)
        rows: npt.NDArray[Any] = np.ndarray((count, *self._row_shape), self._dtype, values.data)
        return rows

    def _cut_short(self, first: int, count: int, n_bytes: int) -> DatasetFileCorruptError:
        return DatasetFileCorruptError(
            f"{self._file.name!r} is cut short: expected {count * self._row_bytes} bytes at "
            f"{self._offset + first * self._row_bytes}, got {n_bytes}"
        )
