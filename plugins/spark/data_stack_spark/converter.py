"""DataFrames of Spark as Parquet datasets, each written once."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from data_stack.exception import ConfigError, StorageError
from data_stack.formats.parquet import ParquetDataset
from data_stack_spark.cache import (
    delete_folder,
    files_and_rows,
    register_delete_dir_handler,
    write_once,
)
from data_stack_spark.columns import PRECISIONS, convert_columns
from data_stack_spark.materialize import writing_settings
from data_stack_spark.session import local_path, readable_source

logger = logging.getLogger("data_stack")

__all__ = ["SparkDatasetConverter", "make_spark_converter", "register_delete_dir_handler"]


@dataclass(frozen=True)
class SparkDatasetConverter:
    """The rows of a DataFrame as Parquet files; made by :func:`make_spark_converter`.

    ::

        rows = converter.dataset(nulls="nan")
        with Loader(rows, 256, shuffle=BlockShuffled(window=8), epochs=10).torch() as loader:
            for batch in loader:
                train(batch["features"], batch["label"])

    A converter pickles, and other processes, such as those of ``torchrun``, use it without Spark.

    Attributes:
        cache_dir_url: URL of the folder.
        file_urls: URLs of the Parquet files in it.
        dataset_size: number of rows.
        is_own: whether the converter wrote the folder, so that :meth:`delete` deletes it.
    """

    cache_dir_url: str
    file_urls: Sequence[str]
    dataset_size: int
    is_own: bool = True

    def __len__(self) -> int:
        return self.dataset_size

    def dataset(
        self, columns: Iterable[Any] | None = None, filters: Any = None, **options: Any
    ) -> ParquetDataset:
        """Open the rows as a :class:`~data_stack.formats.parquet.ParquetDataset`, which takes these arguments.

        Raises:
            ResourceNotFoundError: the folder has been deleted.
        """
        return ParquetDataset(readable_source(self.cache_dir_url), columns, filters, **options)

    def delete(self) -> None:
        """Delete the folder that the converter wrote. The folder of a converter of a path is not deleted."""
        if self.is_own:
            delete_folder(self.cache_dir_url)
        else:
            logger.info("%s was not written by a converter and is not deleted", self.cache_dir_url)


def make_spark_converter(
    df: DataFrame | str,
    parquet_row_group_size_bytes: int = 32 << 20,
    compression_codec: str | None = None,
    dtype: str | None = None,
    *,
    cache_dir: str | os.PathLike[str] | None = None,
) -> SparkDatasetConverter:
    """Write a DataFrame as Parquet, once, to train on its rows.

    ::

        converter = make_spark_converter(df, dtype="float32", cache_dir="file:///mnt/shared/cache")
        converter.dataset()  # a ParquetDataset
        converter.delete()

    A process writes the same DataFrame with the same options once: one with the same semantics (``DataFrame.sameSemantics``) and
    unchanged input files. After ``delete()``, the next converter writes again.

    The files are deleted by :meth:`SparkDatasetConverter.delete`, or when this process ends; a process that is killed leaves
    them. To keep files, write them with Spark and make a converter of their path.

    Args:
        df: a DataFrame; or the path of a folder with Parquet, which is used as it is, and stays.
        parquet_row_group_size_bytes: of each row group, as Spark counts them: before compression.
        compression_codec: "snappy", "gzip", "lz4", "zstd" …; None: uncompressed.
        dtype: "float32" or "float64" for all floating-point numbers; None: unchanged. "float32" keeps about 7 decimal digits;
            numbers beyond 3.4e38 become infinite.
        cache_dir: a path, or a URL of any file system that Spark writes to, which all readers reach; None: the user's cache, in
            local mode only.

    Raises:
        ConfigError: an argument is invalid, or ``cache_dir`` is missing.
        StorageError: the files could not be written, for example because Parquet lacks the type of a column.
        ResourceNotFoundError: there is no Parquet at the path.
    """
    if dtype not in PRECISIONS:
        raise ConfigError(f"dtype must be None, 'float32' or 'float64', got {dtype!r:.40}")
    codec, size = compression_codec or "uncompressed", parquet_row_group_size_bytes
    if type(size) is not int or not 0 < size < 1 << 31:
        raise ConfigError(
            f"parquet_row_group_size_bytes must be a positive number of bytes below 2 GiB, got {size!r:.40}"
        )
    if isinstance(df, (str, os.PathLike)):
        if dtype is not None or compression_codec is not None:
            raise ConfigError(
                "dtype and compression_codec need a DataFrame; to convert files, pass spark.read.parquet(path)"
            )
        return _of_path(os.fspath(df))
    parent = _cache_url(cache_dir, df.sparkSession)
    frame = write_once(
        df, parent, (size, codec, dtype), lambda url: _write(df, url, size, codec, dtype)
    )
    return SparkDatasetConverter(
        frame.url, tuple(f"{frame.url}/{file}" for file in frame.files), frame.n_rows
    )


def _write(df: DataFrame, url: str, row_group_bytes: int, codec: str, dtype: str | None) -> None:
    writer = (
        convert_columns(df, dtype)
        .write.option("compression", codec)
        .option("parquet.block.size", row_group_bytes)
    )
    # row groups of wide rows have few rows; by default Parquet checks the size every 100 rows
    writer = writer.option("parquet.page.size.row.check.min", 3).option(
        "parquet.summary.metadata.level", "NONE"
    )
    try:
        with writing_settings(df.sparkSession):
            writer.parquet(url)
    except (
        PySparkException,
        Py4JJavaError,
    ) as error:  # Spark 3.5 raises the second where a job fails
        reason = str(error.java_exception) if isinstance(error, Py4JJavaError) else str(error)
        cause = reason.rpartition("Caused by: ")[2]  # the last one is the first that happened
        raise StorageError(
            f"Spark could not write the DataFrame to {url}: {cause:.1000}"
        ) from error


def _of_path(path: str) -> SparkDatasetConverter:
    local = local_path(path)
    url = path.rstrip("/") if local is None else Path(local).as_uri()
    files, n_rows = files_and_rows(path)
    return SparkDatasetConverter(
        url, tuple(f"{url}/{file}" for file in files), n_rows, is_own=False
    )


def _cache_url(cache_dir: str | os.PathLike[str] | None, spark: SparkSession) -> str:
    if cache_dir is not None:
        return os.fspath(cache_dir)
    if str(spark.sparkContext.master).startswith("local"):
        return os.path.join(platformdirs.user_cache_dir("data_stack"), "spark_converter")
    raise ConfigError(
        "cache_dir is missing: on a cluster, pass the URL of a folder that the executors and all readers reach"
    )
