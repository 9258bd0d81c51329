"""Schemas as Spark's."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.formats.parquet.types import arrow_for_spark

try:
    from pyspark.sql import types as spark
except ImportError as error:
    raise MissingDependencyError("a schema of Spark", "pyspark", "spark") from error

if TYPE_CHECKING:
    from data_stack.formats.parquet.schema import Schema

__all__ = ["spark_schema", "spark_type"]

_TYPES: Final[dict[pa.DataType, Callable[[], Any]]] = {
    pa.bool_(): spark.BooleanType,
    pa.int8(): spark.ByteType,
    pa.int16(): spark.ShortType,
    pa.int32(): spark.IntegerType,
    pa.int64(): spark.LongType,
    pa.float32(): spark.FloatType,
    pa.float64(): spark.DoubleType,
    pa.string(): spark.StringType,
    pa.binary(): spark.BinaryType,
    pa.date32(): spark.DateType,
    pa.timestamp("us"): spark.TimestampNTZType,
    pa.timestamp("us", "UTC"): spark.TimestampType,
    pa.null(): spark.NullType,
}


def spark_schema(schema: Schema) -> spark.StructType:
    """The columns of a schema as Spark has them in a DataFrame; what Spark cannot store as the next wider type.

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
        return spark.ArrayType(spark_type(type_.value_type), False)
    type_ = arrow_for_spark(type_)
    types = pa.types
    if type_ in _TYPES:
        scalar: spark.DataType = _TYPES[type_]()
        return scalar
    if types.is_decimal(type_) and type_.precision <= 38:
        return spark.DecimalType(type_.precision, type_.scale)
    if types.is_list(type_):
        return spark.ArrayType(spark_type(type_.value_type), types.is_nested(type_.value_type))
    if types.is_struct(type_):
        inner = [type_.field(number) for number in range(type_.num_fields)]
        return spark.StructType([spark.StructField(each.name, spark_type(each.type), True) for each in inner])
    if types.is_map(type_):
        return spark.MapType(spark_type(type_.key_type), spark_type(type_.item_type), True)
    raise ConfigError(f"Spark has no type like {type_}")
