"""Conversion of the columns of a DataFrame: vectors to arrays, floating-point numbers to one precision."""

from __future__ import annotations

import json
import re
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # its usual name
from pyspark.sql.types import DataType, StructField, StructType, UserDefinedType

from data_stack.exception import ConfigError

PRECISIONS: Final = (None, "float32", "float64")
_VECTORS: Final = ("pyspark.ml.linalg", "pyspark.mllib.linalg")


def convert_columns(frame: DataFrame, dtype: str | None) -> DataFrame:
    """Convert vectors to arrays and floating-point numbers to one precision.

    Args:
        frame: the DataFrame.
        dtype: "float32" or "float64" for all floating-point numbers, in arrays, structs and maps too; None: unchanged (vectors of
            ``pyspark.ml`` hold float64).

    Raises:
        ConfigError: two columns have the same name.
    """
    names = [field.name for field in frame.schema]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ConfigError(
            f"the DataFrame has several columns named {', '.join(map(repr, repeated))}; rename them"
        )
    columns = []
    for field in frame.schema:
        column: Column = F.col("`" + field.name.replace("`", "``") + "`")
        wanted = _with_precision(field.dataType, dtype)
        if _is_vector(field.dataType):
            from pyspark.ml.functions import vector_to_array  # needs the JVM

            column = vector_to_array(column, "float32" if dtype == "float32" else "float64")
        elif wanted != field.dataType:
            column = column.cast(wanted)
        columns.append(column.alias(field.name))
    return frame.select(*columns)


def _with_precision(type_: DataType, dtype: str | None) -> DataType:
    if dtype is None:
        return type_
    given, wanted = ("double", "float") if dtype == "float32" else ("float", "double")
    described = StructType([StructField("x", type_)]).json()
    described = re.sub(
        rf'"(type|elementType|keyType|valueType)":"{given}"', rf'"\1":"{wanted}"', described
    )
    return StructType.fromJson(json.loads(described))[0].dataType


def _is_vector(type_: DataType) -> bool:
    return (
        isinstance(type_, UserDefinedType)
        and type(type_).__name__ == "VectorUDT"
        and type_.module() in _VECTORS
    )
