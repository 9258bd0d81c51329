"""DataFrames of Spark as batches, with Petastorm's arguments and defaults; :mod:`data_stack_spark` writes the files."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.loader.ranks import launcher_shard
from data_stack_petastorm.reader import make_batch_reader

try:
    import data_stack_spark
    from data_stack_spark import (
        local_path,
        readable_source,
        register_delete_dir_handler,
        spark_session,
    )
    from pyspark import TaskContext
except ImportError as error:
    raise MissingDependencyError(
        "data_stack_petastorm.spark", "lazy-data-stack-spark", "spark"
    ) from error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger("data_stack")

__all__ = ["SparkDatasetConverter", "make_spark_converter", "register_delete_dir_handler"]

DEFAULT_ROW_GROUP_SIZE_BYTES: Final = 32 << 20
_SETTING: Final = "petastorm.spark.converter.parentCacheDirUrl"
_WORKERS: Final = 4
_BATCH_SIZE: Final = 32
_SMALL_FILE_BYTES: Final = 50 << 20
_FILE_AVAILABILITY_WAIT_TIMEOUT_SECS = 30


class SparkDatasetConverter(data_stack_spark.SparkDatasetConverter):
    """The rows of a DataFrame as Parquet files, for batches of torch and TensorFlow; made by :func:`make_spark_converter`.

    It pickles, so functions that Spark's executors or other processes run may use it.

    Attributes:
        cache_dir_url: URL of the folder.
        file_urls: URLs of the Parquet files in it, a list.
        dataset_size: number of rows, also ``len(converter)``.
        PARENT_CACHE_DIR_URL_CONF: name of the setting of a session that names the folder for all converters.
    """

    PARENT_CACHE_DIR_URL_CONF: Final = _SETTING

    @contextlib.contextmanager
    def make_torch_dataloader(
        self,
        batch_size: int | None = _BATCH_SIZE,
        num_epochs: int | None = None,
        workers_count: int | None = None,
        shuffling_queue_capacity: int = 0,
        data_loader_fn: Callable[..., Any] | None = None,
        **petastorm_reader_kwargs: Any,
    ) -> Iterator[Any]:
        """A torch loader for a ``with`` block, at whose end the reader is stopped.

        ::

            with converter.make_torch_dataloader(batch_size=256, num_epochs=1) as loader:
                for batch in loader:
                    train(batch["features"], batch["label"])

        Args:
            batch_size: rows of each batch; None: 32.
            num_epochs: epochs of the reader; None: endless.
            workers_count: workers of the reader; None: 4.
            shuffling_queue_capacity: minimum number of rows to shuffle together; 0: the reader's order.
            data_loader_fn: makes the loader from ``reader=``, ``batch_size=`` and ``shuffling_queue_capacity=``; None:
                :class:`data_stack_petastorm.pytorch.DataLoader`.
            petastorm_reader_kwargs: other arguments of :func:`data_stack_petastorm.make_batch_reader`, such as ``cur_shard`` and
                ``shard_count``, ``transform_spec``, ``seed``.

        Raises (at the beginning of the block):
            TypeError: an argument is unknown.
            ConfigError: an argument is out of range.
            RuntimeError: the files do not exist.
        """
        from data_stack_petastorm.pytorch import DataLoader

        size = _BATCH_SIZE if batch_size is None else batch_size
        with (
            self._reader(num_epochs, workers_count, petastorm_reader_kwargs) as reader,
            contextlib.ExitStack() as stack,
        ):
            made = (data_loader_fn or DataLoader)(
                reader=reader, batch_size=size, shuffling_queue_capacity=shuffling_queue_capacity
            )
            if hasattr(made, "__exit__"):  # our loaders end their workers then
                stack.enter_context(made)
            yield made

    @contextlib.contextmanager
    def make_tf_dataset(
        self,
        batch_size: int | None = None,
        prefetch: int | None = None,
        num_epochs: int | None = None,
        workers_count: int | None = None,
        shuffling_queue_capacity: int | None = None,
        **petastorm_reader_kwargs: Any,
    ) -> Iterator[Any]:
        """Batches as a ``tf.data.Dataset`` of named tuples of tensors, for a ``with`` block.

        Args:
            batch_size: rows of each batch; None: 32.
            prefetch: number of batches to prefetch; None: ``tf.data.AUTOTUNE``.
            num_epochs: as for :meth:`make_torch_dataloader`, like all other arguments.
            workers_count: likewise.
            shuffling_queue_capacity: rows of the buffer of ``tf.data.Dataset.shuffle``; None: the reader's order.
            petastorm_reader_kwargs: likewise.

        Raises (at the beginning of the block):
            TypeError, ConfigError, RuntimeError: as for :meth:`make_torch_dataloader`.
        """
        import tensorflow as tf

        from data_stack_petastorm.tf_utils import make_petastorm_dataset

        with self._reader(num_epochs, workers_count, petastorm_reader_kwargs) as reader:
            rows = make_petastorm_dataset(reader).unbatch()
            if shuffling_queue_capacity:
                rows = rows.shuffle(shuffling_queue_capacity)
            yield rows.batch(batch_size or _BATCH_SIZE).prefetch(
                tf.data.AUTOTUNE if prefetch is None else prefetch
            )

    @contextlib.contextmanager
    def _reader(
        self, num_epochs: int | None, workers_count: int | None, options: Mapping[str, Any]
    ) -> Iterator[Any]:
        _check_rank_and_size_consistent_with_horovod(options)
        _wait_file_available(self.file_urls)
        n_workers = _WORKERS if workers_count is None else workers_count
        files = [readable_source(url) for url in self.file_urls]
        with make_batch_reader(
            files, num_epochs=num_epochs, workers_count=n_workers, **options
        ) as reader:
            yield reader


def make_spark_converter(
    df: DataFrame | str,
    parquet_row_group_size_bytes: int = DEFAULT_ROW_GROUP_SIZE_BYTES,
    compression_codec: str | None = None,
    dtype: str | None = "float32",
) -> SparkDatasetConverter:
    """Write a DataFrame as Parquet, once in a process, for batches of torch and TensorFlow.

    ::

        spark.conf.set(SparkDatasetConverter.PARENT_CACHE_DIR_URL_CONF, "file:///mnt/shared/cache")
        converter = make_spark_converter(df)

    The files are deleted by ``converter.delete()``, or when this process ends.

    Args:
        df: a DataFrame, which is written to a new folder below that of the session's setting
            ``petastorm.spark.converter.parentCacheDirUrl``; or the path or URL of a folder with Parquet, which is used as it is
            and which ``delete()`` keeps.
        parquet_row_group_size_bytes: bytes of each row group, before compression.
        compression_codec: "snappy", "gzip", "zstd" …; None: uncompressed.
        dtype: "float32" or "float64" for all floating-point numbers; None: unchanged.

    Raises:
        ConfigError (a ValueError): the setting is missing or not a URL; or an argument is invalid.
        StorageError: the files could not be written.
        ResourceNotFoundError: there is no Parquet at the path.
    """
    if isinstance(df, (str, os.PathLike)):
        url = os.fspath(df)
        if "DATABRICKS_RUNTIME_VERSION" in os.environ:
            url = _normalize_databricks_dbfs_url(
                url, f"on Databricks, paths must start with file:/dbfs/ or dbfs:/, got {url!r}"
            )
        made = data_stack_spark.make_spark_converter(url)
    else:
        parent = _get_parent_cache_dir_url()
        made = data_stack_spark.make_spark_converter(
            df, parquet_row_group_size_bytes, compression_codec, dtype, cache_dir=parent
        )
    _check_dataset_file_median_size(made.file_urls)
    return SparkDatasetConverter(
        made.cache_dir_url, list(made.file_urls), made.dataset_size, made.is_own
    )


def _get_horovod_rank_and_size() -> tuple[int, int] | tuple[None, None]:
    """Rank of this process and number of processes, as the launcher says; or Nones."""
    return launcher_shard() or (None, None)


def _check_rank_and_size_consistent_with_horovod(
    petastorm_reader_kwargs: Mapping[str, Any],
) -> bool:
    """Whether the arguments select the shard of this process; logs a warning if they do not."""
    rank, size = _get_horovod_rank_and_size()
    shard = petastorm_reader_kwargs.get("cur_shard"), petastorm_reader_kwargs.get("shard_count")
    if size is None or size == 1 or shard == (rank, size):
        return True
    logger.warning(
        "rank %s of %s: this is one of several training processes, but cur_shard=%s and shard_count=%s; to read only its shard, "
        "pass cur_shard=%s, shard_count=%s",
        *(rank, size, *shard, rank, size),
    )
    return False


# ---------------------------------------------------------------------- where the files lie


def _get_spark_session() -> SparkSession:
    if TaskContext.get() is not None:
        raise RuntimeError(
            "convert the DataFrame in the driver, and send the converter to the executors"
        )
    return spark_session()


def _is_spark_local_mode() -> bool:
    return str(_get_spark_session().sparkContext.master).startswith("local")


def _get_parent_cache_dir_url() -> str:
    """The folder for all converters.

    Raises:
        ConfigError: the setting is missing, or is not a URL.
    """
    found = _get_spark_session().conf.get(_SETTING, None)
    if found is None:
        raise ConfigError(
            f"Please set the spark config {_SETTING} to the URL of a folder that the executors and all readers reach, "
            f"such as 'file:///mnt/shared/cache'"
        )
    _check_parent_cache_dir_url(found)
    return found


def _check_url(dir_url: str) -> None:
    if not urlsplit(dir_url).scheme:
        raise ConfigError(
            f"ambiguous scheme-less URL {dir_url!r}: write file:// for a folder of this machine"
        )


def _check_parent_cache_dir_url(dir_url: str) -> None:
    _check_url(dir_url)
    path = local_path(dir_url)
    if (
        "DATABRICKS_RUNTIME_VERSION" in os.environ
        and not _is_spark_local_mode()
        and path
        and not path.startswith("/dbfs/")
    ):
        logger.warning(
            "on a cluster of Databricks you should specify a dbfs fuse path, such as 'file:/dbfs/cache', for %s: all nodes must "
            "see %r under one path",
            _SETTING,
            path,
        )


def _normalize_databricks_dbfs_url(url: str, err_msg: str) -> str:
    """The URL of the folder at which a URL of Databricks' store is mounted."""
    if url.startswith(("file:/dbfs/", "file:///dbfs/")):
        return url
    scheme, _, path = url.partition(":")
    if (
        scheme != "dbfs"
        or not path.startswith("/")
        or path.startswith("//") != path.startswith("///")
    ):
        raise ConfigError(err_msg)
    return "file:/dbfs/" + path.lstrip("/")


