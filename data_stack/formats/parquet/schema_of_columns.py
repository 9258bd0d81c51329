"""Infers a schema from values, for a writer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

from data_stack.exception import ConfigError
from data_stack.formats.parquet.codecs import NdarrayCodec, PngCodec
from data_stack.formats.parquet.column_values import plain_value
from data_stack.formats.parquet.inference import infer_schema
from data_stack.formats.parquet.schema import Field, Schema

#: What to do where no schema can be inferred.
_ADVICE: Final = 'pass schema=Schema("…", [Field(…), …])'
#: The shapes of images, by the modes of Pillow.
_SHAPES_OF_MODES: Final = {"L": (None, None), "RGB": (None, None, 3), "RGBA": (None, None, 4)}


def schema_of_columns(name: str, columns: Mapping[str, Any]) -> Schema:
    """Infer a field for each column. All fields are nullable.

    Args:
        name: name of the schema.
        columns: arrays of shape ``(n, ...)``, which fix the shape of values, or lists of values;
            arrays in a list may differ in size, but not in their number of dimensions.

    Raises:
        ConfigError: the type of a field cannot be inferred, or cannot be stored.
    """
    if not columns:
        raise ConfigError(f"cannot infer a schema without fields: {_ADVICE}")
    return Schema(name, [_field_of_column(name, values) for name, values in columns.items()])


def _field_of_column(name: str, values: Any) -> Field:
    """Infer the field of a column.

    The first value with a type decides, unless all must be looked at: for plain values of Python.
    """
    if isinstance(values, np.ndarray) and values.dtype != object:
        return _field_of_dtype(name, values.dtype, values.shape[1:])
    value = _first_with_type(values)
    if value is None:
        raise ConfigError(
            f"cannot infer the type of field {name!r}: its first values are null or empty; "
            f"{_ADVICE}"
        )
    mode = getattr(value, "mode", None)
    if isinstance(mode, str) and hasattr(value, "__array_interface__"):  # an image of Pillow
        return _field_of_images(name, mode)
    value = plain_value(value)
    if isinstance(value, Decimal):
        return Field(name, Decimal, nullable=True)
    if isinstance(value, (np.ndarray, np.generic)):
        return _field_of_dtype(name, value.dtype, (None,) * value.ndim)
    if hasattr(value, "dtype"):  # a tensor of bfloat16, say, or a sparse one
        raise ConfigError(
            f"field {name!r} has a {type(value).__name__} of dtype {value.dtype}: "
            "convert it to a numpy array"
        )
    return _field_of_plain_values(name, values)


def _first_with_type(values: Iterable[Any]) -> Any:
    """Return the first value that is neither None nor lists without values; None without one."""
    for value in values:
        if not _has_no_type(value):
            return value
    return None


def _has_no_type(value: Any) -> bool:
    """Whether a value is None, or a list with only such values, or an empty one."""
    if value is None:
        return True
    return isinstance(value, (list, tuple)) and all(_has_no_type(item) for item in value)


def _field_of_images(name: str, mode: str) -> Field:
    if mode not in _SHAPES_OF_MODES:
        raise ConfigError(
            f"field {name!r} has an image of mode {mode!r:.20}: "
            f"convert it to L, RGB or RGBA, or {_ADVICE}"
        )
    return Field(name, "uint8", _SHAPES_OF_MODES[mode], PngCodec(), nullable=True)


def _field_of_plain_values(name: str, values: Iterable[Any]) -> Field:
    try:
        type_ = pa.infer_type([plain_value(value) for value in values])
        if type_ == pa.int64() and any(_needs_uint64(value) for value in values):
            type_ = pa.uint64()
        (field,) = infer_schema(pa.schema([pa.field(name, type_)]))
    except (pa.ArrowException, ConfigError, TypeError, ValueError) as error:
        raise ConfigError(
            f"cannot infer the type of field {name!r}: {error!s:.200}; {_ADVICE}"
        ) from error
    return field


def _needs_uint64(value: Any) -> bool:
    return isinstance(value, int) and value >= 1 << 63


def _field_of_dtype(name: str, dtype: np.dtype[Any], shape: tuple[int | None, ...]) -> Field:
    if dtype.kind in "mM" and np.datetime_data(dtype)[0] == "generic":
        raise ConfigError(
            f"field {name!r} has times without a unit, of dtype {dtype}: convert them with astype()"
        )
    try:
        return Field(name, dtype, shape, nullable=True)
    except ConfigError as error:
        try:  # Parquet has no complex numbers, for instance
            return Field(name, dtype, shape, NdarrayCodec(), nullable=True)
        except ConfigError:
            raise ConfigError(f"field {name!r} cannot be stored: {error}; {_ADVICE}") from error
