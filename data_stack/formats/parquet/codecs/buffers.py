"""Numbers and nulls out of Arrow's buffers, as they are: pyarrow makes floats of integers beside a null, and imports pandas."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["null_mask", "numbers"]


def numbers(cells: pa.Array) -> npt.NDArray[Any]:
    """Integers, floats or booleans as an array, read-only if it is no copy; shape ``(n,)``.

    Args:
        cells: of such a type; where one is null, what lies there is given.
    """
    buffer, dtype = cells.buffers()[1], np.dtype(cells.type.to_pandas_dtype())
    if buffer is None or not len(cells):
        return np.zeros(len(cells), dtype)
    if dtype.kind == "b":
        return _bits(buffer, cells.offset, len(cells))
    return np.frombuffer(buffer, dtype, len(cells), cells.offset * dtype.itemsize)


def null_mask(cells: pa.Array) -> npt.NDArray[np.bool_]:
    """Which cells are null, shape ``(n,)``."""
    type_ = cells.type
    if pa.types.is_null(type_):
        return np.ones(len(cells), bool)
    if pa.types.is_dictionary(type_):
        return np.asarray(cells.is_null())  # told by what it refers to
    validity = cells.buffers()[0] if cells.null_count else None
    return np.zeros(len(cells), bool) if validity is None else ~_bits(validity, cells.offset, len(cells))


def _bits(buffer: pa.Buffer, offset: int, n_bits: int) -> npt.NDArray[np.bool_]:
    """Bits as booleans, from the bit at ``offset``."""
    start = offset // 8
    some = np.frombuffer(buffer, np.uint8, (offset + n_bits + 7) // 8 - start, start)
    return np.unpackbits(some, count=offset - 8 * start + n_bits, bitorder="little")[offset - 8 * start :].view(bool)
