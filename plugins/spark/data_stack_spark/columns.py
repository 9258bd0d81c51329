"""Conversion of columns: vectors to arrays, floating-point numbers to one precision."""

from __future__ import annotations

from collections import Counter
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # its usual name
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    StructField,
    StructType,
    UserDefinedType,
)

from data_stack.exception import ConfigError

#: What ``dtype`` may be.
PRECISIONS: Final = (None, "float32", "float64")

#: The modules of Spark that have a type of vectors.
_VECTOR_MODULES: Final = ("pyspark.ml.linalg", "pyspark.mllib.linalg")


def convert_columns(frame: DataFrame, dtype: str | None) -> DataFrame:
    """Convert vectors to arrays, and floating-point numbers to one precision.

    Args:
        frame: the DataFrame.
        dtype: "float32" or "float64" for all floating-point numbers, in arrays, structs and maps
            too; None: unchanged (vectors of ``pyspark.ml`` hold float64).

    Raises:
        ConfigError: two columns have the same name.
    """
    name_counts = Counter(field.name for field in frame.schema)
    repeated_names = sorted(name for name, count in name_counts.items() if count > 1)
    if repeated_names:
        listing = ", ".join(repr(name) for name in repeated_names)
        raise ConfigError(f"the DataFrame has several columns named {listing}; rename them")
    columns = [_convert_column(field, dtype) for field in frame.schema]
    return frame.select(columns)


def _convert_column(field: StructField, dtype: str | None) -> Column:
    """Return the converted column of a field, under its name."""
    column = _column_named(field.name)
    if _is_vector(field.dataType):
        from pyspark.ml.functions import vector_to_array  # needs the JVM

        precision = "float32" if dtype == "float32" else "float64"
        return vector_to_array(column, precision).alias(field.name)

    converted_type = convert_precision(field.dataType, dtype)
    if converted_type != field.dataType:
        column = column.cast(converted_type)
    return column.alias(field.name)


def _column_named(name: str) -> Column:
    """Return the column of exactly that name, which may contain dots and backticks."""
    escaped = name.replace("`", "``")
    return F.col(f"`{escaped}`")


def convert_precision(data_type: DataType, dtype: str | None) -> DataType:
    """Return a type in which all floating-point numbers have one precision.

    Args:
        data_type: any type; numbers in arrays, maps and structs are converted too.
        dtype: "float32" or "float64"; None: unchanged.
    """
    if dtype is None:
        return data_type
    if isinstance(data_type, (FloatType, DoubleType)):
        return FloatType() if dtype == "float32" else DoubleType()
    if isinstance(data_type, ArrayType):
        element_type = convert_precision(data_type.elementType, dtype)
        return ArrayType(element_type, data_type.containsNull)
    if isinstance(data_type, MapType):
        key_type = convert_precision(data_type.keyType, dtype)
        value_type = convert_precision(data_type.valueType, dtype)
        return MapType(key_type, value_type, data_type.valueContainsNull)
    if isinstance(data_type, StructType):
        fields = []
        for field in data_type.fields:
            field_type = convert_precision(field.dataType, dtype)
            fields.append(StructField(field.name, field_type, field.nullable, field.metadata))
        return StructType(fields)
    return data_type


def _is_vector(data_type: DataType) -> bool:
    """Return whether a type is that of vectors of ``pyspark.ml`` or ``pyspark.mllib``."""
    if not isinstance(data_type, UserDefinedType):
        return False
    return type(data_type).__name__ == "VectorUDT" and data_type.module() in _VECTOR_MODULES
