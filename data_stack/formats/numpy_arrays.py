"""NumPy's ``.npy`` and ``.npz`` files, without pickle and without trusting their headers.

The format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
"""

from __future__ import annotations

import ast
import math
import os
import zipfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.columns import ArrayColumn, Column, ColumnsDatasetIterator
from data_stack.formats.positional import (
    MAX_EXPANSION,
    PositionalFile,
    Readable,
    check_expansion,
    check_unpacked,
    lent_or_opened,
    name_of,
    reading,
)
from data_stack.formats.rows import StoredRowsColumn
from data_stack.util.request_limit import check_request

__all__ = ["NpzDatasetIterator", "NumpyDatasetIterator", "npz_keys", "read_npy", "read_npz", "write_npy", "write_npz"]

_MAGIC = b"\x93NUMPY"
_MAX_HEADER_BYTES = 1 << 16
_BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class _Header:
    """What stands before the values of a ``.npy`` file, and where they begin."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran_order: bool
    offset: int

    @property
    def n_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class NumpyDatasetIterator(ColumnsDatasetIterator):
    """Samples from ``.npy`` resources, one array a column; only the rows that are asked for are read.

    Args:
        columns: the files (paths, resources or open binary files), in a sequence for tuple samples or a mapping ``{field: file}``
            for dict samples. One may stand in several places (target and tag).

    Values are copies of the arrays' rows, shape ``shape[1:]``, or Python scalars where a column has one dimension.
    A batch is one request where the store has such; rows that lie close together are fetched in one piece. An array in Fortran
    order is read whole.

    Raises:
        DatasetFileCorruptError: at the first access, if a file is not what its header says, or holds Python objects.
    """

    _columns_are_files = True

    def __init__(self, columns: Sequence[Any] | Mapping[str, Any]) -> None:
        super().__init__(columns)

    _source_content = ColumnsDatasetIterator._content_of_files

    def _open_columns(self) -> list[Column]:
        return self._open_each(_open_column)


def _open_column(file: PositionalFile) -> Column:
    stream = file.buffered()
    header = _read_header(stream)
    stored = file.size - header.offset
    if stored != header.n_bytes:
        raise DatasetFileCorruptError(
            f"{file.name!r} holds {stored} bytes of values, but its header says {header.n_bytes} "
            f"(shape {header.shape}, {header.dtype})"
        )
    if not header.shape:
        raise DatasetFileCorruptError(f"{file.name!r} holds a single value, not a column")
    if header.fortran_order:
        stream.seek(0)
        return ArrayColumn(read_npy(stream))
    return StoredRowsColumn(file, header.offset, header.shape, header.dtype)


class NpzDatasetIterator(ColumnsDatasetIterator):
    """Samples from arrays of one ``.npz`` resource, each of which is read whole at the first access; the others are not read.

    Args:
        resource: the file: a path, a resource or an open binary file.
        keys: names of arrays, in a sequence for tuple samples or a mapping ``{field: name}`` for dict samples. One name may
            stand in several places (target and tag).
        max_expansion: as for :func:`read_npz`.

    Raises:
        DatasetFileCorruptError: at the first access, as for :func:`read_npz`, and if there is no such array.
    """

    def __init__(
        self, resource: Any, keys: Sequence[str] | Mapping[str, str], *, max_expansion: float | None = MAX_EXPANSION
    ) -> None:
        super().__init__(keys)
        self._file, self._max_expansion = PositionalFile(resource), max_expansion

    _source_content = ColumnsDatasetIterator._content_of_files

    def _open_columns(self) -> list[Column]:
        arrays = read_npz(self._file, keys=set(map(str, self._sources)), max_expansion=self._max_expansion)

        def open_column(key: str) -> Column:
            if key not in arrays or not arrays[key].ndim:
                with zipfile.ZipFile(self._file.buffered()) as archive:
                    there = ", ".join(repr(name.removesuffix(".npy")) for name in archive.namelist()[:20])
                raise DatasetFileCorruptError(f"{self._file.name!r} has no column {key!r}; it has {there}")
            return ArrayColumn(arrays[key])

        return self._open_each(open_column)


def read_npy(file: Readable | str | os.PathLike[str]) -> npt.NDArray[Any]:
    """Read one array from the file at a path, or from a binary stream that stands at its start, which may be a decompressing one.

    Memory grows with the values that arrive, not with those that the header claims.

    Raises:
        DatasetFileCorruptError: no ``.npy`` file, cut short, or an array of Python objects.
        RequestLimitError: it would unpack to more than a request may take.
    """
    with lent_or_opened(file) as opened:
        return _read_array(opened)


def _read_array(file: Readable) -> npt.NDArray[Any]:
    header = _read_header(file)
    data = bytearray()
    with reading(name_of(file), ".npy file"):
        while len(data) < header.n_bytes:
            piece = file.read(min(_BLOCK_BYTES, header.n_bytes - len(data)))
            if not piece:
                raise DatasetFileCorruptError(
                    f"{name_of(file)!r} is cut short: {len(data)} of {header.n_bytes} bytes of values are there"
                )
            data += piece
            check_unpacked(file, len(data))
        array: npt.NDArray[Any] = np.ndarray(header.shape, header.dtype, data, order="F" if header.fortran_order else "C")
    return array


def read_npz(
    resource: Any, *, keys: Collection[str] | None = None, max_expansion: float | None = MAX_EXPANSION
) -> dict[str, npt.NDArray[Any]]:
    """Read arrays of an ``.npz`` file.

    Args:
        resource: the path of a file, a StreamedResource or seekable binary file.
        keys: names of those to read, as far as they are there; None for all.
        max_expansion: most bytes of values for each stored byte, where they are more than 64 MiB; None for no limit.

    Raises:
        DatasetFileCorruptError: a damaged file, a member that is no array, or one that expands too well.
        RequestLimitError: arrays would unpack to more than a request may take.
    """
    file = PositionalFile(resource)
    arrays: dict[str, npt.NDArray[Any]] = {}
    n_bytes = 0
    with reading(file.name, ".npz file"), zipfile.ZipFile(file.buffered()) as archive:
        members = archive.infolist()
        check_expansion(file.name, sum(member.file_size for member in members), file.size, max_expansion)
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
                arrays[name] = read_npy(stream)
                if stream.read(1):  # the end, where zipfile checks the CRC, has to be reached
                    raise DatasetFileCorruptError(f"{file.name!r}: {member.filename!r} goes on after its array")
    return arrays


def write_npy(
    file: IO[bytes] | Any, array: npt.ArrayLike | Iterable[npt.ArrayLike], *, shape: Sequence[int] | None = None
) -> None:
    """Write a ``.npy`` file: ``array`` as it is, or, with ``shape``, an iterable of blocks of rows that add up to it.

    Raises:
        ConfigError: the dtype holds Python objects, or the blocks do not add up to ``shape``.
    """
    blocks = iter([np.asarray(array)] if shape is None else (np.asarray(block) for block in array))  # type: ignore[union-attr]
    first = next(blocks, np.empty(0))
    whole = first.shape if shape is None else tuple(map(int, shape))
    if first.dtype.hasobject:
        raise ConfigError(
            f"an array of dtype {first.dtype} holds Python objects, which are not stored; give it a dtype of its own"
        )
    header = {"descr": np.lib.format.dtype_to_descr(first.dtype), "fortran_order": False, "shape": whole}
    np.lib.format.write_array_header_1_0(file, header)
    n_elements = 0
    block: npt.NDArray[Any] | None = first
    while block is not None:
        if block.dtype != first.dtype:
            raise ConfigError(f"blocks of one array have one dtype, got {first.dtype} and {block.dtype}")
        n_elements += block.size
        if block.nbytes:
            file.write(np.ascontiguousarray(block).reshape(-1).view(np.uint8).data)
        block = next(blocks, None)
    if n_elements != math.prod(whole):
        raise ConfigError(f"blocks hold {n_elements} elements, but shape {whole} has {math.prod(whole)}")


def npz_keys(resource: Any) -> list[str]:
    """Names of the arrays of an ``.npz`` file, in its order; no array is read.

    Raises:
        DatasetFileCorruptError: it is no ``.npz`` file, or damaged.
    """
    file = PositionalFile(resource)
    with reading(file.name, ".npz file"), zipfile.ZipFile(file.buffered()) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist()]


class WriteOnly:
    """Hides that a file can seek, so that zipfile writes it once from end to end, and its digest is computed on the way."""

    def __init__(self, file: Any) -> None:
        self.write, self._file = file.write, file

    def flush(self) -> None:
        self._file.flush()


def write_npz(
    file: IO[bytes] | Any, columns: Mapping[str, Iterable[npt.ArrayLike]], *, shapes: Mapping[str, Sequence[int]]
) -> None:
    """Write an ``.npz`` file, not compressed, from blocks of rows, without ever holding an array; the same bytes each time.

    Args:
        file: any binary file open for writing; it need not be able to seek.
        columns: for each array blocks of rows of one dtype, which are taken when the arrays before are written.
        shapes: the whole shape of each.

    Raises:
        ConfigError: the dtype of an array holds Python objects, or its blocks do not add up to its shape.
    """
    with zipfile.ZipFile(WriteOnly(file), "w", zipfile.ZIP_STORED) as archive:  # type: ignore[call-overload]  # write, flush
        for name, blocks in columns.items():
            # ZipInfo's time is a constant, where open() by name would take that of the clock.
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as stream:
                write_npy(stream, blocks, shape=shapes[name])


def _read_header(file: Readable) -> _Header:
    """Parse the header of a stream that stands at its start.

    numpy's own parser lets SyntaxError, TokenError, EOFError and others through, and believes any shape.
    """
    name = name_of(file)
    with reading(name, ".npy file"):
        head = file.read(8)
        if head[:6] != _MAGIC or len(head) < 8 or head[6] not in (1, 2, 3):
            raise DatasetFileCorruptError(f"{name!r} is no .npy file of version 1, 2 or 3: it begins with {head!r}")
        size_bytes = file.read(2 if head[6] == 1 else 4)
        n_bytes = int.from_bytes(size_bytes, "little")
        if n_bytes > _MAX_HEADER_BYTES:
            raise DatasetFileCorruptError(f"{name!r} claims a header of {n_bytes} bytes; none has more than {_MAX_HEADER_BYTES}")
        text = file.read(n_bytes)
        if len(text) < n_bytes or not text:
            raise DatasetFileCorruptError(f"{name!r} is cut short: it ends inside of its header")
        try:
            fields = ast.literal_eval(text.decode("utf-8" if head[6] == 3 else "latin-1"))
        except (MemoryError, RecursionError) as error:  # what the parser says of a thousand brackets
            raise DatasetFileCorruptError(f"{name!r} has a header that cannot be parsed") from error
        if not isinstance(fields, dict) or set(fields) != {"descr", "fortran_order", "shape"}:
            raise DatasetFileCorruptError(f"{name!r} has a header without the three entries descr, fortran_order and shape")
        shape, fortran_order = fields["shape"], fields["fortran_order"]
        if not isinstance(shape, tuple) or len(shape) > 32 or any(type(size) is not int or size < 0 for size in shape):
            raise DatasetFileCorruptError(f"{name!r} has the shape {str(shape)[:80]}; at most 32 sizes of 0 or more make one")
        dtype = np.lib.format.descr_to_dtype(fields["descr"])
        if dtype.hasobject:
            raise DatasetFileCorruptError(
                f"{name!r} holds Python objects (dtype {dtype}), which only unpickling could read, and that could run any code. "
                f"Save it with a dtype of numbers or fixed-width strings"
            )
        if dtype.subdtype is not None or (dtype.itemsize == 0 and 0 not in shape):
            # numpy would make room for one byte each, and leave it as it was
            raise DatasetFileCorruptError(
                f"{name!r} claims {math.prod(shape)} values of dtype {dtype}, which have no bytes or no place in an array"
            )
        return _Header(dtype, shape, bool(fortran_order), len(head) + len(size_bytes) + n_bytes)
