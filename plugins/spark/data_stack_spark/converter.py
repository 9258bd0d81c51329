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
from data_stack_spark.columns import PRECISIONS, convert_columns
from data_stack_spark.folders import register_delete_dir_handler
from data_stack_spark.urls import local_path, readable_source
from data_stack_spark.writing_settings import (
    MIN_ROWS_TO_CHECK,
    N_ROWS_TO_CHECK,
    ROW_GROUP_BYTES,
    SUMMARY_LEVEL,
    writing_settings,
)
from data_stack_spark.written_frames import WRITTEN_FRAMES, ParquetFolder

logger = logging.getLogger("data_stack")

__all__ = ["SparkDatasetConverter", "make_spark_converter", "register_delete_dir_handler"]

#: Parquet's limit for the size of a row group.
_MAX_ROW_GROUP_BYTES = (1 << 31) - 1


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
        """Open the rows.

        Args:
            columns: as for :class:`~data_stack.formats.parquet.ParquetDataset`.
            filters: as for ParquetDataset.
            options: the other arguments of ParquetDataset.

        Raises:
            ResourceNotFoundError: the folder has been deleted.
        """
        return ParquetDataset(readable_source(self.cache_dir_url), columns, filters, **options)

    def delete(self) -> None:
        """Delete the folder that the converter wrote.

        The folder of a converter of a path is not deleted.
        """
        if not self.is_own:
            logger.info("%s was not written by a converter and is not deleted", self.cache_dir_url)
            return
        WRITTEN_FRAMES.delete(self.cache_dir_url)


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

    A process writes the same DataFrame with the same options once. Two DataFrames are the same if
    they have the same semantics (``DataFrame.sameSemantics``), and their input files have not
    changed. After ``delete()``, the next converter writes again.

    The files are deleted by :meth:`SparkDatasetConverter.delete`, or when this process ends; a
    process that is killed leaves them. To keep files, write them with Spark and make a converter of
    their path.

    Args:
        df: a DataFrame; or the path of a folder with Parquet, which is used as it is, and is never
            deleted.
        parquet_row_group_size_bytes: size of a row group in bytes, before compression. Smaller row
            groups shuffle better and need less memory; larger ones read faster.
        compression_codec: "snappy", "gzip", "lz4", "zstd" …; None: uncompressed, which reads
            fastest from a local disk.
        dtype: "float32" or "float64" for all floating-point numbers, also in vectors and nested
            columns; None: unchanged. "float32" keeps about 7 decimal digits; numbers beyond 3.4e38
            become infinite. The log names the columns that lose precision.
        cache_dir: a path, or a URL of any file system that Spark writes to, which all readers
            reach; None: the user's cache, in local mode only.

    Raises:
        ConfigError: an argument is invalid, or ``cache_dir`` is missing.
        StorageError: the files could not be written, for example because Parquet lacks the type of
            a column.
        ResourceNotFoundError: there is no Parquet at the path.
    """
    if dtype not in PRECISIONS:
        raise ConfigError(f"dtype must be None, 'float32' or 'float64', got {dtype!r:.40}")
    _check_row_group_bytes(parquet_row_group_size_bytes)

    if isinstance(df, (str, os.PathLike)):
        if dtype is not None or compression_codec is not None:
            raise ConfigError(
                "dtype and compression_codec need a DataFrame; "
                "to convert files, pass spark.read.parquet(path)"
            )
        return _make_converter_of_path(os.fspath(df))

    options = _WriteOptions(
        row_group_bytes=parquet_row_group_size_bytes,
        compression=compression_codec or "uncompressed",
        dtype=dtype,
    )
    if cache_dir is None:
        parent = _default_cache_dir(df.sparkSession)
    else:
        parent = os.fspath(cache_dir)
    folder = WRITTEN_FRAMES.find_or_write(df, parent, options, lambda url: _write(df, url, options))
    return SparkDatasetConverter(folder.url, folder.file_urls, folder.n_rows)


@dataclass(frozen=True, slots=True)
class _WriteOptions:
    """How a DataFrame is written.

    Attributes:
        row_group_bytes: size of a row group before compression.
        compression: the codec, as Spark calls it.
        dtype: "float32" or "float64" for all floating-point numbers; None: unchanged.
    """

    row_group_bytes: int
    compression: str
    dtype: str | None


def _check_row_group_bytes(n_bytes: Any) -> None:
    """Check the size of row groups.

    Raises:
        ConfigError: it is not an integer, or out of range.
    """
    is_integer = type(n_bytes) is int  # bool is a subclass of int
    if not is_integer or not 0 < n_bytes <= _MAX_ROW_GROUP_BYTES:
        raise ConfigError(
            "parquet_row_group_size_bytes must be a positive number of bytes below 2 GiB, "
            f"got {n_bytes!r:.40}"
        )


def _make_converter_of_path(path: str) -> SparkDatasetConverter:
    """Make a converter of a folder that the user wrote.

    Raises:
        ResourceNotFoundError: there is no Parquet at the path.
    """
    absolute_path = local_path(path)
    if absolute_path is None:
        url = path.rstrip("/")
    else:
        url = Path(absolute_path).as_uri()
    folder = ParquetFolder.find(url)
    return SparkDatasetConverter(folder.url, folder.file_urls, folder.n_rows, is_own=False)


def _default_cache_dir(spark: SparkSession) -> str:
    """Return the folder in the user's cache.

    Raises:
        ConfigError: Spark runs on a cluster, which does not reach that folder.
    """
    is_local = str(spark.sparkContext.master).startswith("local")
    if not is_local:
        raise ConfigError(
            "cache_dir is missing: on a cluster, pass the URL of a folder that the executors and "
            "all readers reach"
        )
    return os.path.join(platformdirs.user_cache_dir("data_stack"), "spark_converter")


def _write(df: DataFrame, url: str, options: _WriteOptions) -> None:
    """Write a DataFrame to a new folder.

    Raises:
        StorageError: Spark could not write it.
    """
    writer = convert_columns(df, options.dtype).write
    writer = writer.option("compression", options.compression)
    writer = writer.option(ROW_GROUP_BYTES, options.row_group_bytes)
    writer = writer.option(MIN_ROWS_TO_CHECK, N_ROWS_TO_CHECK)
    writer = writer.option(SUMMARY_LEVEL, "NONE")
    try:
        with writing_settings(df.sparkSession):
            writer.parquet(url)
    except Py4JJavaError as error:  # Spark 3.5 raises it where a job fails
        raise _make_write_error(url, str(error.java_exception)) from error
    except PySparkException as error:
        raise _make_write_error(url, str(error)) from error


def _make_write_error(url: str, reason: str) -> StorageError:
    """Return the error for a failed write."""
    # Java lists causes of causes: the last one is the first that happened.
    cause = reason.rpartition("Caused by: ")[2]
    return StorageError(f"Spark could not write the DataFrame to {url}: {cause:.1000}")
