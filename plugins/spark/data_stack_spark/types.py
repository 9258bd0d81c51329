"""Types of Spark for the fields of a schema: as they are stored, and as they are when they are decoded."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import from_arrow_type

from data_stack.exception import ConfigError
from data_stack.formats.parquet import Field, NestedCodec, ScalarCodec, Schema
from data_stack.formats.parquet.plain_times import plain_time
from data_stack.formats.parquet.types import arrow_for_spark, arrow_type_of_dtype

__all__ = ["as_spark_column", "decode_schema", "decode_type", "spark_schema", "spark_type"]


def spark_schema(schema: Schema) -> spark.StructType:
    """The columns of a schema as Spark has them in a DataFrame that holds the cells.

    What Spark cannot store becomes the next wider type, as in Petastorm: uint8 smallint, uint16 int, uint32 bigint, uint64
    decimal(20,0), float16 float.

    Raises:
        ConfigError: a field is of a type that Spark has nothing like; the message names it.
    """
    fields = []
    for field in schema:
        try:
            fields.append(spark.StructField(field.name, spark_type(field.arrow_type()), field.nullable))
        except ConfigError as error:
            raise ConfigError(f"field {field.name!r}: {error}") from error
    return spark.StructType(fields)


def spark_type(type_: pa.DataType) -> spark.DataType:
    """The type of Spark's for one of Arrow's.

    Raises:
        ConfigError: there is none.
    """
    if isinstance(type_, pa.FixedShapeTensorType):
        type_ = pa.list_(pa.field("element", type_.value_type, nullable=False))
    try:
        return from_arrow_type(arrow_for_spark(type_), prefer_timestamp_ntz=True)
    except PySparkException as error:
        raise ConfigError(f"Spark has no type like {type_}") from error


def decode_type(field: Field) -> pa.DataType:
    """The type of a field's decoded values in Arrow, as Spark takes it: arrays are lists of lists.

    Raises:
        ConfigError: Spark has no such type.
    """
    if isinstance(field.codec, (NestedCodec, ScalarCodec)):
        type_ = field.arrow_type()
    elif field.dtype == object:
        raise ConfigError(f"Spark has no type for any objects, which field {field.name!r} holds ({field.codec!r}); leave it out")
    else:
        type_ = arrow_type_of_dtype(field.dtype)
        for _ in field.shape:
            type_ = pa.list_(pa.field("element", type_))
    return arrow_for_spark(type_)


def decode_schema(schema: Schema) -> spark.StructType:
    """The columns of a schema as Spark has them when their cells are decoded.

    Raises:
        ConfigError: a field is of a type that Spark does not have; leave it out.
    """
    found = []
    for field in schema:
        try:
            found.append(spark.StructField(field.name, _nullable(spark_type(decode_type(field))), field.nullable))
        except ConfigError as error:
            raise ConfigError(f"field {field.name!r}: {error}") from error
    return spark.StructType(found)


def as_spark_column(values: npt.NDArray[Any], type_: pa.DataType) -> pa.Array:
    """A column of decoded values, shape ``(n, ...)``, as Spark takes it.

    Args:
        values: numbers with any shape, or objects with None for null, which may be arrays.
        type_: of :func:`decode_type`.
    """
    if values.dtype == object or values.dtype.kind in "SU":
        return _of_objects(values, type_)
    if values.ndim == 1:
        return _of_numbers(values, type_)
    if values.size == 0:
        return pa.array(values.tolist(), type_)
    array = _of_numbers(np.ascontiguousarray(values).reshape(-1), _innermost(type_))
    for length in reversed(values.shape[1:]):
        array = pa.FixedSizeListArray.from_arrays(array, length)
    return array.cast(type_)


def _of_numbers(values: npt.NDArray[Any], type_: pa.DataType) -> pa.Array:
    if values.dtype.kind == "m":  # in its own unit
        values = values.view(np.int64)
    array = pa.array(values)
    if pa.types.is_timestamp(type_) and type_.tz is not None and pa.types.is_timestamp(array.type):
        array = array.cast(pa.timestamp(array.type.unit, "UTC"))
    return array if array.type == type_ else array.cast(type_)


def _of_objects(values: npt.NDArray[Any], type_: pa.DataType) -> pa.Array:
    return pa.array([_plain(value) for value in values], type_)


def _plain(value: Any) -> Any:
    """A value with Python's objects for numpy's."""
    if isinstance(value, np.ndarray):
        return value.tolist() if value.dtype.kind in "biufSU" else [_plain(each) for each in value]
    if isinstance(value, (list, tuple)):
        return type(value)(map(_plain, value))
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, np.timedelta64):
        return int(value.astype(np.int64))
    if isinstance(value, np.datetime64):
        return plain_time(value)
    return value.item() if isinstance(value, np.generic) else value


def _innermost(type_: pa.DataType) -> pa.DataType:
    return _innermost(type_.value_type) if pa.types.is_list(type_) else type_


def _nullable(type_: spark.DataType) -> spark.DataType:
    """The type with elements that may be null: those of lists in a file may, whatever its schema says."""
    if isinstance(type_, spark.ArrayType):
        return spark.ArrayType(_nullable(type_.elementType), True)
    return type_
