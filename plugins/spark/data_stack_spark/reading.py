"""Datasets as RDDs of Spark, read and decoded in its executors, one task for each row group."""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from pyspark import RDD, Broadcast
from pyspark.sql import SparkSession

from data_stack.formats.parquet import Field, ParquetDataset
from data_stack.values.named_rows import make_row_class
from data_stack_spark.session import spark_session
from data_stack_spark.urls import readable_source

#: Number of rows that are decoded together; few, because an image of a camera takes megabytes.
_ROWS_AT_ONCE = 256


def dataset_as_rdd(
    dataset_url: Any,
    spark: SparkSession | None = None,
    schema_fields: Iterable[str | Field | re.Pattern[str]] | None = None,
    *,
    filters: Any = None,
    schema: Any = None,
) -> RDD[Any]:
    """Return the rows of a dataset as an RDD of named tuples, decoded in the executors.

    Each row group is a partition. Executors need data_stack, and must reach the dataset under the
    same URL. ``spark.read.parquet(url)`` reads columns that are not encoded faster.

    Args:
        dataset_url: any source of :class:`~data_stack.formats.parquet.ParquetDataset`.
        spark: the session; None: the active one.
        schema_fields: names, regular expressions or fields; None: all. Named tuples have the order
            of the schema.
        filters: selects rows, as for ParquetDataset.
        schema: schema to use instead of that of the files.

    Raises:
        ResourceNotFoundError: there are no Parquet files.
        ConfigError: a field does not exist.
        DatasetFileCorruptError: a footer is damaged. The executors raise for damaged rows.
    """
    context = spark_session(spark).sparkContext
    source = dataset_url
    if isinstance(dataset_url, str):
        source = readable_source(dataset_url)
    dataset = ParquetDataset(source, schema_fields, filters, schema=schema)

    # The positions of the first row of each row group, and of the row after the last one.
    bounds = np.cumsum([0, *dataset.block_lengths]).tolist()
    row_groups = list(itertools.pairwise(bounds))
    partitions = context.parallelize(row_groups, max(1, len(row_groups)))
    read_row_group = functools.partial(_read_row_group, context.broadcast(dataset))
    return partitions.flatMap(read_row_group, preservesPartitioning=True)


def _read_row_group(
    shared_dataset: Broadcast[ParquetDataset], row_group: tuple[int, int]
) -> Iterator[Any]:
    """Yield the rows of a row group, in an executor.

    Args:
        shared_dataset: the dataset, which all tasks of a process share.
        row_group: the positions of the first row and of the row after the last one.
    """
    dataset = shared_dataset.value
    row_class_name = dataset.schema.name
    field_names = tuple(dataset.schema.fields)
    first, end = row_group
    for start in range(first, end, _ROWS_AT_ONCE):
        positions = np.arange(start, min(start + _ROWS_AT_ONCE, end))
        for sample in dataset.__getitems__(positions):
            yield make_row_class(row_class_name, field_names, tuple(sample.values()))
