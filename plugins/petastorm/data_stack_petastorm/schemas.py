"""Conversion between schemas of Petastorm and of data_stack."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np

from data_stack.formats.parquet import Field, ListCodec, ScalarCodec, Schema
from data_stack.formats.parquet.types import arrow_type_named, dtype_of_arrow
from data_stack_petastorm.codecs import as_column_codec, as_field_codec
from data_stack_petastorm.scalars import LenientScalarCodec
from data_stack_petastorm.unischema import Unischema, UnischemaField, default_spark_type


def as_schema(schema: Unischema | Schema) -> Schema:
    """Convert a schema to one of data_stack.

    Raises:
        ConfigError: a codec cannot hold the values of its field.
    """
    if isinstance(schema, Schema):
        return schema
    return Schema(vars(schema)["_name"], [as_field(field) for field in schema.fields.values()])


def as_field(field: UnischemaField) -> Field:
    """Convert a field to one of data_stack.

    Raises:
        ConfigError: the codec cannot hold the values.
    """
    codec = as_field_codec(field.codec)
    if codec is None and not field.shape:
        codec = LenientScalarCodec(default_spark_type(field.numpy_dtype))
    dtype = dtype_with_unit(field.numpy_dtype, codec)
    return Field(field.name, dtype, field.shape, codec, bool(field.nullable))


def dtype_with_unit(numpy_dtype: Any, codec: Any) -> Any:
    """The dtype of a field of Petastorm, whose ``np.datetime64`` has no unit.

    Petastorm makes the values by ``np.datetime64(cell)`` of a date or a datetime of Python, so they are ``datetime64[D]`` in a
    column of dates, and ``datetime64[us]`` in one of timestamps. Arrays that a codec stored with a unit of their own are read
    as ``datetime64[ns]``.

    Args:
        numpy_dtype: the dtype of the field.
        codec: its codec in data_stack; None for the default one.
    """
    if numpy_dtype is None or numpy_dtype is Decimal:
        return numpy_dtype
    dtype = np.dtype(numpy_dtype)
    if dtype.kind != "M" or np.datetime_data(dtype)[0] != "generic":
        return numpy_dtype
    if codec is not None and not isinstance(codec, (ScalarCodec, ListCodec)):
        return np.dtype("datetime64[ns]")
    if codec is not None and codec.type is not None:
        stored = dtype_of_arrow(arrow_type_named(codec.type))
        if isinstance(stored, np.dtype) and stored.kind == "M":
            return stored
    return np.dtype("datetime64[us]")


def as_unischema(schema: Schema) -> Unischema:
    """Convert a schema to one of Petastorm."""
    fields = [
        UnischemaField(
            field.name,
            _numpy_type(field),
            field.shape,
            as_column_codec(field.codec),
            field.nullable,
        )
        for field in schema
    ]
    return Unischema(schema.name, fields)


def _numpy_type(field: Field) -> Any:
    return Decimal if not isinstance(field.dtype, np.dtype) else field.dtype.type
