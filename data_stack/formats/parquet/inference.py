"""Reads or infers the schema of a Parquet dataset."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import pyarrow as pa

from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.parquet.codecs import ListCodec, NestedCodec, ScalarCodec
from data_stack.formats.parquet.codecs.native import Nulls
from data_stack.formats.parquet.files import partition_names
from data_stack.formats.parquet.footers import Footers, reading_parquet
from data_stack.formats.parquet.foreign_metadata import read_foreign_schema
from data_stack.formats.parquet.schema import Field, Schema
from data_stack.formats.parquet.types import describe_type, dtype_of_arrow, is_list, name_of_arrow, plain_type


def infer_schema(arrow_schema: pa.Schema, name: str = "parquet") -> Schema:
    """Infer a schema from Arrow types.

    Scalars have numpy's dtype; lists of scalars are arrays of one dimension, with the size of fixed-size lists; structs, maps,
    nested lists and all others have dtype object. Dictionaries, views, large types and extension types count as the values that
    they hold: an Arrow tensor is a flat list.

    Args:
        arrow_schema: of the files.
        name: name of the new schema.

    Raises:
        ConfigError: two columns have the same name.
    """
    return Schema(name, [_infer_field(field) for field in arrow_schema])


def _infer_field(field: pa.Field) -> Field:
    type_ = plain_type(field.type)
    if is_list(type_) and (scalar := name_of_arrow(type_.value_type)) not in (None, "void"):
        size = type_.list_size if pa.types.is_fixed_size_list(type_) else None
        return Field(field.name, dtype_of_arrow(type_.value_type), (size,), ListCodec(scalar), field.nullable)
    scalar = name_of_arrow(type_)
    if scalar in (None, "void"):
        return Field(field.name, object, (), NestedCodec(describe_type(type_)), field.nullable or scalar == "void")
    dtype = dtype_of_arrow(type_)
    if dtype == np.dtype("datetime64[s]"):
        dtype = np.dtype("datetime64[ms]")  # Parquet stores milliseconds
    return Field(field.name, dtype, (), ScalarCodec(scalar), field.nullable)


_INTEGER: Final = re.compile(r"-?(0|[1-9]\d{0,17})")


def read_schema(footers: Footers) -> Schema:
    """Read the schema of a dataset: ours, or Petastorm's (by its plugin), else infer it from the columns.

    Partition columns that it lacks are added.

    Raises:
        DatasetFileCorruptError: the schema is damaged, or hostile.
        ConfigError: a codec is unknown.
    """
    metadata = footers.metadata
    try:
        schema = Schema.from_metadata(metadata)
        if schema is None:
            schema = read_foreign_schema(metadata)
        if schema is None:
            with reading_parquet("the schema of the columns"):  # a hostile time zone raises on access
                schema = infer_schema(footers.arrow_schema)
    except (ConfigError, DatasetFileCorruptError) as error:
        raise type(error)(f"the schema of {footers.files.folder.name}: {error}") from error
    fields = list(schema)
    for name in partition_names(footers.files.partitions):
        if name not in schema:
            texts = [values.get(name) for values in footers.files.partitions]
            is_integer = all(text is None or _INTEGER.fullmatch(text) for text in texts) and any(texts)
            fields.append(Field(name, np.int64 if is_integer else str, (), None, None in texts))
    return Schema(schema.name, fields)


def adapt_schema(schema: Schema, nulls: Nulls, timestamp_unit: str | None) -> Schema:
    """Adapt a schema to read missing floats as NaN, and timestamps in another unit.

    Args:
        schema: of the dataset.
        nulls: "nan", or "none" for no change.
        timestamp_unit: "s", "ms", "us" or "ns"; None for no change.

    Raises:
        ConfigError: an argument is invalid.
    """
    ScalarCodec(nulls=nulls)  # raises if it is invalid
    if timestamp_unit not in (None, "s", "ms", "us", "ns"):
        raise ConfigError(f"timestamp_unit must be 's', 'ms', 'us' or 'ns', got {timestamp_unit!r:.40}")
    if nulls == "none" and timestamp_unit is None:
        return schema
    fields = []
    for field in schema:
        dtype, codec = field.dtype, field.codec
        if isinstance(codec, (ScalarCodec, ListCodec)) and isinstance(dtype, np.dtype):
            if nulls == "nan" and dtype.kind == "f":
                codec = type(codec)(codec.type, nulls="nan")
            if timestamp_unit is not None and dtype.kind == "M" and dtype != np.dtype("M8[D]"):
                dtype = np.dtype(f"M8[{timestamp_unit}]")
        fields.append(Field(field.name, dtype, field.shape, codec, field.nullable))
    return Schema(schema.name, fields)
