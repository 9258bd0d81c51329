"""Converts schemas from and to Petastorm's metadata."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from typing import Final

import pyarrow as pa

from data_stack.codecs.registry import codec_of
from data_stack.exception import ConfigError
from data_stack.formats.parquet.codecs import (
    CompressedNdarrayCodec,
    FieldCodec,
    JpegCodec,
    ListCodec,
    NdarrayCodec,
    PngCodec,
    ScalarCodec,
)
from data_stack.formats.parquet.metadata import ParquetFileRecord
from data_stack.formats.parquet.pickled import PickledCodec, PickledField, PickledSchema, codec_makers, write_pickled_schema
from data_stack.formats.parquet.schema import Field, Schema
from data_stack.formats.parquet.types import (
    arrow_for_spark,
    arrow_type_named,
    arrow_type_of_dtype,
    dtype_name,
    name_of_arrow,
    numpy_dtype,
)

#: Petastorm's pickled schema.
UNISCHEMA_KEY: Final = b"dataset-toolkit.unischema.v1"
#: The number of row groups of each file, as JSON. Petastorm reads only these files.
ROW_GROUPS_KEY: Final = b"dataset-toolkit.num_row_groups_per_file.v1"
#: Petastorm's pickled row-group indexes.
PICKLED_INDEXES_KEY: Final = b"dataset-toolkit.rowgroups_index.v1"


def petastorm_metadata(schema: Schema, files: Sequence[ParquetFileRecord]) -> dict[bytes, bytes]:
    """Key-value metadata for ``_common_metadata``, which Petastorm needs to read the files.

    Raises:
        ConfigError: Petastorm does not support a field.
    """
    counts = {file.name: len(file.row_groups) for file in files}
    return {UNISCHEMA_KEY: write_pickled_schema(schema_to_pickled(schema)), ROW_GROUPS_KEY: json.dumps(counts).encode()}


def schema_from_pickled(pickled: PickledSchema) -> Schema:
    """Convert a schema of Petastorm.

    Raises:
        ConfigError: a field has an unknown codec or dtype.
    """
    return Schema(pickled.name, [_field_from_pickled(field) for field in pickled.fields])


def _field_from_pickled(field: PickledField) -> Field:
    dtype = field.numpy_type.removesuffix("_")  # the name in all versions of numpy
    return Field(field.name, dtype, field.shape, _codec_from_pickled(field), field.nullable)


def _codec_from_pickled(field: PickledField) -> FieldCodec | None:
    codec = field.codec
    if codec is None:
        if len(field.shape) > 1:
            raise ConfigError(
                f"field {field.name!r} of shape {field.shape} has no codec; Parquet itself cannot store such arrays"
            )
        return None  # a scalar or a list of Parquet
    if codec.kind == "scalar":
        return ListCodec(codec.spark_type) if field.shape else ScalarCodec(codec.spark_type)
    if codec.kind == "registered":
        made: FieldCodec = codec_makers[codec.class_name or ""](codec.state)
        return made
    if codec.kind == "ndarray":
        return NdarrayCodec()
    if codec.kind == "compressed_ndarray":
        return CompressedNdarrayCodec()
    if codec.image_format == "png":
        return PngCodec()
    if codec.image_format in ("jpeg", "jpg"):
        quality = 80 if codec.quality is None else min(max(codec.quality, 1), 100)
        return JpegCodec(quality)
    if codec.image_format == "webp":
        return codec_of("webp")
    raise ConfigError(
        f"field {field.name!r} has images of the unsupported format {codec.image_format!r:.40}; supported: png, jpeg, webp"
    )


def schema_to_pickled(schema: Schema) -> PickledSchema:
    """Convert a schema to Petastorm's.

    Raises:
        ConfigError: Petastorm does not support a field; the message names it.
    """
    return PickledSchema(schema.name, tuple(_field_to_pickled(field) for field in schema))


def _field_to_pickled(field: Field) -> PickledField:
    codec = field.codec
    if not field.name.isidentifier() or field.name.startswith("_"):
        raise ConfigError(f"Petastorm needs names for named tuples; the field {field.name!r} has none")
    if field.dtype is Decimal:
        numpy_type = "Decimal"
    else:
        names = {"U": "str_", "S": "bytes_", "b": "bool_", "M": "datetime64"}
        dtype = numpy_dtype(field.dtype)
        if dtype.kind not in "USbMiufc":
            raise _unknown_to_petastorm(field)
        numpy_type = names.get(dtype.kind, dtype.name)
    return PickledField(field.name, numpy_type, field.shape, _codec_to_pickled(field, codec), field.nullable)


def _codec_to_pickled(field: Field, codec: FieldCodec) -> PickledCodec | None:
    if isinstance(codec, ScalarCodec):
        return PickledCodec("scalar", spark_type=_spark_type(field, codec.type))
    if isinstance(codec, ListCodec):
        _spark_type(field, codec.type)
        return None
    if isinstance(codec, NdarrayCodec):
        return PickledCodec("ndarray")
    if isinstance(codec, CompressedNdarrayCodec):
        return PickledCodec("compressed_ndarray")
    if isinstance(codec, PngCodec):
        if len(field.shape) == 3 and field.shape[2] != 3:
            raise ConfigError(f"field {field.name!r}: Petastorm's images have shape (height, width) or (height, width, 3)")
        return PickledCodec("image", image_format="png", quality=80)
    if isinstance(codec, JpegCodec):
        return PickledCodec("image", image_format="jpeg", quality=codec.quality)
    raise _unknown_to_petastorm(field)


def _spark_type(field: Field, name: str | None) -> str:
    """The Spark type that reads the cells of a field, as Petastorm would write them."""
    stored = arrow_type_of_dtype(field.dtype) if name is None else arrow_type_named(name)
    if stored == pa.float16():
        raise ConfigError(
            f"field {field.name!r} is stored as float16, which neither Spark nor Petastorm reads: use ScalarCodec('float') or "
            f"ListCodec('float'), which keep each value exactly, or NdarrayCodec()"
        )
    for_spark = name_of_arrow(arrow_for_spark(stored))
    if for_spark is None or for_spark == "void" or pa.types.is_decimal256(stored):
        raise _unknown_to_petastorm(field)
    return for_spark


def _unknown_to_petastorm(field: Field) -> ConfigError:
    return ConfigError(
        f"Petastorm cannot read field {field.name!r} of dtype {dtype_name(field.dtype)}, shape {field.shape}, codec "
        f"{field.codec!r:.80}"
    )
