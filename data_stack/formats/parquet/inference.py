"""The schema of any Parquet, from the types of its columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from data_stack.formats.parquet.codecs import ListCodec, NestedCodec, ScalarCodec
from data_stack.formats.parquet.schema import Field, Schema
from data_stack.formats.parquet.types import describe_type, dtype_of_arrow, is_list, name_of_arrow, plain_type

__all__ = ["infer_schema"]


def infer_schema(arrow_schema: pa.Schema, name: str = "parquet") -> Schema:
    """The schema of any Parquet.

    Scalars have the dtype that numpy has for them; lists of scalars are arrays of one dimension, with a size if the type fixes
    it; structs, maps, lists of lists and all others are of dtype object. Dictionaries, views, large types and extension types
    are what they hold: a tensor of Arrow is a flat list.

    Args:
        arrow_schema: of the files.
        name: of the schema.

    Raises:
        ConfigError: two columns have one name.
    """
    return Schema(name, [_infer_field(field) for field in arrow_schema])


def _infer_field(field: pa.Field) -> Field:
    type_ = plain_type(field.type)
    if is_list(type_) and (scalar := name_of_arrow(type_.value_type)) not in (None, "void"):
        size = type_.list_size if pa.types.is_fixed_size_list(type_) else None
        return Field(field.name, dtype_of_arrow(type_.value_type), (size,), ListCodec(scalar), field.nullable)
    scalar = name_of_arrow(type_)
    if scalar is not None and scalar != "void":
        dtype = dtype_of_arrow(type_)
        if dtype == np.dtype("datetime64[s]"):
            dtype = np.dtype("datetime64[ms]")  # which is what Parquet makes of it
        return Field(field.name, dtype, (), ScalarCodec(scalar), field.nullable)
    return Field(field.name, object, (), NestedCodec(describe_type(type_)), field.nullable or scalar == "void")
