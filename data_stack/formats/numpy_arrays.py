"""NumPy's ``.npy`` and ``.npz`` files, without pickle and without trusting their headers.

The format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
"""

from __future__ import annotations

import zipfile
from collections.abc import Collection, Mapping, Sequence
from typing import IO, Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.codecs.npy import read_npy, read_npy_header, write_npy
from data_stack.dataset.positions import check_integer
from data_stack.exception import ArgumentError, ConfigError, DatasetFileCorruptError
from data_stack.formats.column_reader import ArrayReader, ColumnReader
from data_stack.formats.columns import ColumnsDatasetIterator, of_files_only
from data_stack.formats.stored_rows import StoredRowsReader
from data_stack.io.parsing import MAX_EXPANSION, check_expansion, reading
from data_stack.io.positional import PositionalFile
from data_stack.util.request_limit import check_request
from data_stack.values.dtype_texts import parse_dtype

__all__ = [
    "NpzDatasetIterator",
    "NumpyDatasetIterator",
    "RawDatasetIterator",
    "npz_keys",
    "read_npy",
    "read_npz",
    "write_npy",
    "write_npz",
]


#: How many names of arrays a message lists.
_MAX_NAMES_SHOWN: Final = 20


class NumpyDatasetIterator(ColumnsDatasetIterator):
    """Samples from ``.npy`` resources, an array per column; only the requested rows are read.

    Args:
        columns: the files (paths, resources or open binary files), in a sequence for tuple samples
            or a mapping ``{field: file}`` for dict samples. A file may occur several times (target
            and tag).

    Values are copies of the arrays' rows, shape ``shape[1:]``, or Python scalars of columns with
    one dimension. A batch is one request if the store supports it; rows close to each other are
    fetched together. An array in Fortran order is read as a whole. Local files are mapped into
    memory: no program may shorten one that is in use.

    Raises:
        DatasetFileCorruptError: at the first access, if a file differs from its header, or holds
            Python objects.
    """

    _columns_are_files = True

    @of_files_only
    def _open_columns(self) -> list[ColumnReader]:
        return self._open_per_source(_open_column)


def _open_column(file: PositionalFile) -> ColumnReader:
    """Return a reader of the rows of a ``.npy`` file.

    Raises:
        DatasetFileCorruptError: the file differs from its header, or holds a single value.
    """
    stream = file.open_buffered()
    header = read_npy_header(stream)
    n_stored_bytes = file.size - header.offset
    if n_stored_bytes != header.n_bytes:
        raise DatasetFileCorruptError(
            f"{file.name!r} holds {n_stored_bytes} bytes of values, "
            f"but its header says {header.n_bytes}"
        )
    if not header.shape:
        raise DatasetFileCorruptError(f"{file.name!r} holds a single value, not a column")
    if header.fortran_order:
        stream.seek(0)
        return ArrayReader(read_npy(stream))
    return StoredRowsReader(file, header.offset, header.shape, header.dtype, mapped=True)


