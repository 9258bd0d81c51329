"""Spark's types for the fields of a schema."""

from __future__ import annotations

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import from_arrow_type

from data_stack.exception import ConfigError
from data_stack.formats.parquet import Field, Schema
from data_stack.formats.parquet.types import arrow_for_spark


def spark_schema(schema: Schema) -> spark.StructType:
    """Return the Spark schema of the encoded cells of a schema.

    Types that Spark lacks become the next wider type, as in Petastorm: uint8 smallint, uint16 int,
    uint32 bigint, uint64 decimal(20,0), float16 float.

    Raises:
        ConfigError: Spark has no type for a field; the message names it.
    """
    return spark.StructType([_spark_field(field) for field in schema])


def _spark_field(field: Field) -> spark.StructField:
    """Return the Spark field of the encoded cells of a field.

    Raises:
        ConfigError: Spark has no type for the field.
    """
    arrow_type = field.arrow_type()
    if isinstance(arrow_type, pa.FixedShapeTensorType):
        element = pa.field("element", arrow_type.value_type, nullable=False)
        arrow_type = pa.list_(element)
    try:
        spark_type = from_arrow_type(arrow_for_spark(arrow_type), prefer_timestamp_ntz=True)
    except PySparkException as error:
        raise ConfigError(
            f"field {field.name!r}: Spark has no equivalent of {arrow_type}"
        ) from error
    return spark.StructField(field.name, spark_type, field.nullable)
