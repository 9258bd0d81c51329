"""The schema of any Parquet, from the types of its columns."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from data_stack.formats.parquet.codecs import FieldCodec, ListCodec, NestedCodec, ScalarCodec, TensorCodec
from data_stack.formats.parquet.schema import Field, Schema
from data_stack.formats.parquet.types import FieldDtype, describe_type, dtype_of_arrow, is_list, name_of_arrow, plain_type

__all__ = ["infer_schema"]


def infer_schema(arrow_schema: pa.Schema, name: str = "parquet") -> Schema:
    """The schema of any Parquet.

    Scalars have the dtype that numpy has for them; lists of scalars are arrays of one dimension, lists of one length and tensors
    have a shape; structs, maps, lists of lists and whatever else there is are of dtype object. Dictionaries, views, large types
    and extension types are what they hold.

    Args:
        arrow_schema: of the files.
        name: of the schema.

    Raises:
        ConfigError: two columns have one name.
    """
    return Schema(name, [_infer_field(field) for field in arrow_schema])


def _infer_field(field: pa.Field) -> Field:
    type_ = field.type
    if isinstance(type_, pa.FixedShapeTensorType) and _is_number(type_.value_type) and 0 not in type_.shape:
        codec: FieldCodec = TensorCodec(name_of_arrow(type_.value_type))
        return Field(field.name, dtype_of_arrow(type_.value_type), tuple(type_.shape), codec, field.nullable)
    type_ = plain_type(type_)
    if is_list(type_):
        found = _infer_list(type_)
        if found is not None:
            return Field(field.name, *found, field.nullable)
    scalar = name_of_arrow(type_)
    if scalar is not None and scalar != "void":
        dtype = dtype_of_arrow(type_)
        if dtype == np.dtype("datetime64[s]"):
            dtype = np.dtype("datetime64[ms]")  # which is what Parquet makes of it
        return Field(field.name, dtype, (), ScalarCodec(scalar), field.nullable)
    return Field(field.name, object, (), NestedCodec(describe_type(type_)), field.nullable or scalar == "void")


def _infer_list(type_: pa.DataType) -> tuple[FieldDtype, tuple[int | None, ...], FieldCodec] | None:
    """Dtype, shape and codec of lists of scalars, or of lists of numbers that all have one length; None for other lists."""
    sizes: list[int | None] = []
    while is_list(type_):
        sizes.append(type_.list_size if pa.types.is_fixed_size_list(type_) else None)
        type_ = plain_type(type_.value_type)
    name = name_of_arrow(type_)
    if name is None or name == "void":
        return None
    dtype = dtype_of_arrow(type_)
    if len(sizes) == 1:
        return dtype, tuple(sizes), ListCodec(name)
    if None in sizes or 0 in sizes or not _is_number(type_):
        return None
    return dtype, tuple(sizes), TensorCodec(name)


def _is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_))
