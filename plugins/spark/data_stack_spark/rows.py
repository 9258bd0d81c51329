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


def encode_rows(
    rows: RDD[Any] | DataFrame | Iterable[Mapping[str, Any]],
    schema: Schema,
    spark: SparkSession | None = None,
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
    return session.createDataFrame(
        rows.mapPartitions(functools.partial(encode_partition, schema)), spark_schema(schema)
    )


def encode_partition(schema: Schema, rows: Iterable[Any]) -> Iterator[Row]:
    """Encode the dicts of a partition, in an executor: images as files, arrays as ``.npy``, numbers as Python's.

    Raises:
        ConfigError: a field is missing or unknown, null but not nullable, or does not fit its value.
    """
    rows, first, make = iter(rows), 0, Row(*schema.fields)
    while some := list(itertools.islice(rows, _ROWS_AT_ONCE)):
        dicts = [
            _as_dict(schema, row, f"row {first + number} of the partition")
            for number, row in enumerate(some)
        ]
        columns = [
            _encode(field, [row.get(field.name) for row in dicts], first).to_pylist()
            for field in schema
        ]
        yield from (make(*values) for values in zip(*columns, strict=True))
        first += len(some)


def _as_dict(schema: Schema, row: Any, where: str) -> Mapping[str, Any]:
    if isinstance(row, Row):  # a row of a DataFrame, where arrays are lists
        row = {name: _as_field(schema, name, value) for name, value in row.asDict().items()}
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


def _encode(field: Field, values: list[Any], first_row: int) -> pa.Array:
    """Encode values as cells of a type that Spark has."""
    try:
        cells = field.cells.encode_column(field, values)
    except CellError as error:
        raise ConfigError(
            f"field {field.name!r}, row {first_row + error.row} of the partition: {error.why}"
        ) from error
    wanted = arrow_for_spark(cells.type)
    try:
        return cells if cells.type == wanted else cells.cast(wanted)
    except pa.ArrowException as error:
        raise ConfigError(
            f"field {field.name!r}: {cells.type} does not fit Spark's {wanted}: {error!s:.200}"
        ) from error


def _as_field(schema: Schema, name: str, value: Any) -> Any:
    field = schema.fields.get(name)
    if (
        field is not None
        and field.shape
        and isinstance(value, list)
        and isinstance(field.dtype, np.dtype)
    ):
        return np.array(value, field.dtype) if field.dtype.kind in "biufc" else value
    return value
