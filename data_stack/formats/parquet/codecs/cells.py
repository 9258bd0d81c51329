"""Reads bytes, numbers and nulls from Arrow buffers without Python objects or pandas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def plain_cells(cells: pa.Array) -> pa.Array:
    """Cells without extension types and dictionaries."""
    while True:
        type_ = cells.type
        if isinstance(cells, pa.ExtensionArray):
            cells = cells.storage
        elif pa.types.is_dictionary(type_):
            cells = cells.dictionary_decode()
        else:
            return cells


def as_binary(cells: pa.Array) -> pa.Array:
    """Convert cells of any bytes or text type to binary or large binary.

    Raises:
        ValueError: the column has another type.
    """
    cells = plain_cells(cells)
    type_ = cells.type
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        return cells
    if pa.types.is_string(type_):
        return cells.view(pa.binary())
    if pa.types.is_large_string(type_):
        return cells.view(pa.large_binary())
    if pa.types.is_fixed_size_binary(type_) or pa.types.is_binary_view(type_):
        return cells.cast(pa.large_binary())
    if pa.types.is_string_view(type_):
        return cells.cast(pa.large_string()).view(pa.large_binary())
    if pa.types.is_null(type_):
        return cells.cast(pa.binary())
    raise ValueError(f"expected bytes, the column has type {type_}")


def cell_bytes(cells: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """All bytes of a column, and the offsets of its cells, shape ``(n + 1,)``.

    Raises:
        ValueError: the column does not hold bytes.
    """
    cells = as_binary(cells)
    if not len(cells):
        return np.empty(0, np.uint8), np.zeros(1, np.int64)
    offset_dtype: Any = np.int64 if pa.types.is_large_binary(cells.type) else np.int32
    _, offsets, data = cells.buffers()
    starts = np.frombuffer(offsets, offset_dtype, count=cells.offset + len(cells) + 1)[cells.offset :]
    return (np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)), starts.astype(np.int64)


class CellViews(Sequence[Any]):
    """The bytes of each cell; None for null.

    Args:
        cells: a column of bytes.

    Attributes:
        n_bytes: memory of the cells.

    Raises:
        ValueError: the column does not hold bytes.
    """

    def __init__(self, cells: pa.Array) -> None:
        cells = as_binary(cells)
        data, starts = cell_bytes(cells)
        self._data, self._starts = data.data, starts.data  # items of a memoryview are faster than of an array
        self._is_null = null_mask(cells) if cells.null_count else None
        self.n_bytes = cells.nbytes

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, row: Any) -> Any:
        if self._is_null is not None and self._is_null[row]:
            return None
        return self._data[self._starts[row] : self._starts[row + 1]].tobytes()


def numbers(cells: pa.Array) -> npt.NDArray[Any]:
    """Integers, floats or booleans as an array, shape ``(n,)``; read-only unless it is a copy.

    Args:
        cells: cells of such a type; nulls have any value.
    """
    if pa.types.is_boolean(cells.type):  # bits
        return numbers(cells.cast(pa.uint8())).view(bool)
    buffer, dtype = cells.buffers()[1], np.dtype(cells.type.to_pandas_dtype())
    if buffer is None or not len(cells):
        return np.zeros(len(cells), dtype)
    return np.frombuffer(buffer, dtype, len(cells), cells.offset * dtype.itemsize)


def null_mask(cells: pa.Array) -> npt.NDArray[np.bool_]:
    """Which cells are null, shape ``(n,)``; without pandas, which pyarrow would import for arrays of booleans."""
    return numbers(cells.is_null())
