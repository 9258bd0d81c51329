"""Reads IDX files, the format of MNIST: element type and sizes, then the array, big endian.

Described at https://yann.lecun.org/exdb/mnist/ ("THE IDX FILE FORMAT"). Files are usually gzipped:
pass ``gzip.GzipFile(fileobj=resource)`` to the functions.
"""

from __future__ import annotations

import math
import os
import struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.exception import DatasetFileCorruptError
from data_stack.io.parsing import Readable, check_unpacked, lend_or_open, name_of, reading

#: The dtype of each code of an element type.
_DTYPES: Final = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}

#: The number of bytes that are read at once.
_BLOCK_BYTES: Final = 1 << 20

#: The maximum number of dimensions in all versions of numpy. The format allows 255.
_MAX_DIMENSIONS: Final = 32

#: The maximum size of an array in bytes, plus one: numpy counts bytes in signed 64-bit integers.
_TOO_MANY_BYTES: Final = 1 << 63


def read_idx(file: Readable | str | os.PathLike[str]) -> npt.NDArray[Any]:
    """Read a whole IDX file, in native byte order.

    Memory grows with the bytes read, not with the size that the header claims.

    Args:
        file: the path of an IDX file, or a binary stream at its start, which need not be seekable.
            A stream is not closed.

    Raises:
        DatasetFileCorruptError: the file is damaged, cut short or too long.
    """
    with lend_or_open(file) as opened:
        dtype, shape = read_idx_header(opened)
        what = f"array of shape {shape}, {dtype}"
        data = _read(opened, math.prod(shape) * dtype.itemsize, what)
        with reading(name_of(opened), "IDX file"):
            if opened.read(1):
                raise DatasetFileCorruptError(
                    f"{name_of(opened)!r} has bytes after its {what} "
                    f"that its header does not declare"
                )
    array: npt.NDArray[Any] = np.ndarray(shape, dtype, data)
    return array.astype(dtype.newbyteorder("="), copy=False)


def read_idx_header(file: Readable) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Read the header of an IDX file, for files whose values do not fit into memory.

    Afterwards the stream is at the first value.

    Args:
        file: a binary stream at its start.

    Returns:
        The dtype of the values, big endian, and the shape of the array.

    Raises:
        DatasetFileCorruptError: the stream is not an IDX file, or ends within its header.
    """
    # Two zeros, the code of the element type, and the number of dimensions.
    head = _read(file, 4, "header")
    type_code = head[2]
    n_dimensions = head[3]
    if head[:2] != b"\0\0" or type_code not in _DTYPES:
        raise DatasetFileCorruptError(
            f"{name_of(file)!r} is not an IDX file: it begins with {head.hex(' ')}"
        )
    dtype: np.dtype[Any] = np.dtype(_DTYPES[type_code])
    if n_dimensions > _MAX_DIMENSIONS:
        raise DatasetFileCorruptError(
            f"{name_of(file)!r} claims {n_dimensions} dimensions; the maximum is {_MAX_DIMENSIONS}"
        )

    # The size of each dimension, 4 bytes each.
    sizes = _read(file, 4 * n_dimensions, "header")
    shape = tuple(struct.unpack(f">{n_dimensions}I", sizes))
    # numpy also refuses an array without values whose other sizes are too large together.
    n_values = math.prod(max(1, size) for size in shape)
    if n_values * dtype.itemsize >= _TOO_MANY_BYTES:
        raise DatasetFileCorruptError(
            f"{name_of(file)!r} claims the shape {shape}, which is too large"
        )
    return dtype, shape


def _read(file: Readable, n_bytes: int, what: str) -> bytearray:
    """Read exactly ``n_bytes`` into a buffer that grows with the bytes read.

    Raises:
        DatasetFileCorruptError: the file ends before; the message names ``what`` was read.
    """
    data = bytearray()
    with reading(name_of(file), "IDX file"):
        while len(data) < n_bytes:
            piece = file.read(min(n_bytes - len(data), _BLOCK_BYTES))
            if not piece:
                raise DatasetFileCorruptError(
                    f"{name_of(file)!r} ends within its {what}: {len(data)} of {n_bytes} bytes"
                )
            data += piece
            check_unpacked(file, len(data))
    return data
