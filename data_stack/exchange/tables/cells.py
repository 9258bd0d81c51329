"""Converts the values of a column to Arrow cells."""

from __future__ import annotations

import json
import math
from datetime import date, time, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from data_stack.exception import ConfigError
from data_stack.formats.arrow_tables import ARROW_ERRORS, JSON_TEXT, Origin, cells_of_tensors
from data_stack.formats.parquet.codecs.cells import null_mask
from data_stack.formats.parquet.codecs.exact_cells import exact_cells
from data_stack.formats.parquet.columns import CellError
from data_stack.formats.parquet.schema_of_columns import schema_of_columns
from data_stack.values.stacked_values import objects

_Array = npt.NDArray[Any]

#: What pyarrow raises for values that it cannot convert.
_CONVERSION_ERRORS = (*ARROW_ERRORS, TypeError, ValueError, OverflowError)

#: The kinds of numpy's dtypes of bools, integers and floats.
_KINDS_OF_NUMBERS = "biuf"


def cells_of(
    values: _Array, name: str, origin: Origin | None = None, *, first_row: int = 0
) -> pa.Array:
    """Convert the values of a column to cells, each of which equals its value.

    See :func:`~data_stack.formats.parquet.codecs.exact_cells.exact_cells`.

    Args:
        values: shape ``(n, ...)``; None and NaT are null.
        name: the name of the column, for messages.
        origin: the column in its source library; None to infer the type from the values.
        first_row: the position of the first value in the column, for messages.

    Raises:
        ConfigError: Arrow has no type for the values, or they have several types, or a value does
            not fit the type.
    """
    try:
        return _convert(values, origin)
    except CellError as error:
        raise ConfigError(
            f"column {name!r} cannot be converted to Arrow: row {first_row + error.row}: "
            f"{error.why}; map its values to one type, or pass another type"
        ) from error
    except (ConfigError, *_CONVERSION_ERRORS) as error:
        raise ConfigError(
            f"column {name!r} cannot be converted to Arrow: {error!s:.300}; "
            f"map its values to one type"
        ) from error


def _convert(values: _Array, origin: Origin | None) -> pa.Array:
    """Convert values to the type that the column has in its source, or to an inferred type."""
    if origin is None:
        return _cells_of_inferred_type(values)
    if origin.kind == JSON_TEXT:
        return _json_cells(values)
    if origin.field is None:
        return _cells_of_inferred_type(values)
    if origin.categories is not None:
        return _categorical_cells(values, origin.field.type, origin)
    return exact_cells(values, origin.field.type)


# ---------------------------------------------------------------------- a known type


def _json_cells(values: _Array) -> pa.Array:
    """Convert values of JSON to text."""
    texts: list[str | None] = []
    for value in values.tolist():
        if value is None:
            texts.append(None)
        else:
            texts.append(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    return pa.array(texts, pa.string())


def _categorical_cells(values: _Array, type_: pa.DictionaryType, origin: Origin) -> pa.Array:
    """Convert values to indices of the categories that the column has in its source."""
    if origin.as_codes:
        indices = exact_cells(values, pa.int64())
    else:
        categories = exact_cells(values, type_.value_type)
        indices = pc.index_in(categories, value_set=origin.categories)
    # polars reads the indices of nulls, too, so these must be valid.
    index_of_null = 0
    return pa.DictionaryArray.from_arrays(
        indices.fill_null(index_of_null).cast(type_.index_type).to_numpy(),
        origin.categories,
        mask=null_mask(indices),
        ordered=type_.ordered,
    )


# ---------------------------------------------------------------------- an inferred type


def _cells_of_inferred_type(values: _Array) -> pa.Array:
    if values.ndim > 1 and values.dtype == object:
        values = objects(values.tolist())

    if values.dtype == object:
        values = objects([_without_object_matrices(value) for value in values])

    is_array_of_numbers = values.ndim > 1 and values.dtype.kind in _KINDS_OF_NUMBERS
    if is_array_of_numbers and math.prod(values.shape[1:]):
        return cells_of_tensors(values)

    type_of_lists = _find_type_of_nested_lists(values)
    if type_of_lists is not None:
        return exact_cells(values, type_of_lists)

    if values.dtype == object:
        cells = _cells_as_pyarrow_infers(values)
        if cells is not None:
            return cells

    # The type in which a Parquet file stores such a column.
    (field,) = schema_of_columns("", {"value": values})
    return field.cells.encode_column(field, values)


def _without_object_matrices(value: Any) -> Any:
    """Return a matrix of objects, such as a tensor with a missing element, as nested lists."""
    if isinstance(value, np.ndarray) and value.dtype == object and value.ndim > 1:
        return value.tolist()
    return value


def _find_type_of_nested_lists(values: _Array) -> pa.DataType | None:
    """Return the type of lists for arrays of one dtype with equally many axes, at least 2.

    Returns None for other values.
    """
    has_matrices = values.ndim > 2 and values.dtype.kind in f"{_KINDS_OF_NUMBERS}U"
    if values.dtype != object and not has_matrices:
        return None
    arrays = [value for value in values if isinstance(value, np.ndarray)]
    kinds = {(array.dtype, array.ndim) for array in arrays}
    if len(kinds) != 1:
        return None
    dtype, n_axes = kinds.pop()
    if n_axes < 2:
        return None
    type_ = pa.from_numpy_dtype(dtype)
    for _ in range(n_axes):
        type_ = pa.list_(type_)
    return type_


def _cells_as_pyarrow_infers(values: _Array) -> pa.Array | None:
    """Convert objects to the type that pyarrow infers.

    Returns None if pyarrow infers no type, or one that does not hold all values.

    Raises:
        CellError: the values are times of several kinds, such as dates and datetimes.
    """
    listed_values = values.tolist()
    try:
        type_ = pa.infer_type(listed_values)
    except _CONVERSION_ERRORS:
        return None
    try:
        return exact_cells(listed_values, type_)
    except CellError:
        has_times = any(isinstance(value, (date, time, timedelta)) for value in listed_values)
        if has_times:
            raise
        return None
