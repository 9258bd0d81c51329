"""Rows for Spark: values of a schema's fields, checked and encoded."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import RDD
from pyspark.sql import DataFrame, Row, SparkSession

from data_stack.exception import ConfigError
from data_stack.formats.parquet import Field, Schema
from data_stack.formats.parquet.codecs import CellValueError
from data_stack.formats.parquet.types import arrow_for_spark
from data_stack_spark.session import spark_session
from data_stack_spark.types import spark_schema

#: Number of rows that are encoded together.
_ROWS_AT_ONCE = 256


def dict_to_spark_row(schema: Schema, row: Mapping[str, Any]) -> Row:
    """Check and encode one row: images as files, arrays as ``.npy``, numbers as Python's.

    ::

        rows = spark.sparkContext.parallelize(range(1000)).map(lambda i: dict_to_spark_row(schema, {"id": i, "image": …}))
        spark.createDataFrame(rows, spark_schema(schema)).write.parquet(url)

    For many rows :func:`encode_rows` is faster.

    Args:
        schema: schema of the rows.
        row: a value for each field; nullable ones may be missing.

    Raises:
        ConfigError: a field is missing or unknown, null but not nullable, or does not fit its value.
    """
    return next(_encode_rows([row], schema, first_row=None))


def encode_rows(
    rows: RDD[Any] | DataFrame | Iterable[Mapping[str, Any]], schema: Schema, spark: SparkSession | None = None
) -> DataFrame:
    """Encode rows in Spark's executors, as a DataFrame to write inside of :func:`materialize_dataset`.

    ::

        with materialize_dataset(spark, url, schema, row_group_size_mb=32):
            encode_rows(spark.sparkContext.parallelize(range(1000)).map(make_row), schema).write.parquet(url)

    Args:
        rows: an RDD of dicts; a DataFrame with a column for each field, arrays as (nested) lists; or an iterable of dicts.
        schema: schema of the rows.
        spark: the session; None: the active one.

    Raises:
        ConfigError: Spark has no type for a field. For an invalid row, the executors raise when the DataFrame is written; the
            message names field and value.
    """
    session = spark_session(spark)
    if isinstance(rows, DataFrame):
        rows = rows.rdd
    elif not isinstance(rows, RDD):
        rows = session.sparkContext.parallelize(list(rows))
    return session.createDataFrame(rows.mapPartitions(functools.partial(_encode_partition, schema)), spark_schema(schema))


def _encode_partition(schema: Schema, rows: Iterable[Any]) -> Iterator[Row]:
    """Encode the dicts of a partition, in an executor."""
    rows, first = iter(rows), 0
    while some := list(itertools.islice(rows, _ROWS_AT_ONCE)):
        yield from _encode_rows(some, schema, first_row=first)
        first += len(some)


def _encode_rows(rows: list[Any], schema: Schema, first_row: int | None) -> Iterator[Row]:
    for number, row in enumerate(rows):
        where = "the row" if first_row is None else f"row {first_row + number} of the partition"
        if isinstance(row, Row):  # a row of a DataFrame, where arrays are lists
            rows[number] = row = {name: _as_field(schema, name, value) for name, value in row.asDict().items()}
        if not isinstance(row, Mapping):
            raise ConfigError(f"{where} must be a dict with a value for each field, got {row!r:.80}")
        _check_names(row, schema, where)
    columns = [_encode(field, [row.get(field.name) for row in rows], first_row).to_pylist() for field in schema]
    make = Row(*[field.name for field in schema])
    return (make(*values) for values in zip(*columns, strict=True))


def _encode(field: Field, values: list[Any], first_row: int | None) -> pa.Array:
    """Encode values as cells of a type that Spark has."""

    def where(row: int) -> str:
        return "" if first_row is None else f", row {first_row + row} of the partition"

    for row, value in enumerate(values):
        if value is None and not field.nullable:
            raise ConfigError(f"field {field.name!r}{where(row)}: None, but the field is not nullable")
    try:
        cells = field.cells.encode_column(field, values)
    except CellValueError as error:
        raise ConfigError(f"field {field.name!r}{where(error.row)}: {error.why}") from error
    wanted = arrow_for_spark(cells.type)
    try:
        return cells if cells.type == wanted else cells.cast(wanted)
    except pa.ArrowException as error:
        raise ConfigError(f"field {field.name!r}: {cells.type} does not fit Spark's {wanted}: {error!s:.200}") from error


def _check_names(row: Mapping[str, Any], schema: Schema, where: str) -> None:
    for name in row:
        try:
            schema[name]
        except ConfigError as error:
            raise ConfigError(f"{where} has the unknown field {name!r:.60}: {error}") from error
    for field in schema:
        if field.name not in row and not field.nullable:
            raise ConfigError(f"{where} has no value for field {field.name!r}, which is not nullable")


def _as_field(schema: Schema, name: str, value: Any) -> Any:
    field = schema.fields.get(name)
    if field is not None and field.shape and isinstance(value, list) and isinstance(field.dtype, np.dtype):
        return np.array(value, field.dtype) if field.dtype.kind in "biufc" else value
    return value
