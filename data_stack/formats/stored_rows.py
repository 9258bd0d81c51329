"""Reads the rows of an array that is stored in C order in a file."""

from __future__ import annotations

import itertools
import math
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.column_reader import ColumnReader
from data_stack.formats.mapped_files import map_sealed_file
from data_stack.io.positional import PositionalFile
from data_stack.values.stacked_values import python_values
from data_stack.values.stacking import take_runs

#: Ranges this close are fetched together: a request costs about as much as this number of bytes.
_GAP_BYTES: Final = 1 << 14

#: The maximum size of a request, so that a large batch is not in memory twice.
_REQUEST_BYTES: Final = 16 << 20


class StoredRowsReader(ColumnReader):
    """Reads the rows of an array on demand, those of a batch in one request if the store can.

    Args:
        file: the file of the array.
        offset: the offset of the first row in bytes.
        shape: the shape of the array; at least one dimension.
        dtype: the dtype of the array.
        mapped: map the file into memory if it is local and may not be cut short.
    """

    #: The file of the array.
    _file: PositionalFile

    #: The offset of the first row in bytes.
    _offset: int

    #: The number of rows.
    _length: int

    #: The shape of a row.
    _row_shape: tuple[int, ...]

    #: The size of a row in bytes.
    _row_bytes: int

    #: The dtype of the array.
    _dtype: np.dtype[Any]

    #: All rows, mapped into memory; None if the file is read.
    _mapped_rows: npt.NDArray[Any] | None

    def __init__(
        self,
        file: PositionalFile,
        offset: int,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        *,
        mapped: bool = False,
    ) -> None:
        self._file = file
        self._offset = offset
        self._length = shape[0]
        self._row_shape = shape[1:]
        self._dtype = dtype
        self._row_bytes = math.prod(self._row_shape) * dtype.itemsize
        self._mapped_rows = self._map_rows() if mapped else None

    def _map_rows(self) -> npt.NDArray[Any] | None:
        """Map the rows into memory; return None if the file must be read instead."""
        n_bytes = self._length * self._row_bytes
        if n_bytes == 0:
            return None
        data = map_sealed_file(self._file)
        if data is None or self._offset + n_bytes > self._file.size:
            return None
        shape = (self._length, *self._row_shape)
        rows: npt.NDArray[Any] = np.ndarray(shape, self._dtype, data, self._offset)
        return rows

    def __len__(self) -> int:
        return self._length

    @property
    def remote_bytes(self) -> int:
        if not self._file.resource.prefetches:
            return 0
        return self._row_bytes

    def fetch(self, positions: range) -> None:
        start = self._offset + positions.start * self._row_bytes
        self._file.resource.prefetch([(start, len(positions) * self._row_bytes)])

    def value(self, index: int) -> Any:
        row = self._read_run(index, 1)[0]
        if self._row_shape:
            return row
        return python_values(row)

    def read(self, indices: IndexArrayOfInts | None) -> npt.NDArray[Any]:
        if indices is None:
            return self._read_run(0, self._length)
        are_consecutive = len(indices) > 0 and bool((np.diff(indices) == 1).all())
        if are_consecutive:
            return self._read_run(int(indices[0]), len(indices))
        mapped_rows = self._check_mapped_rows()
        if mapped_rows is None:
            return self._read_runs(indices, 1)[:, 0]
        # take() is faster, but first copies an array whose rows are not aligned.
        if mapped_rows.flags.aligned:
            return mapped_rows.take(indices, axis=0)
        return mapped_rows[indices]

    def runs(self, starts: IndexArrayOfInts, length: int) -> npt.NDArray[Any]:
        mapped_rows = self._check_mapped_rows()
        if mapped_rows is None:
            return self._read_runs(starts, length)
        return take_runs(mapped_rows, starts, length)

    def _check_mapped_rows(self) -> npt.NDArray[Any] | None:
        """Return all rows if they are mapped, otherwise None.

        Raises:
            UnpicklableResourceError: the file was opened by a caller, in the parent of this
                process.
        """
        if self._mapped_rows is not None:
            self._file.check_usable()
        return self._mapped_rows

    def _read_run(self, first: int, n_rows: int) -> npt.NDArray[Any]:
        """Read consecutive rows into a new array, shape ``(n_rows, ...)``."""
        mapped_rows = self._check_mapped_rows()
        if mapped_rows is not None:
            copied: npt.NDArray[Any] = mapped_rows[first : first + n_rows].copy()
            return copied
        data = np.empty(n_rows * self._row_bytes, np.uint8)
        start = self._offset + first * self._row_bytes
        n_read = self._file.readinto_at(start, data.data)
        if n_read != len(data):
            raise _cut_short_error(self._file, start, start + len(data))
        rows: npt.NDArray[Any] = np.ndarray((n_rows, *self._row_shape), self._dtype, data.data)
        return rows

    def _read_runs(self, firsts: IndexArrayOfInts, n_rows: int) -> npt.NDArray[Any]:
        """Read consecutive rows from several positions on into a new array.

        Args:
            firsts: the first row of each run, shape ``(n,)``.
            n_rows: the number of rows in each run.

        Returns:
            An array of shape ``(n, n_rows, ...)``.
        """
        runs: npt.NDArray[Any] = np.empty((len(firsts), n_rows, *self._row_shape), self._dtype)
        run_bytes = n_rows * self._row_bytes
        if run_bytes == 0:
            return runs
        n_at_once = max(1, _REQUEST_BYTES // run_bytes)
        for first_run in range(0, len(firsts), n_at_once):
            chosen = slice(first_run, first_run + n_at_once)
            starts = self._offset + firsts[chosen] * self._row_bytes
            data = b"".join(read_together(self._file, starts, starts + run_bytes))
            runs[chosen] = np.ndarray((len(starts), *runs.shape[1:]), self._dtype, data)
        return runs


def read_together(
    file: PositionalFile, starts: IndexArrayOfInts, ends: IndexArrayOfInts
) -> list[bytes]:
    """Read some ranges of a file, in one request if the store can.

    Ranges that lie close together are read as one.

    Args:
        file: the file.
        starts: the first byte of each range, shape ``(n,)``.
        ends: the end of each range, exclusive.

    Returns:
        The bytes of each range, in the given order.

    Raises:
        DatasetFileCorruptError: the file ends before the end of a range.
    """
    if not len(starts):
        return []
    # Sort the ranges by their starts, and break them where the gap to the next range is large. The
    # ranges between two breaks are read as one span.
    order = np.argsort(starts, kind="stable")
    sorted_starts = starts[order]
    ends_so_far = np.maximum.accumulate(ends[order])
    has_gap_before = sorted_starts[1:] > ends_so_far[:-1] + _GAP_BYTES
    breaks = np.flatnonzero(has_gap_before) + 1
    bounds = [0, *breaks.tolist(), len(order)]

    # Read all spans, each given by its offset and size.
    spans = []
    for first, stop in itertools.pairwise(bounds):
        span_start = int(sorted_starts[first])
        span_end = int(ends_so_far[stop - 1])
        spans.append((span_start, span_end - span_start))
    views = file.read_views(spans)

    # Copy each range out of its span, and put the ranges into the given order.
    data = [b""] * len(order)
    order_list = order.tolist()
    start_list = starts.tolist()
    end_list = ends.tolist()
    for number, (first, stop) in enumerate(itertools.pairwise(bounds)):
        span_start, span_bytes = spans[number]
        view = views[number]
        if len(view) != span_bytes:
            raise _cut_short_error(file, span_start, span_start + span_bytes)
        for index in order_list[first:stop]:
            begin = start_list[index] - span_start
            data[index] = bytes(view[begin : end_list[index] - span_start])
    return data


def _cut_short_error(file: PositionalFile, start: int, end: int) -> DatasetFileCorruptError:
    return DatasetFileCorruptError(
        f"{file.name!r} is cut short: it ends within the bytes {start:,} to {end:,}"
    )
