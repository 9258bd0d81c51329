"""Petastorm's schemas as those of data_stack, and back."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np

from data_stack.formats.parquet import (
    CompressedNdarrayCodec,
    Field,
    JpegCodec,
    NdarrayCodec,
    PngCodec,
    ScalarCodec,
    Schema,
)
from data_stack_petastorm import codecs
from data_stack_petastorm.unischema import Unischema, UnischemaField

__all__ = ["as_field", "as_schema", "as_unischema"]


def as_schema(schema: Unischema | Schema) -> Schema:
    """The schema by which data_stack reads and writes the same rows.

    Raises:
        ConfigError: a codec cannot hold the values of its field.
    """
    if isinstance(schema, Schema):
        return schema
    return Schema(schema._name, [as_field(field) for field in schema.fields.values()])


def as_field(field: UnischemaField) -> Field:
    """The field by which data_stack reads and writes the same values.

    Raises:
        ConfigError: the codec cannot hold such values.
    """
    return Field(field.name, field.numpy_dtype, field.shape, _engine_codec(field.codec), bool(field.nullable))


def as_unischema(schema: Schema) -> Unischema:
    """The schema in Petastorm's spelling."""
    fields = [
        UnischemaField(field.name, _numpy_type(field), field.shape, _petastorm_codec(field), field.nullable) for field in schema
    ]
    return Unischema(schema.name, fields)


def _engine_codec(codec: Any) -> Any:
    if type(codec) is codecs.ScalarCodec:
        return ScalarCodec(codec.type_name)
    if type(codec) is codecs.NdarrayCodec:
        return NdarrayCodec()
    if type(codec) is codecs.CompressedNdarrayCodec:
        return CompressedNdarrayCodec()
    if type(codec) is codecs.CompressedImageCodec:
        return PngCodec() if codec.image_codec == "png" else JpegCodec(codec.quality)
    return codec


def _petastorm_codec(field: Field) -> Any:
    codec = field.codec
    if isinstance(codec, ScalarCodec):
        return None if codec.type is None else codecs.ScalarCodec(codec.type)
    if isinstance(codec, NdarrayCodec):
        return codecs.NdarrayCodec()
    if isinstance(codec, CompressedNdarrayCodec):
        return codecs.CompressedNdarrayCodec()
    if isinstance(codec, PngCodec):
        return codecs.CompressedImageCodec("png")
    if isinstance(codec, JpegCodec):
        return codecs.CompressedImageCodec("jpeg", codec.quality)
    return codec


def _numpy_type(field: Field) -> Any:
    return Decimal if not isinstance(field.dtype, np.dtype) else field.dtype.type
