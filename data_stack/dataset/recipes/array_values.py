"""Arrays and tensors among the arguments of layers."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from data_stack.dataset.positions import ComputedPositions, as_index_array, narrow
from data_stack.values.stacked_values import as_array

#: Arrays are digested in blocks of about this size, so that they need not be copied whole.
_DIGEST_BLOCK_BYTES = 1 << 24

#: Up to this number, computed positions are written as an array.
_MAX_WRITTEN_POSITIONS = 1 << 24


@dataclass(frozen=True, eq=False, slots=True)
class ArrayValue:
    """The values of an array, of a scalar of numpy's, or of a tensor.

    Attributes:
        kind: ``"records"`` for an array of a structured dtype.
        tensor_dtype: the name of the dtype of a tensor, such as ``"bfloat16"``; None otherwise.
        values: the values. Tensors of dtypes that numpy lacks are float32.
    """

    kind: Literal["array", "records", "tensor"]
    tensor_dtype: str | None
    values: npt.NDArray[Any]


def array_value_of(value: Any) -> ArrayValue | None:
    """Return the values of an array, scalar or tensor.

    Returns:
        The values; None for anything else, for masked arrays, arrays of objects, and tensors that
        numpy cannot hold, such as sparse ones.
    """
    if isinstance(value, (np.ndarray, np.generic)):
        if isinstance(value, np.ma.MaskedArray) or value.dtype.hasobject:
            return None
        kind: Literal["array", "records"] = "records" if value.dtype.kind == "V" else "array"
        return ArrayValue(kind, None, np.asarray(value))
    if not _is_tensor(value):
        return None

    dtype = str(value.dtype).rpartition(".")[2]
    try:
        # numpy lacks bfloat16 and all smaller floats, which are exact in float32.
        is_small_float = dtype == "bfloat16" or "float8" in dtype
        values = as_array(value.float() if is_small_float else value)
    except (TypeError, RuntimeError, NotImplementedError):  # a sparse or quantized tensor
        return None
    return ArrayValue("tensor", dtype, values)


def _is_tensor(value: Any) -> bool:
    """Return whether a value is a tensor of torch, without importing torch."""
    return hasattr(value, "detach") and type(value).__module__.partition(".")[0] == "torch"


def write_out_positions(value: Any) -> Any:
    """Return computed positions as an array, unless they are many; other values as they are."""
    if not isinstance(value, ComputedPositions) or len(value) > _MAX_WRITTEN_POSITIONS:
        return value
    positions = as_index_array(value)
    end = int(positions.max(initial=0)) + 1
    return narrow(positions, end)


def array_digest(array: npt.NDArray[Any]) -> str:
    """Return a SHA-256 of the values of an array.

    The values are digested in little-endian order of bytes, the last index running fastest.
    """
    digest = hashlib.sha256()
    if array.ndim == 0 or array.size == 0:
        array = array.reshape(1, -1)
    n_rows = max(1, _DIGEST_BLOCK_BYTES * len(array) // max(1, array.nbytes))
    little_endian = array.dtype.newbyteorder("<")
    for start in range(0, len(array), n_rows):
        block = np.ascontiguousarray(array[start : start + n_rows], dtype=little_endian)
        if block.size:
            digest.update(block.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()
