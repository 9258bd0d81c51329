"""Converts schemas of Petastorm to schemas of data_stack and back."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import numpy as np

from data_stack.formats.parquet import Field, ListCodec, ScalarCodec, Schema
from data_stack.formats.parquet.types import arrow_type_named, dtype_of_arrow
from data_stack_petastorm.codecs import as_column_codec, as_field_codec
from data_stack_petastorm.lenient_scalar_codec import LenientScalarCodec
from data_stack_petastorm.unischema import (
    Unischema,
    UnischemaField,
    default_spark_type,
    schema_name,
)

#: The dtype of times without a codec: Petastorm makes them of Python's datetimes, which have
#: microseconds.
_DEFAULT_TIME: Final = np.dtype("datetime64[us]")

#: The dtype of arrays of times. Each stored array has a unit of its own, and is converted to this.
_TIME_OF_ARRAYS: Final = np.dtype("datetime64[ns]")


def as_schema(schema: Unischema | Schema) -> Schema:
    """Convert a schema of Petastorm to one of data_stack; return a converted one unchanged.

    Raises:
        ConfigError: a codec cannot hold the values of its field.
    """
    if isinstance(schema, Schema):
        return schema
    fields = [as_field(field) for field in schema.fields.values()]
    return Schema(schema_name(schema), fields)


def as_field(field: UnischemaField) -> Field:
    """Convert a field of Petastorm to one of data_stack.

    Raises:
        ConfigError: the codec cannot hold the values.
    """
    codec = as_field_codec(field.codec)
    if codec is None and not field.shape:
        codec = LenientScalarCodec(default_spark_type(field.numpy_dtype))
    dtype = dtype_with_unit(field.numpy_dtype, codec)
    return Field(field.name, dtype, field.shape, codec, bool(field.nullable))


def dtype_with_unit(numpy_dtype: Any, codec: Any) -> Any:
    """Return the dtype of a field of Petastorm, whose ``np.datetime64`` has no unit.

    Petastorm makes the values by ``np.datetime64(cell)`` of a date or a datetime of Python, so that
    they are ``datetime64[D]`` in a column of dates, and ``datetime64[us]`` in one of timestamps.

    Args:
        numpy_dtype: the dtype of the field.
        codec: its codec in data_stack; None for the default one.

    Returns:
        A dtype with a unit for ``np.datetime64``; otherwise ``numpy_dtype``.
    """
    if numpy_dtype is None or numpy_dtype is Decimal:
        return numpy_dtype
    dtype = np.dtype(numpy_dtype)
    is_time = dtype.kind == "M"
    if not is_time:
        return numpy_dtype
    unit, _ = np.datetime_data(dtype)
    if unit != "generic":
        return numpy_dtype
    if codec is None:
        return _DEFAULT_TIME
    if not isinstance(codec, (ScalarCodec, ListCodec)):
        return _TIME_OF_ARRAYS
    if codec.type is not None:
        column_dtype = dtype_of_arrow(arrow_type_named(codec.type))
        if isinstance(column_dtype, np.dtype) and column_dtype.kind == "M":
            return column_dtype
    return _DEFAULT_TIME


def as_unischema(schema: Schema) -> Unischema:
    """Convert a schema of data_stack to one of Petastorm."""
    return Unischema(schema.name, [_as_unischema_field(field) for field in schema])


def _as_unischema_field(field: Field) -> UnischemaField:
    numpy_dtype: Any = Decimal
    if isinstance(field.dtype, np.dtype):
        numpy_dtype = field.dtype.type
    codec = as_column_codec(field.codec)
    return UnischemaField(field.name, numpy_dtype, field.shape, codec, field.nullable)
