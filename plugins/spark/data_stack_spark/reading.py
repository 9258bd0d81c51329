"""Datasets as RDDs and DataFrames of Spark, read and decoded in its executors, a task for each row group."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import RDD, Broadcast
from pyspark.sql import DataFrame, SparkSession

from data_stack.formats.parquet import Field, ParquetDataset
from data_stack.util.named_rows import make_row_class
from data_stack_spark.session import map_in_arrow, readable_source, spark_session
from data_stack_spark.types import as_spark_column, decode_schema, decode_type

__all__ = ["dataset_as_dataframe", "dataset_as_rdd"]

#: Rows that are decoded together: few, because an image of a camera takes megabytes.
_ROWS_AT_ONCE = 256
_Choices = Iterable["str | Field | re.Pattern[str]"]


def dataset_as_rdd(
    dataset_url: Any,
    spark: SparkSession | None = None,
    schema_fields: _Choices | None = None,
    *,
    filters: Any = None,
    schema: Any = None,
) -> RDD[Any]:
    """The rows of a dataset as an RDD of named tuples, decoded in the executors.

    Each row group is a partition. Executors need data_stack, and must reach the dataset as this process does.

    Args:
        dataset_url: whatever :class:`~data_stack.formats.parquet.ParquetDataset` takes.
        spark: the session; None: the one that is active.
        schema_fields: names, regular expressions or fields; None for all. Named tuples have the order of the schema.
        filters: which rows, as for ParquetDataset.
        schema: what the columns hold, instead of what the files say.

    Raises:
        ResourceNotFoundError: there are no Parquet files.
        ConfigError: there is no such field.
        DatasetFileCorruptError: a footer is damaged. What is wrong with a row is found by the executors.
    """
    context = spark_session(spark).sparkContext
    dataset = ParquetDataset(_source(dataset_url), schema_fields, filters, schema=schema)
    parts = _parts(dataset)
    rows = context.parallelize(parts, max(1, len(parts)))
    return rows.flatMap(functools.partial(_read_rows, context.broadcast(dataset)), preservesPartitioning=True)


def dataset_as_dataframe(
    dataset_url: Any,
    spark: SparkSession | None = None,
    columns: _Choices | None = None,
    *,
    filters: Any = None,
    schema: Any = None,
) -> DataFrame:
    """A dataset as a DataFrame of decoded values: images and arrays are nested arrays of numbers.

    ``spark.read.parquet(url)`` gives the same rows faster where nothing is encoded. Each row group is a partition. Unsigned
    numbers become the next larger type, times of the day integers, because Spark has none.

    Args:
        dataset_url: whatever :class:`~data_stack.formats.parquet.ParquetDataset` takes.
        spark: the session; None: the one that is active.
        columns: names, regular expressions or fields; None for all.
        filters: which rows, as for ParquetDataset.
        schema: what the columns hold, instead of what the files say.

    Raises:
        ResourceNotFoundError: there are no Parquet files.
        ConfigError: there is no such field, or Spark has no type for it; leave it out.
        DatasetFileCorruptError: a footer is damaged. What is wrong with a row is found by the executors.
    """
    session = spark_session(spark)
    dataset = ParquetDataset(_source(dataset_url), columns, filters, schema=schema)
    struct = decode_schema(dataset.schema)
    types = {field.name: decode_type(field) for field in dataset.schema}
    parts = _parts(dataset)
    reader = functools.partial(_read_batches, session.sparkContext.broadcast(dataset), types, parts)
    return map_in_arrow(session.range(0, len(parts), 1, max(1, len(parts))), reader, struct)


def _source(dataset_url: Any) -> Any:
    return readable_source(dataset_url) if isinstance(dataset_url, str) else dataset_url


def _parts(dataset: ParquetDataset) -> list[tuple[int, int]]:
    """The rows of each row group: the first, and that behind the last."""
    ends = np.cumsum(dataset.block_lengths).tolist()
    return list(zip([0, *ends[:-1]], ends, strict=True)) if ends else []


def _read_rows(shared: Broadcast[ParquetDataset], part: tuple[int, int]) -> Iterator[Any]:
    """The rows of a row group, in an executor, where all tasks of a process share the dataset."""
    dataset = shared.value
    name, fields = dataset.schema.name, tuple(dataset.schema.fields)
    for start in range(*part, _ROWS_AT_ONCE):
        for sample in dataset.__getitems__(np.arange(start, min(start + _ROWS_AT_ONCE, part[1]))):
            yield make_row_class(name, fields, tuple(sample.values()))


def _read_batches(
    shared: Broadcast[ParquetDataset],
    types: dict[str, pa.DataType],
    parts: list[tuple[int, int]],
    numbers: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Row groups as record batches, in an executor; ``numbers`` says which."""
    dataset = shared.value
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            first, end = parts[number]
            for start in range(first, end, _ROWS_AT_ONCE):
                columns = dataset.read_batch(np.arange(start, min(start + _ROWS_AT_ONCE, end)))
                arrays = [as_spark_column(columns[name], type_) for name, type_ in types.items()]
                yield pa.RecordBatch.from_arrays(arrays, list(types))
