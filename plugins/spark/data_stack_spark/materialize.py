"""Datasets that Spark writes, with their metadata."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from pyspark.sql import SparkSession

from data_stack.exception import ConfigError
from data_stack.formats.parquet import Schema, generate_metadata
from data_stack.formats.parquet.files import folder_and_paths
from data_stack_spark.session import readable_source, spark_session
from data_stack_spark.types import spark_schema

logger = logging.getLogger("data_stack")

_TIMESTAMPS: Final = "spark.sql.parquet.outputTimestampType"

# The settings belong to the session: one block at a time changes and restores them.
_SETTINGS_LOCK = threading.RLock()


@contextlib.contextmanager
def materialize_dataset(
    spark: SparkSession,
    dataset_url: str,
    schema: Schema,
    row_group_size_mb: float | None = None,
    use_summary_metadata: bool = False,
    filesystem_factory: Callable[[], Any] | None = None,
) -> Iterator[None]:
    """Turn the files that the block writes with Spark to ``dataset_url`` into a dataset with this schema.

    ::

        with materialize_dataset(spark, "hdfs:///frames", schema, row_group_size_mb=64):
            encode_rows(rows, schema).write.partitionBy("day").parquet("hdfs:///frames")

    While the block runs, the session writes row groups of the given size and timestamps as microseconds. After it, the driver
    reads the footers of all files (no Spark job), compares them with the schema, and writes the manifest and ``_common_metadata``
    (so that Petastorm can read the dataset if it knows the fields). A block that appends to a dataset, or writes nothing,
    rewrites the metadata for all of its files.

    If the block raises, the metadata stays as it was. Build row-group indexes afterwards.

    Args:
        spark: the session that writes.
        dataset_url: a path, or a URL that Spark writes to and ``ParquetDataset`` reads.
        schema: schema of the rows; it may include columns of ``partitionBy``.
        row_group_size_mb: maximum MiB of each row group, as Spark counts them; None: that of the session (128).
        use_summary_metadata: whether Spark also writes all footers into one file, ``_metadata``.
        filesystem_factory: returns a file system of pyarrow or fsspec to read the footers from; None: that of the URL.

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
    spark_schema(schema)  # raises for types that Spark lacks, before it writes anything
    settings = {
        "parquet.summary.metadata.level": "ALL" if use_summary_metadata else "NONE",
        # row groups of large cells have few rows; by default Parquet checks the size every 100 rows
        "parquet.page.size.row.check.min": "3",
    }
    if row_group_size_mb is not None:
        settings["parquet.block.size"] = str(int(row_group_size_mb * (1 << 20)))
    with writing_settings(spark, settings):
        yield
    filesystem = None if filesystem_factory is None else filesystem_factory()
    folder, _ = folder_and_paths(
        readable_source(dataset_url) if filesystem is None else dataset_url, filesystem=filesystem
    )
    try:
        generate_metadata(folder, schema=schema, petastorm=True)
    except ConfigError as error:  # Petastorm does not support a field; or files do not fit the schema, which raises again
        generate_metadata(folder, schema=schema)
        logger.info("Petastorm will not be able to read %s: %s", folder.name, error)


@contextlib.contextmanager
def writing_settings(
    spark: SparkSession, hadoop: Mapping[str, str] = MappingProxyType({})
) -> Iterator[None]:
    """Set ``hadoop``'s settings, and timestamps as microseconds, for the block; restore all of them afterwards."""
    configuration: Any = spark.sparkContext._jsc.hadoopConfiguration()
    with _SETTINGS_LOCK:
        timestamps = spark.conf.get(_TIMESTAMPS, None)
        before = {key: configuration.get(key) for key in hadoop}
        try:
            # INT96, the default, holds nanoseconds, so it lacks the years before 1677 and after 2262
            spark.conf.set(_TIMESTAMPS, "TIMESTAMP_MICROS")
            for key, value in hadoop.items():
                configuration.set(key, value)
            yield
        finally:
            for key, old in before.items():
                if old is None:
                    configuration.unset(key)
                else:
                    configuration.set(key, old)
            if timestamps is None:
                spark.conf.unset(_TIMESTAMPS)
            else:
                spark.conf.set(_TIMESTAMPS, timestamps)
