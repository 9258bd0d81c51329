"""Converts cells of Arrow to values of samples."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from data_stack.exception import ConfigError
from data_stack.formats.parquet.codecs.tensor_codec import unflatten_tensors
from data_stack.formats.parquet.columns import ArrayColumn, CellError
from data_stack.formats.parquet.inference import infer_schema
from data_stack.formats.parquet.schema import Field
from data_stack.formats.parquet.types import is_list, tensor_shape
from data_stack.values.stacked_values import objects

_Array = npt.NDArray[Any]
#: Positions of cells in a column.
_Indices = npt.NDArray[np.int64]

#: The errors that pyarrow raises for wrong values. That for a lack of memory is not one of them.
ARROW_ERRORS = (
    pa.ArrowInvalid,
    pa.ArrowTypeError,
    pa.ArrowNotImplementedError,
    pa.ArrowKeyError,
    pa.ArrowCapacityError,
)

#: Cells that are added to a digest at once. The digest depends on it.
_CELLS_OF_DIGEST = 1 << 16


# ---------------------------------------------------------------------- types


def field_of(name: str, type_: pa.DataType) -> Field:
    """Return the field of a Parquet dataset that reads cells of an Arrow type.

    Args:
        name: the name of the column, for the message.
        type_: the type of the cells.

    Returns:
        A nullable field. Its name is not that of the column.

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
    """Return the field that reads cells of a type.

    The fields of the last types are cached: the field of a struct takes 300 µs to infer, and each
    access to a sample needs it.

    Raises:
        ConfigError: the type is unsupported.
    """
    return infer_schema(pa.schema([pa.field("value", type_)]))["value"]


def _fixed_shape(type_: pa.DataType) -> tuple[int, ...]:
    """Return the shape of the values of a type.

    Returns:
        The shape of a tensor, or of nested lists of fixed size; ``()`` for other types.
    """
    if isinstance(type_, pa.FixedShapeTensorType):
        return tensor_shape(type_)
    if not pa.types.is_fixed_size_list(type_):
        return ()
    # Lists of times are read by the codec of their field, which knows their units.
    if pa.types.is_temporal(type_.value_type):
        return ()
    inner_shape = _fixed_shape(type_.value_type)
    return (type_.list_size, *inner_shape)


# ---------------------------------------------------------------------- cells


def unshifted(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return the same cells in arrays that pyarrow reads right.

    If lists of fixed size contain lists of fixed size, pyarrow ignores where a slice begins. It
    would return values of rows before the slice. So such slices are copied.
    """
    # The text of a type contains those of its parts.
    has_nested_lists = str(cells.type).count("fixed_size_list") > 1
    has_slices = has_nested_lists and any(_is_slice(chunk) for chunk in cells.chunks)
    if not has_slices:
        return cells
    return pa.chunked_array([pa.concat_arrays([chunk]) for chunk in cells.chunks])


def _is_slice(chunk: pa.Array) -> bool:
    """Return whether an array uses only a part of its buffers."""
    return bool(chunk.nbytes < chunk.get_total_buffer_size())


def update_digest(digest: Any, n_cells: int, take: Callable[[_Indices], pa.ChunkedArray]) -> None:
    """Add all cells of a column to a digest, in pieces that do not depend on its chunks.

    Args:
        digest: a hash object of ``hashlib``.
        n_cells: the number of cells.
        take: a function that returns the cells at some positions.
    """
    for positions in pieces_of_digest(n_cells):
        add_piece(digest, take(positions))


def pieces_of_digest(n_cells: int) -> Iterator[_Indices]:
    """Yield the positions of the cells that :func:`add_piece` adds to a digest at once."""
    for start in range(0, n_cells, _CELLS_OF_DIGEST):
        yield np.arange(start, min(start + _CELLS_OF_DIGEST, n_cells))


def add_piece(digest: Any, cells: pa.ChunkedArray) -> None:
    """Add the cells of a piece to a digest; see :func:`update_digest`."""
    piece = pa.concat_arrays(cells.chunks)
    digest.update(pa.record_batch([piece], ["values"]).serialize())


def values_of(
    cells: pa.Array, name: str, *, has_nulls: bool, shape: tuple[int, ...] = (), lent: bool = False
) -> _Array:
    """Return the values of a column, shape ``(n, ...)``.

    Args:
        cells: n cells of any type.
        name: the name of the column, for messages.
        has_nulls: whether the column has nulls anywhere, not only in these cells. If so, the result
            is an array of objects, with None for each null.
        shape: the shape of each value if the type does not define it; ``()`` otherwise.
        lent: whether the result may share the memory of the cells. If so, the caller must not write
            to it.

    Returns:
        Values of the dtype that :func:`field_of` tells. Values that differ in shape, and those
        without a dtype of numpy, are an array of objects, shape ``(n,)``.

    Raises:
        ConfigError: the type is unsupported, or the cells are invalid.
    """
    if not shape:
        shape = _fixed_shape(cells.type)
    if len(shape) > 1:
        tensors = _tensors_of(cells, shape)
        if tensors is not None:
            if not lent:
                tensors = tensors.copy()
            if has_nulls:
                return _with_nulls(tensors, cells)
            return tensors

    field = field_of(name, cells.type)
    try:
        column = field.cells.column(field, cells, has_nulls=has_nulls)
        if lent and isinstance(column, ArrayColumn):
            return column.array
        return column.take(np.arange(len(cells)))
    except (CellError, ValueError, *ARROW_ERRORS) as error:
        raise ConfigError(
            f"column {name!r} of type {cells.type!s:.80} cannot be read: {error!s:.200}; drop it"
        ) from error


def cells_of_tensors(values: _Array) -> pa.Array:
    """Convert arrays of numbers of one shape to lists of fixed size, one level for each axis.

    Args:
        values: shape ``(n, ...)`` of at least two axes, none of them of size 0 but the first.
    """
    native_dtype = values.dtype.newbyteorder("=")
    cells = pa.array(np.ascontiguousarray(values, native_dtype).reshape(-1))
    for size in reversed(values.shape[1:]):
        cells = pa.FixedSizeListArray.from_arrays(cells, size)
    return cells


def _with_nulls(valid_values: _Array, cells: pa.Array) -> _Array:
    """Return the value of each cell as an array of objects, shape ``(n,)``, with None for null.

    Args:
        valid_values: the values of the cells that are not null, in their order.
        cells: all n cells.
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
    """Read cells as tensors of one shape.

    Args:
        cells: tensors, or lists nested to any depth.
        shape: the shape of each value.

    Returns:
        The values that are not null, shape ``(n_valid, *shape)``, which may share the memory of the
        cells. None if a value contains a null, has another shape, or does not contain numbers.
    """
    valid = cells
    if cells.null_count:
        valid = cells.drop_null()
    stored_shape = shape
    permutation = None
    numbers = valid
    if isinstance(valid, pa.FixedShapeTensorArray):
        stored_shape = tuple(valid.type.shape)
        permutation = valid.type.permutation
    if isinstance(valid, pa.ExtensionArray):
        numbers = valid.storage
    while is_list(numbers.type):
        numbers = numbers.flatten()
    if numbers.null_count or not pa.types.is_primitive(numbers.type):
        return None
    if len(numbers) != len(valid) * math.prod(shape):
        return None
    # Only bools are copied: Arrow stores each of them as a bit.
    array: _Array = numbers.to_numpy(zero_copy_only=False)
    return unflatten_tensors(array, len(valid), stored_shape, permutation)
