"""Numbers and nulls of Arrow's arrays, straight from their buffers.

``to_numpy()`` and ``np.asarray()`` give the same, but pyarrow imports pandas for these wherever it is installed, and that takes
longer than reading the first row group.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["null_mask", "numbers"]

_DTYPES: dict[Any, np.dtype[Any]] = {
    pa.int8(): np.dtype(np.int8),
    pa.int16(): np.dtype(np.int16),
    pa.int32(): np.dtype(np.int32),
    pa.int64(): np.dtype(np.int64),
    pa.uint8(): np.dtype(np.uint8),
    pa.uint16(): np.dtype(np.uint16),
    pa.uint32(): np.dtype(np.uint32),
    pa.uint64(): np.dtype(np.uint64),
    pa.float16(): np.dtype(np.float16),
    pa.float32(): np.dtype(np.float32),
    pa.float64(): np.dtype(np.float64),
}


def numbers(cells: pa.Array) -> npt.NDArray[Any]:
    """Integers, floats or booleans as an array, read-only if it is no copy; shape ``(n,)``.

    Args:
        cells: of such a type; where one is null, what lies there is given.
    """
    n_cells, offset = len(cells), cells.offset
    buffer = cells.buffers()[1]
    if pa.types.is_boolean(cells.type):
        return np.zeros(n_cells, bool) if buffer is None else _bits(buffer, offset, n_cells)
    dtype = _DTYPES[cells.type]
    if buffer is None or not n_cells:
        return np.zeros(n_cells, dtype)
    return np.frombuffer(buffer, dtype, n_cells, offset * dtype.itemsize)


def null_mask(cells: pa.Array) -> npt.NDArray[np.bool_]:
    """Which cells are null, shape ``(n,)``."""
    type_ = cells.type
    if pa.types.is_null(type_):
        return np.ones(len(cells), bool)
    if (
        pa.types.is_union(type_) or pa.types.is_run_end_encoded(type_) or pa.types.is_dictionary(type_)
    ):  # told by what they refer to
        return np.asarray(cells.is_null())
    validity = cells.buffers()[0] if cells.null_count else None
    return np.zeros(len(cells), bool) if validity is None else ~_bits(validity, cells.offset, len(cells))


def _bits(buffer: pa.Buffer, offset: int, n_bits: int) -> npt.NDArray[np.bool_]:
    """Bits as booleans, from the bit at ``offset``."""
    start = offset // 8
    some = np.frombuffer(buffer, np.uint8, (offset + n_bits + 7) // 8 - start, start)
    return np.unpackbits(some, count=offset - 8 * start + n_bits, bitorder="little")[offset - 8 * start :].view(bool)
