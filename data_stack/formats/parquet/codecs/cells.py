"""The bytes of cells, without a Python object for each until one is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.formats.parquet.codecs.buffers import null_mask

__all__ = ["CellViews", "as_binary", "cell_bytes", "cell_views", "plain_cells"]


def plain_cells(cells: pa.Array) -> pa.Array:
    """Cells without what only says how they are stored: extension types, dictionaries, runs, views.

    Raises:
        ValueError: pyarrow cannot unpack them.
    """
    while True:
        type_ = cells.type
        if isinstance(cells, pa.ExtensionArray):
            cells = cells.storage
        elif pa.types.is_dictionary(type_):
            cells = cells.dictionary_decode()
        elif pa.types.is_run_end_encoded(type_):
            import pyarrow.compute as pc  # half a second to import, for a rare type

            cells = pc.run_end_decode(cells)
        elif pa.types.is_list_view(type_) or pa.types.is_large_list_view(type_):
            cells = _lists_of_views(cells)
        else:
            return cells


def as_binary(cells: pa.Array) -> pa.Array:
    """Cells of any type of bytes or text as binary or large binary.

    Raises:
        ValueError: the column holds something else.
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
    raise ValueError(f"cells of bytes are expected, the column is of type {type_}")


def cell_bytes(cells: pa.Array) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """All bytes of the cells of a column, and where each begins and the last one ends, shape ``(n + 1,)``.

    Raises:
        ValueError: the column holds no bytes.
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

    Attributes:
        n_bytes: memory that is held.
    """

    def __init__(
        self, data: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64], is_null: npt.NDArray[np.bool_] | None
    ) -> None:
        # views of memory give Python's own numbers twice as fast as arrays
        self._data, self._offsets = _view(data), _view(offsets)
        self._is_null = None if is_null is None else _view(is_null)
        self.n_bytes = int(offsets[-1] - offsets[0]) + offsets.nbytes

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __getitem__(self, row: Any) -> Any:
        if self._is_null is not None and self._is_null[row]:
            return None
        return bytes(self._data[self._offsets[row] : self._offsets[row + 1]])


def _view(array: Any) -> memoryview:
    return memoryview(array)


def cell_views(cells: pa.Array) -> CellViews:
    """The cells of a column of bytes.

    Raises:
        ValueError: it holds no bytes.
    """
    data, offsets = cell_bytes(cells)
    return CellViews(data, offsets, null_mask(cells) if cells.null_count else None)


def _lists_of_views(cells: pa.Array) -> pa.LargeListArray:
    """Lists that may overlap, or lie in any order, one behind the other."""
    # pyarrow 26 casts those with nulls to arrays that are invalid
    is_null = np.asarray(cells.is_null())
    starts = np.where(is_null, 0, np.asarray(cells.offsets)).astype(np.int64)
    sizes = np.where(is_null, 0, np.asarray(cells.sizes)).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    places = np.repeat(starts - offsets[:-1], sizes) + np.arange(offsets[-1])
    mask = pa.array(is_null) if is_null.any() else None
    return pa.LargeListArray.from_arrays(pa.array(offsets, pa.int64()), cells.values.take(pa.array(places)), mask=mask)
