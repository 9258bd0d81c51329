"""Parses HDF5 files in another process first, as libhdf5 may crash or hang."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import h5py
import numpy as np
import numpy.typing as npt

from data_stack.formats.hdf5.datasets import (
    MAX_CHUNK_BYTES,
    check_dataset,
    dataset_at,
    find_datasets,
)
from data_stack.formats.hdf5.file import HDF5File
from data_stack.formats.hdf5.rows import DatasetReader, open_rows
from data_stack.io.parsing import check_apart
from data_stack.io.positional import PositionalFile
from data_stack.util.request_limit import limit_bytes

#: Datasets of plain numbers up to this size in bytes are read whole; it is also the size of a read.
_MAX_BYTES_AT_ONCE: Final = 64 << 20

#: How many rows are read of larger datasets of plain numbers.
_N_ROWS_SAMPLED: Final = 32

#: Filters with simple, well-tested code, by their numbers in the format.
_SIMPLE_FILTERS: Final = {
    h5py.h5z.FILTER_DEFLATE,
    h5py.h5z.FILTER_SHUFFLE,
    h5py.h5z.FILTER_FLETCHER32,
    h5py.h5z.FILTER_LZF,
}

#: The time that parsing a small file may take.
_MIN_SECONDS: Final = 10

#: How fast parsing a large file must be.
_MIN_BYTES_PER_SECOND: Final = 20 << 20


def parse_apart(
    file: PositionalFile,
    keys: Sequence[str] | None,
    max_expansion: float | None = None,
    encoding: str | None = None,
) -> None:
    """Parse a file in another process first, unless its store knows its digest.

    Args:
        file: the file.
        keys: the paths of the datasets that will be read; None if they will only be listed.
        max_expansion: as for :class:`~data_stack.formats.HDF5DatasetIterator`.
        encoding: as for :class:`~data_stack.formats.HDF5DatasetIterator`.

    Raises:
        DatasetFileCorruptError: parsing failed, crashed, or took too much time or memory.
    """
    seconds = _MIN_SECONDS + min(file.size, MAX_CHUNK_BYTES) / _MIN_BYTES_PER_SECOND
    arguments = [keys, max_expansion, encoding]
    check_apart(file, f"{__name__}:parse_all", arguments, seconds=seconds)


def parse_all(
    resource: Any, keys: Sequence[str] | None, max_expansion: float | None, encoding: str | None
) -> None:
    """Parse everything that reading parses: the positions of chunks, and all values.

    Of large datasets of plain numbers, only some rows are read.

    Args:
        resource: the file.
        keys: as for :func:`parse_apart`.
        max_expansion: as for :func:`parse_apart`.
        encoding: as for :func:`parse_apart`.
    """
    file = HDF5File(resource)
    if keys is None:
        find_datasets(file)
        return
    for key in keys:
        with file.reading():
            dataset = dataset_at(file, key)
            check_dataset(dataset, file, max_expansion)
            reader = open_rows(file, dataset, encoding)
            # Other readers do not use HDF5.
            if not isinstance(reader, DatasetReader) or not len(reader):
                continue
            # Visiting each chunk makes HDF5 parse its position.
            if dataset.chunks is not None:
                dataset.id.chunk_iter(lambda chunk: None)
            positions = _rows_to_read(dataset)
            n_at_once = _rows_at_once(dataset, reader)
        for start in range(0, len(positions), n_at_once):
            reader.read(positions[start : start + n_at_once])


def _rows_to_read(dataset: Any) -> npt.NDArray[np.int64]:
    """Return the positions of all rows; of a large dataset of plain numbers, those of some rows."""
    n_rows = len(dataset)
    is_string = h5py.check_string_dtype(dataset.dtype) is not None
    is_plain = not is_string and dataset.dtype.kind in "biufc"
    is_large = dataset.size * dataset.dtype.itemsize > _MAX_BYTES_AT_ONCE
    if is_plain and is_large and _has_simple_filters(dataset):
        spread = np.linspace(0, n_rows - 1, _N_ROWS_SAMPLED)
        return np.unique(spread.astype(np.int64))
    return np.arange(n_rows)


def _has_simple_filters(dataset: Any) -> bool:
    """Return whether all filters of a dataset, such as compression, have well-tested code."""
    properties = dataset.id.get_create_plist()
    filters = set()
    for number in range(properties.get_nfilters()):
        # The first of several facts is the number of the filter in the format.
        filters.add(properties.get_filter(number)[0])
    return filters <= _SIMPLE_FILTERS


def _rows_at_once(dataset: Any, reader: DatasetReader) -> int:
    """Return how many rows to read at once, so that they take a bounded part of the memory."""
    row_bytes = max(1, dataset.size * dataset.dtype.itemsize // len(reader))
    max_bytes = min(_MAX_BYTES_AT_ONCE, limit_bytes() // 2)
    n_at_once: int = max(1, max_bytes // row_bytes)
    if reader.rows_at_once is None:
        return n_at_once
    return min(n_at_once, reader.rows_at_once)
