"""Reads the rows of a dataset of HDF5."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.column_reader import ColumnReader
from data_stack.formats.hdf5.file import HDF5File
from data_stack.formats.stored_rows import StoredRowsReader
from data_stack.io.positional import PositionalFile
from data_stack.util.request_limit import check_request, current_request, limit_bytes
from data_stack.values.stacked_values import python_values
from data_stack.values.stacking import take_runs


def open_rows(file: HDF5File, dataset: Any, encoding: str | None) -> ColumnReader:
    """Return a reader of a dataset's rows.

    Plain numbers that are stored contiguously are read by position, all else by HDF5.

    Args:
        file: the file of the dataset.
        dataset: a dataset of h5py.
        encoding: the encoding of strings; None for bytes.
    """
    if not _is_plain(dataset):
        return DatasetReader(file, dataset, encoding)
    offset = dataset.id.get_offset()
    bytes_of_file = PositionalFile(file.resource)
    return StoredRowsReader(bytes_of_file, offset, dataset.shape, dataset.dtype, mapped=True)


def _is_plain(dataset: Any) -> bool:
    """Return whether the file holds the numbers of a dataset end to end, as numpy has them."""
    stored = dataset.id
    if stored.get_create_plist().get_layout() != h5py.h5d.CONTIGUOUS:
        return False
    n_bytes = dataset.size * dataset.dtype.itemsize
    if n_bytes == 0 or stored.get_storage_size() != n_bytes:
        return False
    # The offset of unwritten data is arbitrary.
    if stored.get_space_status() != h5py.h5d.SPACE_STATUS_ALLOCATED:
        return False
    is_number = dataset.dtype.kind in "iuf"
    return is_number and bool(stored.get_type() == h5py.h5t.py_create(dataset.dtype))


class DatasetReader(ColumnReader):
    """Reads the rows of a dataset by HDF5.

    Args:
        file: the file of the dataset.
        dataset: a dataset of h5py.
        encoding: the encoding of strings; None for bytes.

    Attributes:
        rows_at_once: the maximum number of rows to read together; None without such a limit.

    Raises:
        RequestLimitError: a row takes more memory than a request may.
    """

    rows_at_once: int | None

    #: The file of the dataset.
    _file: HDF5File
    #: The dataset of h5py, which returns text if strings have an encoding.
    _dataset: Any
    #: The number of rows.
    _length: int
    #: The path of the dataset, for messages.
    _name: str
    #: The dtype of the dataset in the file.
    _dtype: np.dtype[Any]
    #: The size of a row in bytes; of values of variable length, that of their references.
    _row_bytes: int
    #: Whether values are text.
    _is_text: bool
    #: Whether the dataset has chunks, which may be compressed.
    _is_compressed: bool

    def __init__(self, file: HDF5File, dataset: Any, encoding: str | None) -> None:
        is_string = h5py.check_string_dtype(dataset.dtype) is not None
        self._file = file
        self._is_text = is_string and encoding is not None
        self._dataset = dataset.asstr(encoding) if self._is_text else dataset
        self._length = len(dataset)
        self._name = dataset.name
        self._dtype = dataset.dtype
        self._row_bytes = dataset.dtype.itemsize * math.prod(dataset.shape[1:])
        self._is_compressed = dataset.chunks is not None
        if self._is_compressed:
            current_request().reserve(
                self._row_bytes, f"a sample with dataset {self._name!r} of {file.name!r}"
            )
        self.rows_at_once = None
        if dataset.dtype.hasobject:
            # Each value of variable length may be as long as the file, and all values may be the
            # same bytes.
            self.rows_at_once = max(1, limit_bytes() // max(1, file.resource.size))

    def __len__(self) -> int:
        return self._length

    def value(self, index: int) -> Any:
        with self._reading():
            value = self._dataset[index]
        if isinstance(value, np.generic):
            return python_values(value)
        return value

    def read(self, indices: IndexArrayOfInts | None) -> npt.NDArray[Any]:
        n_rows = self._length if indices is None else len(indices)
        if self._is_compressed:
            check_request(n_rows * self._row_bytes, self._describe())
        if self.rows_at_once is None:
            return self._read(indices)

        # Values of variable length are measured as they are read.
        all_indices = np.arange(n_rows) if indices is None else indices
        parts = []
        n_bytes = 0
        # Also without rows something is read: it tells dtype and shape.
        for start in range(0, max(1, n_rows), self.rows_at_once):
            part = self._read(all_indices[start : start + self.rows_at_once])
            n_bytes += sum(_size_of_value(value) for value in part.flat)
            check_request(n_bytes, self._describe())
            parts.append(part)
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts)

    def runs(self, starts: IndexArrayOfInts, length: int) -> npt.NDArray[Any] | None:
        if self._dtype.hasobject or self._is_text:
            return None
        shape = (len(starts), length, *self._dataset.shape[1:])
        runs: npt.NDArray[Any] = np.empty(shape, self._dtype)
        if self._is_compressed:
            check_request(runs.nbytes, self._describe())
        if not len(starts):
            return runs

        # Runs that overlap or follow each other are read together, so that a chunk of them is
        # unpacked once.
        order = np.argsort(starts, kind="stable")
        has_gap_before = np.diff(starts[order]) > length
        breaks = np.flatnonzero(has_gap_before) + 1
        with self._reading():
            for runs_together in np.split(order, breaks):
                starts_together = starts[runs_together]
                first = int(starts_together[0])
                stop = int(starts_together[-1]) + length
                rows = np.asarray(self._dataset[first:stop])
                runs[runs_together] = take_runs(rows, starts_together - first, length)
        return runs

    def _read(self, indices: IndexArrayOfInts | None) -> npt.NDArray[Any]:
        """Read rows into a new array.

        Args:
            indices: the positions of the rows in any order, also several times; None for all rows.
        """
        with self._reading():
            if indices is None:
                return np.asarray(self._dataset[:])
            if not len(indices):
                return np.asarray(self._dataset[:0])
            # HDF5 needs ascending positions without repeats.
            distinct_indices, places = np.unique(indices, return_inverse=True)
            first = distinct_indices[0]
            last = distinct_indices[-1]
            # Reading a slice is much faster than reading a list.
            are_consecutive = last - first == len(distinct_indices) - 1
            if are_consecutive:
                rows = self._dataset[first : last + 1]
            else:
                rows = self._dataset[distinct_indices]
            return np.asarray(rows[places])

    def _describe(self) -> str:
        """Return what is read, for messages."""
        return f"rows of dataset {self._name!r} of {self._file.name!r}"

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Raise the errors of HDF5 as ours, and say which strings are of another encoding.

        Raises:
            DatasetFileCorruptError: the file is damaged, or holds strings of another encoding.
        """
        with self._file.reading():
            try:
                yield
            except UnicodeDecodeError as error:
                # The file is not damaged.
                raise DatasetFileCorruptError(
                    f"{self._file.name!r}: dataset {self._name!r} holds strings that are not "
                    f"{error.encoding}, such as {error.object[:20]!r}; pass their encoding, such "
                    f"as encoding='latin-1', encoding=None for bytes, or choose other datasets: "
                    f"columns=[…]"
                ) from error


def _size_of_value(value: Any) -> int:
    """Return the size of an array, bytes or text of variable length; of text in characters."""
    n_bytes = getattr(value, "nbytes", None)
    if n_bytes is not None:
        return int(n_bytes)
    return len(value)
