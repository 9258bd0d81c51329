"""Converts cells of Arrow to values of samples."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.exception import ConfigError
from data_stack.formats.parquet.columns import ArrayColumn as ParquetColumn
from data_stack.formats.parquet.columns import CellError
from data_stack.formats.parquet.inference import infer_schema
from data_stack.formats.parquet.schema import Field
from data_stack.formats.parquet.types import is_list
from data_stack.values.stacked_values import objects

_Array = npt.NDArray[Any]
_Indices = npt.NDArray[np.int64]

#: The errors of pyarrow that say that values are wrong; not that of a lack of memory.
ARROW_ERRORS = (
    pa.ArrowInvalid,
    pa.ArrowTypeError,
    pa.ArrowNotImplementedError,
    pa.ArrowKeyError,
    pa.ArrowCapacityError,
)

#: Cells that are added to a digest at once.
_CELLS_OF_DIGEST = 1 << 16


# ---------------------------------------------------------------------- types


def field_of(name: str, type_: pa.DataType) -> Field:
    """Return the Parquet field of a column with cells of a type, including nulls.

    Raises:
        ConfigError: the type is unsupported.
    """
    try:
        return _field_of_type(type_)
    except ConfigError as error:
        raise ConfigError(
            f"column {name!r} has the unsupported type {type_!s:.80}: cast it, or drop it"
        ) from error


@functools.lru_cache(maxsize=1000)
def _field_of_type(type_: pa.DataType) -> Field:
    """Return the field of a type; kept, as the field of a struct takes 300 µs to infer.

    Without the cache, each access to a sample would take that long.
    """
    return infer_schema(pa.schema([pa.field("value", type_)]))["value"]


def _fixed_shape(type_: pa.DataType) -> tuple[int, ...]:
    """Return the shape of a tensor or of nested lists of fixed size; ``()`` for other types."""
    if isinstance(type_, pa.FixedShapeTensorType):
        return tuple(type_.shape)
    if not pa.types.is_fixed_size_list(type_):
        return ()
    # Lists of times are read by the codec of their field, which knows their units.
    if pa.types.is_temporal(type_.value_type):
        return ()
    return (type_.list_size, *_fixed_shape(type_.value_type))


# ---------------------------------------------------------------------- cells


def unshifted(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the cells, copied if pyarrow might read wrong ones.

    pyarrow ignores the offset of a slice of lists of fixed size within lists of fixed size: it
    would return values of rows before the slice.
    """
    is_nested = str(cells.type).count("fixed_size_list") > 1
    if not is_nested or not any(_is_slice(chunk) for chunk in cells.chunks):
        return cells
    return pa.chunked_array([pa.concat_arrays([chunk]) for chunk in cells.chunks])


def _is_slice(chunk: pa.Array) -> bool:
    """Return whether an array uses a part of its buffers only."""
    return bool(chunk.nbytes < chunk.get_total_buffer_size())


def update_digest(digest: Any, n_cells: int, take: Callable[[_Indices], pa.ChunkedArray]) -> None:
    """Add all cells of a column to a digest, in pieces that do not depend on its chunks.

    Args:
        digest: a digest of hashlib.
        n_cells: the number of cells.
        take: returns the cells at indices.
    """
    for start in range(0, n_cells, _CELLS_OF_DIGEST):
        stop = min(start + _CELLS_OF_DIGEST, n_cells)
        piece = pa.concat_arrays(take(np.arange(start, stop)).chunks)
        digest.update(pa.record_batch([piece], ["values"]).serialize())


def values_of(
    cells: pa.Array, name: str, *, has_nulls: bool, shape: tuple[int, ...] = (), lent: bool = False
) -> _Array:
    """Return the values of a column, shape ``(n, ...)``.

    Args:
        cells: cells of any type.
        name: the name of the column.
        has_nulls: whether the column has nulls anywhere. Then the result is an array of objects,
            with None for each null.
        shape: the shape of each value, if the type does not define it.
        lent: whether the array may share the memory of the cells; then do not write to it.

    Raises:
        ConfigError: the type is unsupported, or the cells are invalid.
    """
    shape = shape or _fixed_shape(cells.type)
    if len(shape) > 1:
        tensors = _tensors_of(cells, shape)
        if tensors is not None:
            if not lent:
                tensors = tensors.copy()
            return _with_nulls(tensors, cells) if has_nulls else tensors
    field = field_of(name, cells.type)
    try:
        column = field.cells.column(field, cells, has_nulls=has_nulls)
        if lent and isinstance(column, ParquetColumn):
            return column.array
        return column.take(np.arange(len(cells)))
    except (CellError, ValueError, *ARROW_ERRORS) as error:
        raise ConfigError(
            f"column {name!r} of type {cells.type!s:.80} cannot be read: {error!s:.200}; drop it"
        ) from error


def _with_nulls(valid_values: _Array, cells: pa.Array) -> _Array:
    """Return an array of objects: the value of each cell, None for null.

    Args:
        valid_values: the values of the cells that are not null, in order.
        cells: all cells.
    """
    values: list[Any] = []
    n_valid = 0
    for is_valid in cells.is_valid().to_pylist():
        if is_valid:
            values.append(valid_values[n_valid])
            n_valid += 1
        else:
            values.append(None)
    return objects(values)


def _tensors_of(cells: pa.Array, shape: tuple[int, ...]) -> _Array | None:
    """Return the values that are not null, shape ``(n, *shape)``.

    None if a value contains a null, has another shape, or does not hold numbers.
    """
    valid = cells.drop_null() if cells.null_count else cells
    if _is_permuted(valid):
        permuted: _Array = valid.to_numpy_ndarray()
        return permuted
    flat = valid.storage if isinstance(valid, pa.ExtensionArray) else valid
    while is_list(flat.type):
        flat = flat.flatten()
    if flat.null_count or not pa.types.is_primitive(flat.type):
        return None
    if len(flat) != len(valid) * math.prod(shape):
        return None
    tensors: _Array = flat.to_numpy(zero_copy_only=False).reshape(-1, *shape)
    return tensors


def _is_permuted(cells: pa.Array) -> bool:
    """Return whether the dimensions of tensors are stored in another order."""
    is_tensors = isinstance(cells, pa.FixedShapeTensorArray)
    return is_tensors and len(cells) > 0 and cells.type.permutation is not None