def _wait_file_available(url_list: Sequence[str]) -> None:
    """Wait until this machine sees all files: a mounted file system may show files of an executor a little later.

    Raises:
        RuntimeError: some do not appear.
    """
    end = time.monotonic() + _FILE_AVAILABILITY_WAIT_TIMEOUT_SECS
    missing = list(url_list)
    while missing := [
        url for url in missing if (path := local_path(url)) is not None and not os.path.exists(path)
    ]:
        if time.monotonic() > end:
            raise RuntimeError(
                f"Timeout while waiting for all parquet-store files to appear at urls {', '.join(missing):.1000}: was the "
                f"converter deleted, or can this machine not reach its folder?"
            )
        time.sleep(0.1)


def _check_dataset_file_median_size(url_list: Sequence[str]) -> None:
    paths = [path for path in map(local_path, url_list) if path is not None]
    sizes = sorted(map(os.path.getsize, paths))
    if len(sizes) > 1 and sizes[len(sizes) // 2] < _SMALL_FILE_BYTES:
        logger.warning(
            "The median size %d B (< 50 MB) of %d Parquet files is small, %d B in total. Fewer, larger files may be read faster: "
            "use df.coalesce(n) or df.repartition(n). The first file is %s",
            *(sizes[len(sizes) // 2], len(sizes), sum(sizes), url_list[0]),
        )
