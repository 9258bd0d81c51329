"""Infers the schema of a writer from the values that it gets first."""

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
#: The shapes of images by the mode that Pillow gives them.
_SHAPES_OF_MODES: Final = {"L": (None, None), "RGB": (None, None, 3), "RGBA": (None, None, 4)}


def schema_of_columns(name: str, columns: Mapping[str, Any]) -> Schema:
    """Infer a schema with a field for each column. All fields are nullable.

    Args:
        name: name of the schema.
        columns: values by name: an array of shape ``(n, ...)``, which fixes the shape of each
            value, or a list of n values. If the values in a list are arrays, only their number of
            dimensions is fixed, not their sizes.

    Raises:
        ConfigError: the type of a field cannot be inferred, or cannot be stored.
    """
    if not columns:
        raise ConfigError(f"cannot infer a schema without fields: {_ADVICE}")
    fields = []
    for field_name, values in columns.items():
        fields.append(_field_of_column(field_name, values))
    return Schema(name, fields)


def _field_of_column(name: str, values: Any) -> Field:
    """Infer the field of a column.

    The first value with a type decides for images and arrays. Plain values of Python decide
    together: an integer may be followed by a larger one or by a float.
    """
    if isinstance(values, np.ndarray) and values.dtype != object:
        return _field_of_dtype(name, values.dtype, values.shape[1:])
    value = _first_with_type(values)
    if value is None:
        raise ConfigError(
            f"cannot infer the type of field {name!r}: its first values are null or empty; "
            f"{_ADVICE}"
        )
    if _is_image(value):
        return _field_of_images(name, value.mode)
    value = plain_value(value)
    if isinstance(value, Decimal):
        return Field(name, Decimal, nullable=True)
    if isinstance(value, (np.ndarray, np.generic)):
        open_shape = (None,) * value.ndim
        return _field_of_dtype(name, value.dtype, open_shape)
    if hasattr(value, "dtype"):  # a tensor of bfloat16, say, or a sparse one
        raise ConfigError(
            f"field {name!r} has a {type(value).__name__} of dtype {value.dtype}: "
            "convert it to a numpy array"
        )
    return _field_of_plain_values(name, values)


def _first_with_type(values: Iterable[Any]) -> Any:
    """Return the first value that has a type; None if no value has one."""
    for value in values:
        if _has_type(value):
            return value
    return None


def _has_type(value: Any) -> bool:
    """Return whether a value is not None and not a list without a value that has a type."""
    if value is None:
        return False
    if isinstance(value, (list, tuple)):
        return any(_has_type(item) for item in value)
    return True


def _is_image(value: Any) -> bool:
    """Return whether a value is an image of Pillow, which need not be installed."""
    has_mode = isinstance(getattr(value, "mode", None), str)
    return has_mode and hasattr(value, "__array_interface__")


def _field_of_images(name: str, mode: str) -> Field:
    if mode not in _SHAPES_OF_MODES:
        raise ConfigError(
            f"field {name!r} has an image of mode {mode!r:.20}: "
            f"convert it to L, RGB or RGBA, or {_ADVICE}"
        )
    return Field(name, "uint8", _SHAPES_OF_MODES[mode], PngCodec(), nullable=True)


def _field_of_plain_values(name: str, values: Iterable[Any]) -> Field:
    """Infer the field of a column of plain values of Python, as Arrow does.

    Raises:
        ConfigError: the type cannot be inferred.
    """
    try:
        type_ = pa.infer_type([plain_value(value) for value in values])
        # Arrow infers int64 for all integers, and could not store these.
        if type_ == pa.int64() and any(_needs_uint64(value) for value in values):
            type_ = pa.uint64()
        schema_of_field = infer_schema(pa.schema([pa.field(name, type_)]))
    except (pa.ArrowException, ConfigError, TypeError, ValueError) as error:
        raise ConfigError(
            f"cannot infer the type of field {name!r}: {error!s:.200}; {_ADVICE}"
        ) from error
    return schema_of_field[name]


def _needs_uint64(value: Any) -> bool:
    return isinstance(value, int) and value >= 1 << 63


def _field_of_dtype(name: str, dtype: np.dtype[Any], shape: tuple[int | None, ...]) -> Field:
    """Return the field for values of a dtype and shape, stored in types of Parquet if possible.

    Raises:
        ConfigError: such values cannot be stored.
    """
    if dtype.kind in "mM" and np.datetime_data(dtype)[0] == "generic":
        raise ConfigError(
            f"field {name!r} has times without a unit, of dtype {dtype}: convert them with astype()"
        )
    try:
        return Field(name, dtype, shape, nullable=True)
    except ConfigError as error:
        error_of_parquet = error
    # Parquet has no complex numbers, for instance.
    try:
        return Field(name, dtype, shape, NdarrayCodec(), nullable=True)
    except ConfigError:
        raise ConfigError(
            f"field {name!r} cannot be stored: {error_of_parquet}; {_ADVICE}"
        ) from error_of_parquet
