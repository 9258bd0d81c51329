"""Conversion between schemas of Petastorm and of data_stack."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np

from data_stack.formats.parquet import Field, Schema
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
    return Field(field.name, field.numpy_dtype, field.shape, codec, bool(field.nullable))


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