class RawDatasetIterator(ColumnsDatasetIterator):
    """Samples from files that are nothing but numbers, one after the other.

    Examples are the ``.bin`` files of tokens of nanoGPT.

    ::

        RawDatasetIterator(["train.bin"], "uint16").windows(1024, stride=1024)

    Args:
        columns: the files (paths, resources or open binary files), in a sequence for tuple samples
            or a mapping ``{field: file}`` for dict samples.
        dtype: the dtype of the values; little-endian unless it says otherwise. A dtype with a
            shape, ``("float32", (3,))``, makes each value an array of that shape.
        header_bytes: the number of bytes to skip at the start of each file: 1024 in those of llm.c,
            whose headers are 256 numbers of 4 bytes.

    Values are copies, arrays of the shape of ``dtype`` or Python scalars, as those of a
    :class:`NumpyDatasetIterator`, and batches are read in the same way.

    Raises:
        ConfigError: ``dtype`` is not a dtype, or has no size in a file, as that of Python objects.
        DatasetFileCorruptError: at the first access, if a file is not a whole number of values.
    """

    _columns_are_files = True

    #: The number of bytes to skip at the start of each file.
    _header_bytes: int

    #: The dtype of the values in the files.
    _dtype: np.dtype[Any]

    def __init__(
        self, columns: Sequence[Any] | Mapping[str, Any], dtype: Any, *, header_bytes: int = 0
    ) -> None:
        self._header_bytes = check_integer("header_bytes", header_bytes, at_least=0)
        self._dtype = _parse_dtype_in_file(dtype)
        super().__init__(columns)

    @of_files_only
    def _open_columns(self) -> list[ColumnReader]:
        return self._open_per_source(self._open_column)

    def _open_column(self, file: PositionalFile) -> ColumnReader:
        n_bytes = file.size - self._header_bytes
        item_bytes = self._dtype.itemsize
        if n_bytes < 0:
            raise DatasetFileCorruptError(
                f"{file.name!r} has {file.size:,} bytes, fewer than its header of "
                f"{self._header_bytes:,}. Pass another header_bytes=, or restore the file from a "
                "copy"
            )
        if n_bytes % item_bytes != 0:
            after_header = ""
            if self._header_bytes:
                after_header = f" after its header of {self._header_bytes:,}"
            raise DatasetFileCorruptError(
                f"{file.name!r} has {n_bytes:,} bytes{after_header}, "
                f"which is not a multiple of the {item_bytes:,} of {self._dtype}. "
                "Pass another dtype= or header_bytes=, or restore the file from a copy"
            )
        # A dtype with a shape is a row of values.
        shape = (n_bytes // item_bytes, *self._dtype.shape)
        dtype = self._dtype.base
        return StoredRowsReader(file, self._header_bytes, shape, dtype, mapped=True)

    def _arguments(self) -> dict[str, Any]:
        return {
            **super()._arguments(),
            "dtype": str(self._dtype),
            "header_bytes": self._header_bytes,
        }


def _parse_dtype_in_file(dtype: Any) -> np.dtype[Any]:
    """Return the dtype of values in a file, little-endian unless it says otherwise.

    Raises:
        ArgumentError: ``dtype`` is not a dtype, or its values have no size in a file.
    """
    # numpy takes None for float64, which is none of the usual dtypes of such files: it is refused.
    given_dtype = object if dtype is None else dtype
    try:
        parsed: np.dtype[Any] = parse_dtype(given_dtype)
    except (TypeError, ValueError, SyntaxError) as error:
        raise ArgumentError(
            f"numpy has no dtype {dtype!r:.80}: {error}; pass one such as uint16 by", "dtype"
        ) from error
    if parsed.hasobject or not parsed.itemsize:
        raise ArgumentError(
            f"values of dtype {dtype!r:.80} have no size in a file; pass another type, "
            "such as uint16, by",
            "dtype",
        )
    if parsed.byteorder == "=":
        parsed = parsed.newbyteorder("<")
    return parsed


class NpzDatasetIterator(ColumnsDatasetIterator):
    """Samples from arrays of one ``.npz`` resource, which are read whole at the first access.

    Args:
        resource: the file: a path, a resource or an open binary file.
        keys: the names of arrays, in a sequence for tuple samples or a mapping ``{field: name}``
            for dict samples. A name may occur several times (target and tag).
        max_expansion: the maximum number of bytes per stored byte for more than 64 MiB of values;
            None for no limit.

    Raises:
        DatasetFileCorruptError: at the first access: the file is damaged, its compression ratio is
            too high, or an array does not exist.
        RequestLimitError: at the first access: arrays would unpack to more than a request may take.
    """

    #: The file of the arrays.
    _file: PositionalFile

    #: The maximum number of bytes per stored byte; None for no limit.
    _max_expansion: float | None

    def __init__(
        self,
        resource: Any,
        keys: Sequence[str] | Mapping[str, str],
        *,
        max_expansion: float | None = MAX_EXPANSION,
    ) -> None:
        super().__init__(keys)
        self._file = PositionalFile(resource)
        self._max_expansion = max_expansion

    @of_files_only
    def _open_columns(self) -> list[ColumnReader]:
        keys = {str(key) for key in self._sources}
        arrays = read_npz(self._file, keys=keys, max_expansion=self._max_expansion)

        def open_column(key: str) -> ColumnReader:
            if key not in arrays:
                known = ", ".join(map(repr, npz_keys(self._file)[:_MAX_NAMES_SHOWN]))
                raise DatasetFileCorruptError(
                    f"{self._file.name!r} has no column {key!r}; it has {known or 'no arrays'}"
                )
            if arrays[key].ndim == 0:
                raise DatasetFileCorruptError(
                    f"{self._file.name!r}: {key!r} holds a single value, not a column; "
                    "choose others: columns=[…]"
                )
            return ArrayReader(arrays[key])

        return self._open_per_source(open_column)


def read_npz(
    resource: Any,
    *,
    keys: Collection[str] | None = None,
    max_expansion: float | None = MAX_EXPANSION,
) -> dict[str, npt.NDArray[Any]]:
    """Read arrays of an ``.npz`` file.

    Args:
        resource: the path of a file, a StreamedResource or seekable binary file.
        keys: the names of the arrays to read; missing ones are ignored. None for all.
        max_expansion: the maximum number of bytes per stored byte for more than 64 MiB of values;
            None for no limit.

    Raises:
        DatasetFileCorruptError: the file is damaged, a member is not an array, or its compression
            ratio is too high.
        RequestLimitError: arrays would unpack to more than a request may take.
    """
    file = PositionalFile(resource)
    arrays: dict[str, npt.NDArray[Any]] = {}
    n_bytes = 0
    with reading(file.name, ".npz file", file), zipfile.ZipFile(file.open_buffered()) as archive:
        members = archive.infolist()
        n_unpacked_bytes = sum(member.file_size for member in members)
        check_expansion(file.name, n_unpacked_bytes, file.size, max_expansion)
        for member in members:
            name = member.filename.removesuffix(".npy")
            if keys is not None and name not in keys:
                continue
            n_bytes += member.file_size
            if member.compress_type != zipfile.ZIP_STORED:
                check_request(n_bytes, f"{member.filename!r} of {file.name!r}")
            if name in arrays:
                raise DatasetFileCorruptError(f"{file.name!r} holds {name!r} twice")
            with archive.open(member) as stream:
                arrays[name] = _read_member(stream, name, file.name)
                # Reading the end also makes zipfile check the CRC.
                if stream.read(1):
                    raise DatasetFileCorruptError(
                        f"{file.name!r}: {member.filename!r} has bytes after its array"
                    )
    return arrays


def _read_member(stream: IO[bytes], key: str, file_name: str) -> npt.NDArray[Any]:
    """Read one array of an ``.npz`` file.

    Raises:
        DatasetFileCorruptError: it cannot be read; the message says how to leave it out.
    """
    try:
        return read_npy(stream)
    except DatasetFileCorruptError as error:
        raise DatasetFileCorruptError(
            f"{file_name!r}: array {key!r} cannot be read: {error}; columns=[…] of the others "
            f"leaves it out"
        ) from error


def npz_keys(resource: Any) -> list[str]:
    """Return the names of the arrays of an ``.npz`` file, in its order, without reading an array.

    Args:
        resource: the path of a file, a StreamedResource or seekable binary file.

    Raises:
        DatasetFileCorruptError: the file is not an ``.npz`` file, or damaged.
    """
    file = PositionalFile(resource)
    with reading(file.name, ".npz file", file), zipfile.ZipFile(file.open_buffered()) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist()]


