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
from data_stack.formats.parquet.codecs import CellError
from data_stack.formats.parquet.types import arrow_for_spark
from data_stack_spark.session import spark_session
from data_stack_spark.types import spark_schema

#: Number of rows that are encoded together.
_ROWS_AT_ONCE = 256

#: The kinds of dtypes that numpy makes of lists of Spark's numbers without loss.
_NUMBER_KINDS = "biufc"


def encode_rows(
    rows: RDD[Any] | DataFrame | Iterable[Mapping[str, Any]],
    schema: Schema,
    spark: SparkSession | None = None,
) -> DataFrame:
    """Encode rows in Spark's executors.

    The DataFrame that is returned is written inside of :func:`materialize_dataset`::

        with materialize_dataset(spark, url, schema, row_group_size_mb=32):
            rows = spark.sparkContext.parallelize(range(1000)).map(make_row)
            encode_rows(rows, schema).write.parquet(url)

    Args:
        rows: an RDD of dicts; a DataFrame with a column for each field, arrays as (nested) lists;
            or an iterable of dicts.
        schema: schema of the rows.
        spark: the session; None: the active one.

    Raises:
        ConfigError: Spark has no type for a field. For an invalid row, the executors raise when the
            DataFrame is written; the message names field and value.
    """
    session = spark_session(spark)
    if isinstance(rows, DataFrame):
        rows = rows.rdd
    elif not isinstance(rows, RDD):
        rows = session.sparkContext.parallelize(list(rows))
    encoded = rows.mapPartitions(functools.partial(encode_partition, schema))
    return session.createDataFrame(encoded, spark_schema(schema))


def encode_partition(schema: Schema, rows: Iterable[Any]) -> Iterator[Row]:
    """Encode the dicts of a partition, in an executor.

    Images become files, arrays ``.npy``, and numbers those of Python.

    Raises:
        ConfigError: a field is missing or unknown, null but not nullable, or does not fit its
            value.
    """
    make_row = Row(*schema.fields)
    remaining_rows = iter(rows)
    first_row = 0
    while True:
        some_rows = list(itertools.islice(remaining_rows, _ROWS_AT_ONCE))
        if not some_rows:
            return
        dicts = []
        for row_number, row in enumerate(some_rows, start=first_row):
            dicts.append(_check_row(schema, row, f"row {row_number} of the partition"))

        columns = []
        for field in schema:
            values = [row.get(field.name) for row in dicts]
            columns.append(_encode_column(field, values, first_row).to_pylist())
        for cells in zip(*columns, strict=True):
            yield make_row(*cells)
        first_row += len(some_rows)


def _check_row(schema: Schema, row: Any, where: str) -> Mapping[str, Any]:
    """Return a row as a dict that has a value for each field that needs one.

    Args:
        schema: the fields.
        row: a dict, or a row of a DataFrame.
        where: the place of the row, for messages.

    Raises:
        ConfigError: it is no dict, or a field is missing or unknown.
    """
    if isinstance(row, Row):
        values = row.asDict()
        row = {name: _convert_spark_value(schema, name, values[name]) for name in values}
    if not isinstance(row, Mapping):
        raise ConfigError(f"{where} must be a dict with a value for each field, got {row!r:.80}")
    for name in row:
        schema[name]  # raises if the field does not exist
    for field in schema:
        if row.get(field.name) is None and not field.nullable:
            raise ConfigError(
                f"{where} has no value for field {field.name!r}, which is not nullable"
            )
    return row


def _convert_spark_value(schema: Schema, name: str, value: Any) -> Any:
    """Return the value of a DataFrame's column as its field takes it: lists become arrays."""
    field = schema.fields.get(name)
    if field is None or not field.shape or not isinstance(value, list):
        return value
    is_array_of_numbers = isinstance(field.dtype, np.dtype) and field.dtype.kind in _NUMBER_KINDS
    if not is_array_of_numbers:
        return value
    return np.array(value, field.dtype)


def _encode_column(field: Field, values: list[Any], first_row: int) -> pa.Array:
    """Encode values as cells of a type that Spark has.

    Args:
        field: the field of the values.
        values: the values of consecutive rows.
        first_row: the number of the first of these rows in the partition, for messages.

    Raises:
        ConfigError: a value does not fit the field, or Spark's type.
    """
    try:
        cells = field.cells.encode_column(field, values)
    except CellError as error:
        row = first_row + error.row
        raise ConfigError(
            f"field {field.name!r}, row {row} of the partition: {error.why}"
        ) from error

    type_of_spark = arrow_for_spark(cells.type)
    if cells.type == type_of_spark:
        return cells
    try:
        return cells.cast(type_of_spark)
    except pa.ArrowException as error:
        raise ConfigError(
            f"field {field.name!r}: {cells.type} does not fit Spark's {type_of_spark}: "
            f"{error!s:.200}"
        ) from error
