"""Spark's types for the fields of a schema."""

from __future__ import annotations

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import from_arrow_type

from data_stack.exception import ConfigError
from data_stack.formats.parquet import Schema
from data_stack.formats.parquet.types import arrow_for_spark


def spark_schema(schema: Schema) -> spark.StructType:
    """Return the Spark schema of the encoded cells of a schema.

    Types that Spark lacks become the next wider type, as in Petastorm: uint8 smallint, uint16 int, uint32 bigint, uint64
    decimal(20,0), float16 float.

    Raises:
        ConfigError: Spark has no type for a field; the message names it.
    """
    fields = []
    for field in schema:
        type_ = field.arrow_type()
        if isinstance(type_, pa.FixedShapeTensorType):
            type_ = pa.list_(pa.field("element", type_.value_type, nullable=False))
        try:
            column = from_arrow_type(arrow_for_spark(type_), prefer_timestamp_ntz=True)
        except PySparkException as error:
            raise ConfigError(
                f"field {field.name!r}: Spark has no equivalent of {type_}"
            ) from error
        fields.append(spark.StructField(field.name, column, field.nullable))
    return spark.StructType(fields)
