"""Datasets that Spark writes, with their metadata."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any

from pyspark.sql import SparkSession

from data_stack.exception import ConfigError
from data_stack.formats.parquet import Schema, generate_metadata
from data_stack.formats.parquet.files import folder_and_paths
from data_stack.io.folder import Folder
from data_stack_spark.session import spark_session
from data_stack_spark.types import spark_schema
from data_stack_spark.urls import readable_source
from data_stack_spark.writing_settings import (
    MIN_ROWS_TO_CHECK,
    N_ROWS_TO_CHECK,
    ROW_GROUP_BYTES,
    SUMMARY_LEVEL,
    writing_settings,
)

logger = logging.getLogger("data_stack")

_BYTES_PER_MIB = 1 << 20


@contextlib.contextmanager
def materialize_dataset(
    spark: SparkSession,
    dataset_url: str,
    schema: Schema,
    row_group_size_mb: float | None = None,
    use_summary_metadata: bool = False,
    filesystem_factory: Callable[[], Any] | None = None,
) -> Iterator[None]:
    """Turn the files that the block writes with Spark into a dataset with a schema.

    ::

        with materialize_dataset(spark, "hdfs:///frames", schema, row_group_size_mb=64):
            encode_rows(rows, schema).write.partitionBy("day").parquet("hdfs:///frames")

    While the block runs, the session writes row groups of the given size, and timestamps as
    microseconds. After the block, the driver reads the footers of all files (no Spark job),
    compares them with the schema, and writes the manifest and ``_common_metadata`` (so that
    Petastorm can read the dataset if it knows the fields). A block that appends to a dataset, or
    writes nothing, rewrites the metadata for all of its files.

    If the block raises, the metadata stays as it was. Build row-group indexes afterwards.

    Args:
        spark: the session that writes.
        dataset_url: a path, or a URL that Spark writes to and ``ParquetDataset`` reads.
        schema: schema of the rows; it may include columns of ``partitionBy``.
        row_group_size_mb: maximum MiB of each row group, as Spark counts them; None: that of the
            session (128).
        use_summary_metadata: whether Spark also writes all footers into one file, ``_metadata``.
        filesystem_factory: returns a file system of pyarrow or fsspec to read the footers from;
            None: that of the URL.

    Raises:
        ConfigError: a file lacks a field, or has another type; or an argument is invalid.
        ResourceNotFoundError: there are no Parquet files after the block.
        StorageError: the metadata could not be written.
    """
    spark = spark_session(spark)
    if not isinstance(schema, Schema):
        raise ConfigError(f"schema must be a Schema, got {schema!r:.80}")
    if row_group_size_mb is not None and not row_group_size_mb > 0:
        raise ConfigError(
            f"row_group_size_mb must be a positive number or None, got {row_group_size_mb!r:.40}"
        )
    # Types that Spark lacks are refused before it writes anything.
    spark_schema(schema)

    settings = {SUMMARY_LEVEL: "ALL" if use_summary_metadata else "NONE"}
    settings[MIN_ROWS_TO_CHECK] = N_ROWS_TO_CHECK
    if row_group_size_mb is not None:
        settings[ROW_GROUP_BYTES] = str(int(row_group_size_mb * _BYTES_PER_MIB))
    with writing_settings(spark, settings):
        yield

    if filesystem_factory is None:
        folder, _ = folder_and_paths(readable_source(dataset_url))
    else:
        folder, _ = folder_and_paths(dataset_url, filesystem=filesystem_factory())
    _write_metadata(folder, schema)


def _write_metadata(folder: Folder, schema: Schema) -> None:
    """Write the metadata of a dataset, for Petastorm too if it knows the fields.

    Raises:
        ConfigError: a file does not fit the schema.
    """
    try:
        generate_metadata(folder, schema=schema, petastorm=True)
    except ConfigError as error:
        # Petastorm does not support a field, or a file does not fit. The second raises again.
        generate_metadata(folder, schema=schema)
        logger.info("Petastorm will not be able to read %s: %s", folder.name, error)
