"""Cells of Arrow as arrays of numpy, and the other way round, without pandas.

pyarrow imports pandas, if it is installed, for several conversions that do not need it; that takes
half a second.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.formats.parquet.types import dtype_of_numbers, is_bytes, is_text


def plain_cells(cells: pa.Array) -> pa.Array:
    """Return cells without extension types and dictionaries."""
    if isinstance(cells, pa.ExtensionArray):
        return plain_cells(cells.storage)
    if pa.types.is_dictionary(cells.type):
        return plain_cells(cells.dictionary_decode())
    return cells


def as_binary(cells: pa.Array) -> pa.Array:
    """Convert cells of any bytes or text type to binary or large binary.

    Raises:
        ValueError: the column has another type.
    """
    cells = plain_cells(cells)
    type_ = cells.type
    if not (is_bytes(type_) or is_text(type_) or pa.types.is_null(type_)):
        raise ValueError(f"expected bytes, the column has type {type_}")
    if type_ == pa.string_view():  # pyarrow converts it to text only
        cells = cells.cast(pa.large_string())
    is_small = type_ in (pa.binary(), pa.string(), pa.null())
    return cells.cast(pa.binary() if is_small else pa.large_binary())


def cell_bytes(cells: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return all bytes of a column, and the offsets of its cells, shape ``(n + 1,)``.

    Raises:
        ValueError: the column does not hold bytes.
    """
    cells = as_binary(cells)
    if not len(cells):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    offset_dtype: Any = np.int64 if pa.types.is_large_binary(cells.type) else np.int32
    _, offset_buffer, data_buffer = cells.buffers()
    n_offsets = cells.offset + len(cells) + 1
    offsets = np.frombuffer(offset_buffer, offset_dtype, count=n_offsets)[cells.offset :]
    data = np.empty(0, np.uint8)
    if data_buffer is not None:
        data = np.frombuffer(data_buffer, np.uint8)
    return data, offsets.astype(np.int64)


def numbers(cells: pa.Array) -> npt.NDArray[Any]:
    """Return integers, floats or booleans as an array, shape ``(n,)``.

    The array is read-only unless it is a copy.

    Args:
        cells: cells of such a type; nulls have any value.
    """
    if pa.types.is_boolean(cells.type):  # bits
        return numbers(cells.cast(pa.uint8())).view(bool)
    buffer = cells.buffers()[1]
    dtype = dtype_of_numbers(cells.type)
    if buffer is None or not len(cells):
        return np.zeros(len(cells), dtype)
    return np.frombuffer(buffer, dtype, len(cells), cells.offset * dtype.itemsize)


def python_scalars(cells: pa.Array) -> list[Any]:
    """Return scalars as objects of Python, None for null.

    ``to_pylist()`` of old versions of pyarrow returns scalars of numpy for float16.
    """
    if not pa.types.is_float16(cells.type):
        scalars: list[Any] = cells.to_pylist()
        return scalars
    floats: list[Any] = numbers(cells).tolist()
    for position in np.flatnonzero(null_mask(cells)):
        floats[position] = None
    return floats


def index_cells(indices: npt.NDArray[np.int32]) -> pa.Array:
    """Return row numbers as cells, for ``take()``."""
    contiguous = np.ascontiguousarray(indices, np.int32)
    return pa.Array.from_buffers(pa.int32(), len(contiguous), [None, pa.py_buffer(contiguous)])


def null_mask(cells: pa.Array) -> npt.NDArray[np.bool_]:
    """Return which cells are null, shape ``(n,)``."""
    return numbers(cells.is_null())
