"""Converts Arrow cells to numpy arrays and back."""

from __future__ import annotations

import contextlib
import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from data_stack.exception import ConfigError
from data_stack.formats.parquet.codecs.binary import null_mask
from data_stack.formats.parquet.columns import ArrayColumn, CellError
from data_stack.formats.parquet.inference import infer_schema, schema_of_columns
from data_stack.formats.parquet.schema import Field
from data_stack.formats.parquet.types import is_list
from data_stack.values.stacked_values import objects

_Array = npt.NDArray[Any]
#: Those of pyarrow for values, without that for memory.
ARROW_ERRORS = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, pa.ArrowKeyError, pa.ArrowCapacityError)
_UNSUITABLE = (ConfigError, CellError, *ARROW_ERRORS, TypeError, ValueError, OverflowError)


@dataclass(frozen=True, eq=False)
class Origin:
    """The type of a column in the library that it comes from, so that it can be converted back.

    Attributes:
        field: the Arrow field of the column; None if its cells are not the values.
        categories: the values of a categorical column; None for other columns.
        as_codes: whether samples hold the indices of the categories.
        kind: the dtype of pandas, or the feature of Hugging Face; None if ``field`` suffices.
    """

    field: pa.Field | None
    categories: pa.Array | None = None
    as_codes: bool = False
    kind: Any = None


def field_of(name: str, type_: pa.DataType) -> Field:
    """The Parquet field of a column with cells of a type, including nulls.

    Raises:
        ConfigError: the type is unsupported.
    """
    try:
        return infer_schema(pa.schema([pa.field("value", type_)]))["value"]
    except ConfigError as error:
        raise ConfigError(f"column {name!r} has the unsupported type {type_!s:.80}: cast it, or drop it") from error


def _fixed_shape(type_: pa.DataType) -> tuple[int, ...]:
    """The shape of Arrow's tensors and nested lists of fixed size; ``()`` for other types."""
    if isinstance(type_, pa.FixedShapeTensorType):
        return tuple(type_.shape)
    is_list_of_lists = pa.types.is_fixed_size_list(type_) and not pa.types.is_temporal(type_.value_type)
    return (type_.list_size, *_fixed_shape(type_.value_type)) if is_list_of_lists else ()


# ---------------------------------------------------------------------- reading


def values_of(cells: pa.Array, name: str, *, has_nulls: bool, shape: tuple[int, ...] = (), lent: bool = False) -> _Array:
    """Values of a column, shape ``(n, ...)``.

    Args:
        cells: cells of any type.
        name: name of the column.
        has_nulls: whether the column has nulls anywhere; then the result is an array of objects, with None for each null.
        shape: shape of each value, if the type does not define it.
        lent: whether the array may share the memory of the cells; then do not write to it.

    Raises:
        ConfigError: the type is unsupported, or the cells are invalid.
    """
    shape = shape or _fixed_shape(cells.type)
    tensors = _tensors(cells, shape) if len(shape) > 1 else None
    if tensors is None:
        field = field_of(name, cells.type)
        try:
            column = field.cells.column(field, cells, has_nulls=has_nulls)
            return column.array if lent and isinstance(column, ArrayColumn) else column.take(np.arange(len(cells)))
        except (CellError, ValueError, *ARROW_ERRORS) as error:
            raise ConfigError(f"column {name!r} of type {cells.type!s:.80} cannot be read: {error!s:.200}; drop it") from error
    tensors = tensors if lent else tensors.copy()
    rest = iter(tensors)
    return objects([next(rest) if valid else None for valid in cells.is_valid().to_pylist()]) if has_nulls else tensors


def _tensors(cells: pa.Array, shape: tuple[int, ...]) -> _Array | None:
    """The non-null values; None if a value contains a null, has another shape, or does not hold numbers."""
    valid = cells.drop_null() if cells.null_count else cells
    if isinstance(valid, pa.FixedShapeTensorArray) and valid.type.permutation is not None and len(valid):
        return valid.to_numpy_ndarray()  # type: ignore[no-any-return]  # an array
    flat = valid.storage if isinstance(valid, pa.ExtensionArray) else valid
    while is_list(flat.type):
        flat = flat.flatten()
    if flat.null_count or len(flat) != len(valid) * math.prod(shape) or not pa.types.is_primitive(flat.type):
        return None
    return flat.to_numpy(zero_copy_only=False).reshape(-1, *shape)  # type: ignore[no-any-return]  # an array


# ---------------------------------------------------------------------- writing


def cells_of(values: _Array, name: str, origin: Origin | None = None) -> pa.Array:
    """Values of a column as cells.

    Args:
        values: shape ``(n, ...)``; None and NaT are null.
        name: name of the column.
        origin: the column in its source library; None to infer the type from the values.

    Raises:
        ConfigError: Arrow has no type for the values, or they have several types.
    """
    try:
        if origin is None or origin.field is None:
            return _cells(values)
        type_ = origin.field.type
        if origin.categories is None:
            return _cells_of_type(values, type_)
        codes = _cells_of_type(values, pa.int64() if origin.as_codes else type_.value_type)
        codes = codes if origin.as_codes else pc.index_in(codes, value_set=origin.categories)
        # polars also reads the index of a null
        numbers = codes.fill_null(0).cast(type_.index_type).to_numpy()
        return pa.DictionaryArray.from_arrays(numbers, origin.categories, mask=null_mask(codes), ordered=type_.ordered)
    except _UNSUITABLE as error:
        raise ConfigError(f"column {name!r} cannot be converted to Arrow: {error!s:.300}; map its values to one type") from error


def _cells(values: _Array) -> pa.Array:
    """Cells of the type inferred from the values."""
    if values.ndim > 1 and values.dtype.kind in "biuf" and math.prod(values.shape[1:]):
        cells = pa.array(np.ascontiguousarray(values, values.dtype.newbyteorder("=")).reshape(-1))
        return functools.reduce(pa.FixedSizeListArray.from_arrays, reversed(values.shape[1:]), cells)
    of_objects = values if values.dtype == object else ()
    kinds = {(value.dtype, value.ndim) for value in of_objects if isinstance(value, np.ndarray)}
    if len(kinds) == 1 and (kind := kinds.pop())[1] > 1:  # pyarrow does not convert such arrays
        type_ = functools.reduce(lambda inner, _: pa.list_(inner), range(kind[1]), pa.from_numpy_dtype(kind[0]))
        return pa.array([value if value is None else value.tolist() for value in values], type_)
    cells = _cells_at_once(values, None)
    if cells is not None:
        return cells
    (field,) = schema_of_columns("", {"value": values})
    return field.cells.encode_column(field, values)


def _cells_of_type(values: _Array, type_: pa.DataType) -> pa.Array:
    if isinstance(type_, pa.FixedShapeTensorType):
        values = objects([value if value is None else np.ravel(value) for value in values])
    if isinstance(type_, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(type_, _cells_of_type(values, type_.storage_type))
    if len(_fixed_shape(type_)) > 1:
        if values.dtype != object and len(values):
            return _cells(values).cast(type_)
        return pa.array([value if value is None else np.asarray(value).tolist() for value in values], type_)
    cells, field = _cells_at_once(values, type_), field_of("value", type_)
    return field.cells.encode_column(field, values).cast(type_) if cells is None else cells


def _cells_at_once(values: _Array, type_: pa.DataType | None) -> pa.Array | None:
    """Cells of objects as pyarrow converts them; None if that fails."""
    with contextlib.suppress(*ARROW_ERRORS, TypeError, ValueError, OverflowError):
        return pa.array(values, type_, from_pandas=False) if values.dtype == object else None
    return None