class WriteOnly:
    """A binary file that can only be written, for zipfile.

    zipfile writes a file that cannot seek from start to end, so that the digest of the file can be
    computed on the way. It calls nothing but ``write()`` and ``flush()``.

    Args:
        file: a binary file open for writing.
    """

    def __init__(self, file: Any) -> None:
        self.write = file.write
        self._file = file

    def flush(self) -> None:
        self._file.flush()


def write_npz(file: IO[bytes] | Any, columns: Mapping[str, npt.ArrayLike]) -> None:
    """Write arrays as an ``.npz`` file, not compressed; the same bytes each time.

    Args:
        file: any binary file open for writing; it need not be able to seek.
        columns: arrays by name.

    Raises:
        ConfigError: the dtype of an array holds Python objects, or ``columns`` is no mapping.
    """
    if not isinstance(columns, Mapping):
        raise ConfigError(
            f"expected arrays by name, got {columns!r:.200}; "
            "convert(iterator, path) writes those of an iterator"
        )
    stream_of_file: Any = WriteOnly(file)
    with zipfile.ZipFile(stream_of_file, "w", zipfile.ZIP_STORED) as archive:
        for name, array in columns.items():
            # ZipInfo's time is constant; open() by name would use the current time.
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as stream:
                write_npy(stream, array)
