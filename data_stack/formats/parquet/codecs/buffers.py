"""Numbers and nulls out of Arrow's buffers, as they are: pyarrow itself makes floats of integers beside a null."""

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
    buffer = cells.buffers()[1]
    if buffer is None:
        return np.zeros(len(cells), cells.type.to_pandas_dtype())
    return _without_nulls(cells.type, cells, buffer)


def null_mask(cells: pa.Array) -> npt.NDArray[np.bool_]:
    """Which cells are null, shape ``(n,)``."""
    type_ = cells.type
    if pa.types.is_null(type_):
        return np.ones(len(cells), bool)
    if pa.types.is_union(type_) or pa.types.is_run_end_encoded(type_) or pa.types.is_dictionary(type_):
        return np.asarray(cells.is_null())  # told by what they refer to
    validity = cells.buffers()[0] if cells.null_count else None
    return np.zeros(len(cells), bool) if validity is None else ~_without_nulls(pa.bool_(), cells, validity)


def _without_nulls(type_: pa.DataType, cells: pa.Array, buffer: pa.Buffer) -> npt.NDArray[Any]:
    found: npt.NDArray[Any] = pa.Array.from_buffers(type_, len(cells), [None, buffer], offset=cells.offset).to_numpy(
        zero_copy_only=False
    )
    return found
