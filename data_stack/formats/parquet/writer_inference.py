"""Infers a schema from values, for a writer without one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

from data_stack.exception import ConfigError
from data_stack.formats.parquet.codecs import NdarrayCodec, PngCodec
from data_stack.formats.parquet.inference import infer_schema
from data_stack.formats.parquet.schema import Field, Schema
from data_stack.formats.parquet.writer_cells import plain_value

_ADVICE: Final = 'pass schema=Schema("…", [Field(…), …])'
_IMAGE_SHAPES: Final = {"L": (None, None), "RGB": (None, None, 3), "RGBA": (None, None, 4)}


def schema_of_columns(name: str, columns: Mapping[str, Any]) -> Schema:
    """Infer a field for each column. All fields are nullable.

    Args:
        name: name of the schema.
        columns: arrays of shape ``(n, ...)``, which fix the shape of values, or lists of values; arrays in a list may differ in
            size, but not in their number of dimensions.

    Raises:
        ConfigError: the type of a field cannot be inferred, or cannot be stored.
    """
    if not columns:
        raise ConfigError(f"cannot infer a schema without fields: {_ADVICE}")
    fields = []
    for field, values in columns.items():
        if not isinstance(field, str):
            raise ConfigError(f"names of fields must be strings, got {field!r:.60}")
        is_array = isinstance(values, np.ndarray) and values.dtype != object
        fields.append(_field_of_dtype(field, values.dtype, values.shape[1:]) if is_array else _field(field, values))
    return Schema(name, fields)


def _has_no_type(values: Iterable[Any]) -> bool:
    """Whether all values are None or empty lists."""
    return all(value is None or (isinstance(value, (list, tuple)) and _has_no_type(value)) for value in values)


def _field(name: str, values: Iterable[Any]) -> Field:
    value = next((value for value in values if not _has_no_type([value])), None)
    if value is None:
        raise ConfigError(f"cannot infer the type of field {name!r}: its first values are null or empty; {_ADVICE}")
    mode = getattr(value, "mode", None)
    if isinstance(mode, str) and hasattr(value, "__array_interface__"):  # an image of Pillow
        if mode not in _IMAGE_SHAPES:
            raise ConfigError(f"field {name!r} has an image of mode {mode!r:.20}: convert it to L, RGB or RGBA, or {_ADVICE}")
        return Field(name, "uint8", _IMAGE_SHAPES[mode], PngCodec(), nullable=True)
    value = plain_value(value)
    if isinstance(value, Decimal):
        return Field(name, Decimal, (), nullable=True)
    if isinstance(value, (np.ndarray, np.generic)):
        return _field_of_dtype(name, value.dtype, (None,) * value.ndim)
    if hasattr(value, "dtype"):  # a tensor of bfloat16, say, or a sparse one
        raise ConfigError(f"field {name!r} has a {type(value).__name__} of dtype {value.dtype}: convert it to a numpy array")
    try:
        type_ = pa.infer_type([plain_value(each) for each in values])
        if type_ == pa.int64() and any(isinstance(each, int) and each >= 1 << 63 for each in values):
            type_ = pa.uint64()
        (field,) = infer_schema(pa.schema([pa.field(name, type_)]))
    except (pa.ArrowException, ConfigError, TypeError, ValueError) as error:
        raise ConfigError(f"cannot infer the type of field {name!r}: {error!s:.200}; {_ADVICE}") from error
    return field


def _field_of_dtype(name: str, dtype: np.dtype[Any], shape: tuple[int | None, ...]) -> Field:
    if dtype.kind in "mM" and np.datetime_data(dtype)[0] == "generic":
        raise ConfigError(f"field {name!r} has times without a unit, of dtype {dtype}: convert them with astype()")
    try:
        return Field(name, dtype, shape, nullable=True)
    except ConfigError as error:
        try:  # Parquet has no complex numbers, for instance
            return Field(name, dtype, shape, NdarrayCodec(), nullable=True)
        except ConfigError:
            raise ConfigError(f"field {name!r} cannot be stored: {error}; {_ADVICE}") from error
