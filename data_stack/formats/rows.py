"""Rows of one size that lie one behind the other in a resource, fetched by position."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.columns import Column
from data_stack.io.positional import PositionalFile
from data_stack.util.exact import python_values

__all__ = ["StoredRowsColumn", "is_read_whole"]

#: Rows that lie this close are fetched together: a read costs about as much as this many bytes.
_GAP_BYTES = 1 << 14
#: What one request brings at most, so that a large batch is not in memory twice.
_REQUEST_BYTES = 16 << 20
#: Columns of formats that could be read by row as well are read whole up to this size, for memory is faster: out of a file
#: on this machine, and out of a store that is far away.
_WHOLE_FILE_BYTES = 1 << 30
_WHOLE_REMOTE_BYTES = 32 << 20


def is_read_whole(file: PositionalFile, n_bytes: int) -> bool:
    """Whether a column of ``n_bytes`` is better read whole than by row."""
    return n_bytes <= (_WHOLE_REMOTE_BYTES if file.resource.prefetches else _WHOLE_FILE_BYTES)


class StoredRowsColumn(Column):
    """The rows of an array in C order, read when they are asked for; those of a batch in one request where the store can.

    Args:
        file: where they are.
        offset: where the first one begins.
        shape: of the array; at least one dimension.
        stored_dtype: of the array in the file.
        dtype: of the values that are handed out; None for that of the file.
    """

    def __init__(
        self,
        file: PositionalFile,
        offset: int,
        shape: tuple[int, ...],
        stored_dtype: np.dtype[Any],
        dtype: np.dtype[Any] | None = None,
    ) -> None:
        self._file, self._offset, self._length = file, offset, shape[0]
        self._row_shape, self._stored_dtype = shape[1:], stored_dtype
        self._dtype = stored_dtype if dtype is None else dtype
        self._row_bytes = math.prod(self._row_shape) * stored_dtype.itemsize

    def __len__(self) -> int:
        return self._length

    def value(self, index: int) -> Any:
        row = self._run(index, 1)[0]
        return row if self._row_shape else python_values(row)

    def read(self, indices: IndexArrayOfInts | None) -> npt.NDArray[Any]:
        if indices is None:
            return self._run(0, self._length)
        rows: npt.NDArray[Any] = np.empty((len(indices), *self._row_shape), self._stored_dtype)
        if not len(indices) or not self._row_bytes:
            return rows.astype(self._dtype, copy=False)
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
        return rows.astype(self._dtype, copy=False)

    def _fill(
        self,
        rows: npt.NDArray[Any],
        order: npt.NDArray[np.int64],
        ascending: IndexArrayOfInts,
        runs: list[npt.NDArray[np.int64]],
    ) -> None:
        """Fetch runs of rows in one request, and put them in their places."""
        bounds = [(int(ascending[run[0]]), int(ascending[run[-1]]) + 1) for run in runs]
        ranges = [(self._offset + first * self._row_bytes, (end - first) * self._row_bytes) for first, end in bounds]
        for run, (first, end), data in zip(runs, bounds, self._file.read_ranges(ranges), strict=True):
            if len(data) != (end - first) * self._row_bytes:
                raise self._cut_short(first, end - first, len(data))
            stored: npt.NDArray[Any] = np.ndarray((end - first, *self._row_shape), self._stored_dtype, data)
            rows[order[run]] = stored[ascending[run] - first]

    def _run(self, first: int, count: int) -> npt.NDArray[Any]:
        """Rows that follow each other, read into the array that is handed out."""
        values = np.empty(count * self._row_bytes, np.uint8)
        n_read = self._file.readinto_at(self._offset + first * self._row_bytes, values.data)
        if n_read != len(values):
            raise self._cut_short(first, count, n_read)
        rows: npt.NDArray[Any] = np.ndarray((count, *self._row_shape), self._stored_dtype, values.data)
        return rows.astype(self._dtype, copy=False)

    def _cut_short(self, first: int, count: int, n_bytes: int) -> DatasetFileCorruptError:
        return DatasetFileCorruptError(
            f"{self._file.name!r} is cut short: {count * self._row_bytes} bytes at {self._offset + first * self._row_bytes} "
            f"were expected, {n_bytes} are there"
        )
