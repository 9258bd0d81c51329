"""The columns of a DataFrame as they are converted: vectors as arrays, floating-point numbers of one precision."""

from __future__ import annotations

from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # as everybody writes it
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
from data_stack.util.logger import logger

__all__ = ["PRECISIONS", "Precision", "converted_columns"]

PRECISIONS: Final = (None, "float32", "float64")
_LARGEST_FLOAT32: Final = 3.4028234663852886e38
_NOT_IN_PARQUET: Final = ("void", "interval")
_VECTORS: Final = ("pyspark.ml.linalg", "pyspark.mllib.linalg")


class Precision:
    """What became of the doubles of a DataFrame that is converted to float32; known when it has been written.

    Args:
        frame: that is converted.
        columns: that lose precision.
    """

    def __init__(self, frame: DataFrame, columns: list[str]) -> None:
        self._frame, self._columns = frame, columns

    def tell(self, url: str) -> None:
        """Log which columns lost precision, and warn of numbers that became infinite.

        Counting them while they are written (with an ``Observation``) takes a third of the time of writing. So these columns of
        the files are asked first; only where they hold infinite numbers, these are counted in the DataFrame.

        Args:
            url: of the files that were written.
        """
        if not self._columns:
            return
        logger.info(
            "float64 → float32: %s keep 24 of 53 bits (about 7 decimal digits); numbers below 1.4e-45 become 0",
            ", ".join(self._columns),
        )
        try:
            counts = self._counts(url)
        except (PySparkException, Py4JJavaError) as error:  # the rows are written all the same
            logger.warning("it is not known whether numbers beyond 3.4e38 became infinite as float32: %.300s", error)
            return
        for name, count in counts.items():
            if count:
                logger.warning(
                    "column %r: %d numbers beyond 3.4e38 became infinite as float32; keep them with dtype=None", name, count
                )

    def _counts(self, url: str) -> dict[str, int | None]:
        """Of columns with infinite numbers, how many became so."""
        types = {
            field.name: field.dataType
            for field in self._frame.schema
            if field.name in self._columns and _is_counted(field.dataType)
        }
        written = self._frame.sparkSession.read.parquet(url)
        infinite = _of_columns(written, {name: F.max(_has_infinite(_column(name), type_)) for name, type_ in types.items()})
        return _of_columns(
            self._frame, {name: F.sum(_overflows(_column(name), types[name])) for name, found in infinite.items() if found}
        )


def _of_columns(frame: DataFrame, wanted: dict[str, Column]) -> dict[str, Any]:
    """An aggregate of each of some columns, by their names."""
    found = frame.agg(*wanted.values()).first() if wanted else ()
    return dict(zip(wanted, found or (), strict=False))


def converted_columns(frame: DataFrame, dtype: str | None) -> tuple[DataFrame, Precision]:
    """A DataFrame that Parquet can hold, with vectors as arrays and floating-point numbers as asked.

    Args:
        frame: any.
        dtype: "float32" or "float64" for all floating-point numbers, those in arrays, structs and maps included; None: as they
            are (vectors of ``pyspark.ml`` hold float64).

    Raises:
        ConfigError: a column is of a type that Parquet does not have, or two have one name.
    """
    names = [field.name for field in frame.schema]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise ConfigError(f"the DataFrame has several columns called {', '.join(map(repr, repeated))}; rename them")
    columns, lossy = [], []
    for field in frame.schema:
        column = _column(field.name)
        if _is_vector(field.dataType):
            column = _array_of_vector(column, field.dataType, dtype)
            if dtype == "float32":
                lossy.append(field.name)
        else:
            _check_type(field.name, field.dataType)
            wanted = _with_precision(field.dataType, dtype)
            if wanted != field.dataType:
                if dtype == "float32":
                    lossy.append(field.name)
                column = column.cast(wanted)
        columns.append(column.alias(field.name))
    return frame.select(*columns), Precision(frame, lossy)


def _is_counted(type_: DataType) -> bool:
    """Whether it is a double, or a list of doubles."""
    return isinstance(type_, DoubleType) or (isinstance(type_, ArrayType) and isinstance(type_.elementType, DoubleType))


def _overflows(column: Column, type_: DataType) -> Column:
    """How many numbers of a value are too large for float32."""
    if isinstance(type_, ArrayType):
        return F.size(F.filter(column, _is_beyond)).cast("int") * F.when(column.isNull(), 0).otherwise(1)
    return _is_beyond(column).cast("int")


def _has_infinite(column: Column, type_: DataType) -> Column:
    """Whether there are infinite numbers in a value."""
    return F.exists(column, _is_infinite) if isinstance(type_, ArrayType) else _is_infinite(column)


def _is_infinite(number: Column) -> Column:
    return F.abs(number) == F.lit(float("inf"))


def _is_beyond(column: Column) -> Column:
    size = F.abs(column)
    return (size > F.lit(_LARGEST_FLOAT32)) & (size < F.lit(float("inf")))


def _with_precision(type_: DataType, dtype: str | None) -> DataType:
    if dtype is None:
        return type_
    if isinstance(type_, (DoubleType, FloatType)):
        return FloatType() if dtype == "float32" else DoubleType()
    if isinstance(type_, ArrayType):
        return ArrayType(_with_precision(type_.elementType, dtype), type_.containsNull)
    if isinstance(type_, MapType):
        key, value = _with_precision(type_.keyType, dtype), _with_precision(type_.valueType, dtype)
        return MapType(key, value, type_.valueContainsNull)
    if isinstance(type_, StructType):
        fields = [StructField(each.name, _with_precision(each.dataType, dtype), each.nullable) for each in type_]
        return StructType(fields)
    return type_


def _is_vector(type_: DataType) -> bool:
    return isinstance(type_, UserDefinedType) and type(type_).__name__ == "VectorUDT" and type_.module() in _VECTORS


def _array_of_vector(column: Column, type_: DataType, dtype: str | None) -> Column:
    from pyspark.ml.functions import vector_to_array  # needs the JVM

    return vector_to_array(column, "float32" if dtype == "float32" else "float64")


def _check_type(name: str, type_: DataType) -> None:
    if type_.simpleString() in _NOT_IN_PARQUET:
        raise ConfigError(
            f"column {name!r} is of type {type_.simpleString()}, which Parquet does not have: "
            f"cast it to another (df.withColumn({name!r}, df[{name!r}].cast('int'))), or drop it"
        )
    if isinstance(type_, ArrayType):
        _check_type(name, type_.elementType)
    elif isinstance(type_, MapType):
        _check_type(name, type_.keyType)
        _check_type(name, type_.valueType)
    elif isinstance(type_, StructType):
        for each in type_:
            _check_type(f"{name}.{each.name}", each.dataType)


def _column(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")
