"""DataFrames of Spark as batches, with Petastorm's arguments and defaults: a layer on :mod:`data_stack_spark.converter`."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from data_stack.exception import ConfigError, MissingDependencyError
from data_stack.util.logger import logger
from data_stack_petastorm.reader import make_batch_reader

try:
    import data_stack_spark.converter as engine
    from data_stack_spark.converter import register_delete_dir_handler
    from data_stack_spark.session import local_path, readable_source, spark_session
    from pyspark import TaskContext
except ImportError as error:
    raise MissingDependencyError("data_stack_petastorm.spark", "datastack-spark", "parquet") from error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["SparkDatasetConverter", "make_spark_converter", "register_delete_dir_handler"]

DEFAULT_ROW_GROUP_SIZE_BYTES: Final = 32 << 20
_WORKERS: Final = 4
_BATCH_SIZE: Final = 32
_SMALL_FILE_BYTES: Final = 50 << 20
_FILE_AVAILABILITY_WAIT_TIMEOUT_SECS = 30


class SparkDatasetConverter(engine.SparkDatasetConverter):
    """The rows of a DataFrame as Parquet files, for batches of torch and TensorFlow; made by :func:`make_spark_converter`.

    It pickles, so functions that Spark's executors or other processes run may use it.

    Attributes:
        cache_dir_url: of the folder.
        file_urls: of the Parquet files in it, a list.
        dataset_size: rows, also ``len(converter)``.
    """

    def make_torch_dataloader(
        self,
        batch_size: int | None = _BATCH_SIZE,
        num_epochs: int | None = None,
        workers_count: int | None = None,
        shuffling_queue_capacity: int = 0,
        data_loader_fn: Callable[..., Any] | None = None,
        **petastorm_reader_kwargs: Any,
    ) -> contextlib.AbstractContextManager[Any]:
        """A loader of torch, to be used in a ``with`` block, at whose end the reader is stopped.

        ::

            with converter.make_torch_dataloader(batch_size=256, num_epochs=1) as loader:
                for batch in loader:
                    train(batch["features"], batch["label"])

        Args:
            batch_size: rows of each batch; None: 32.
            num_epochs: epochs of the reader; None: without an end.
            workers_count: of the reader; None: 4.
            shuffling_queue_capacity: so many rows are mixed with each other; 0: in the reader's order.
            data_loader_fn: makes the loader of ``reader=``, ``batch_size=`` and ``shuffling_queue_capacity=``; None:
                :class:`data_stack_petastorm.pytorch.DataLoader`.
            petastorm_reader_kwargs: other arguments of :func:`data_stack_petastorm.make_batch_reader`, such as ``cur_shard`` and
                ``shard_count``, ``transform_spec``, ``seed``.

        Raises (at the beginning of the block):
            TypeError: there is no such argument.
            ConfigError: one is out of range.
            RuntimeError: the files are not there.
        """
        return self._torch(
            batch_size, shuffling_queue_capacity, data_loader_fn, _given(num_epochs, workers_count, petastorm_reader_kwargs)
        )

    def make_tf_dataset(
        self,
        batch_size: int | None = None,
        prefetch: int | None = None,
        num_epochs: int | None = None,
        workers_count: int | None = None,
        shuffling_queue_capacity: int | None = None,
        **petastorm_reader_kwargs: Any,
    ) -> contextlib.AbstractContextManager[Any]:
        """Batches as a ``tf.data.Dataset`` of named tuples of tensors, to be used in a ``with`` block.

        Args:
            batch_size: rows of each batch; None: 32.
            prefetch: batches that are made ahead; None: ``tf.data.AUTOTUNE``.
            num_epochs: as for :meth:`make_torch_dataloader`, like all other arguments.
            workers_count: likewise.
            shuffling_queue_capacity: rows of the buffer of ``tf.data.Dataset.shuffle``; None: in the reader's order.
            petastorm_reader_kwargs: likewise.

        Raises (at the beginning of the block):
            TypeError, ConfigError, RuntimeError: as there.
        """
        return self._tf(
            batch_size, prefetch, shuffling_queue_capacity, _given(num_epochs, workers_count, petastorm_reader_kwargs)
        )

    @contextlib.contextmanager
    def _reader(self, options: Mapping[str, Any]) -> Iterator[Any]:
        _wait_file_available(self.file_urls)
        reader = make_batch_reader([readable_source(url) for url in self.file_urls], **options)
        try:
            yield reader
        finally:
            reader.stop()
            reader.join()

    @contextlib.contextmanager
    def _torch(
        self, batch_size: int | None, capacity: int, data_loader_fn: Callable[..., Any] | None, options: Mapping[str, Any]
    ) -> Iterator[Any]:
        from data_stack_petastorm.pytorch import DataLoader

        with self._reader(options) as reader, contextlib.ExitStack() as stack:
            made = (data_loader_fn or DataLoader)(
                reader=reader, batch_size=_BATCH_SIZE if batch_size is None else batch_size, shuffling_queue_capacity=capacity
            )
            if hasattr(made, "__exit__"):  # ours end their workers then
                stack.enter_context(made)
            yield made

    @contextlib.contextmanager
    def _tf(
        self, batch_size: int | None, prefetch: int | None, capacity: int | None, options: Mapping[str, Any]
    ) -> Iterator[Any]:
        import tensorflow as tf

        from data_stack_petastorm.tf_utils import make_petastorm_dataset

        with self._reader(options) as reader:
            rows = make_petastorm_dataset(reader).unbatch()
            if capacity:
                rows = rows.shuffle(capacity)
            yield rows.batch(batch_size or _BATCH_SIZE).prefetch(tf.data.AUTOTUNE if prefetch is None else prefetch)


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
        df: a DataFrame, which is written to a new folder of the one that the session's setting
            ``petastorm.spark.converter.parentCacheDirUrl`` names; or path or URL of a folder with Parquet, which is used as it
            is, and which ``delete()`` leaves.
        parquet_row_group_size_bytes: of each row group, before compression.
        compression_codec: "snappy", "gzip", "zstd" …, what Spark has; None: uncompressed.
        dtype: "float32" or "float64" for all floating-point numbers; None: unchanged.

    Raises:
        ConfigError (a ValueError): the setting is missing, or is no URL; or an argument is wrong.
        StorageError: the files could not be written.
        ResourceNotFoundError: there is no Parquet at the path.
    """
    if isinstance(df, (str, os.PathLike)):
        url = os.fspath(df)
        if "DATABRICKS_RUNTIME_VERSION" in os.environ:
            url = _normalize_databricks_dbfs_url(url, f"on Databricks a path is file:/dbfs/… or dbfs:/…, not {url!r}")
        made = engine.make_spark_converter(url)
    else:
        parent = _get_parent_cache_dir_url()
        made = engine.make_spark_converter(df, parquet_row_group_size_bytes, compression_codec, dtype, cache_dir=parent)
    _check_dataset_file_median_size(made.file_urls)
    return SparkDatasetConverter(made.cache_dir_url, list(made.file_urls), made.dataset_size, made.is_own)


def _given(num_epochs: int | None, workers_count: int | None, reader: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the reader."""
    _check_rank_and_size_consistent_with_horovod(reader)
    return {**reader, "num_epochs": num_epochs, "workers_count": _WORKERS if workers_count is None else workers_count}


def _get_horovod_rank_and_size() -> tuple[int, int] | tuple[None, None]:
    return engine.rank_and_size()


def _check_rank_and_size_consistent_with_horovod(petastorm_reader_kwargs: Mapping[str, Any]) -> bool:
    return engine.is_shard_of_rank(petastorm_reader_kwargs)


# ---------------------------------------------------------------------- where the files lie


def _get_spark_session() -> SparkSession:
    if TaskContext.get() is not None:
        raise RuntimeError("a DataFrame is converted by the driver; executors use the converter, which they are sent")
    return spark_session()


def _is_spark_local_mode() -> bool:
    return str(_get_spark_session().sparkContext.master).startswith("local")


def _get_parent_cache_dir_url() -> str:
    """The folder for all converters.

    Raises:
        ConfigError: the session does not name it, or not by a URL.
    """
    found = _get_spark_session().conf.get(engine.PARENT_CACHE_DIR_URL_CONF, None)
    if found is None:
        raise ConfigError(
            f"Please set the spark config {engine.PARENT_CACHE_DIR_URL_CONF} to the URL of a folder that Spark's executors and "
            f"all readers reach, such as 'file:///mnt/shared/cache'"
        )
    _check_parent_cache_dir_url(found)
    return found


def _check_url(dir_url: str) -> None:
    if not urlsplit(dir_url).scheme:
        raise ConfigError(f"a scheme-less URL ({dir_url!r}) may mean another folder to Spark: write file:// for this machine's")


def _check_parent_cache_dir_url(dir_url: str) -> None:
    _check_url(dir_url)
    path = local_path(dir_url)
    if "DATABRICKS_RUNTIME_VERSION" in os.environ and not _is_spark_local_mode() and path and not path.startswith("/dbfs/"):
        logger.warning(
            "on a cluster of Databricks you should specify a dbfs fuse path, such as 'file:/dbfs/cache', for %s: all nodes must "
            "see %r under one path",
            engine.PARENT_CACHE_DIR_URL_CONF,
            path,
        )


def _normalize_databricks_dbfs_url(url: str, err_msg: str) -> str:
    """A URL of Databricks' store as one of the folder at which it is mounted."""
    if url.startswith(("file:/dbfs/", "file:///dbfs/")):
        return url
    scheme, _, path = url.partition(":")
    if scheme != "dbfs" or not path.startswith("/") or path.startswith("//") != path.startswith("///"):
        raise ConfigError(err_msg)
    return "file:/dbfs/" + path.lstrip("/")


def _wait_file_available(url_list: Sequence[str]) -> None:
    """Wait until this machine sees all files: a mounted file system may show those of an executor a little later.

    Raises:
        RuntimeError: some do not appear.
    """
    end = time.monotonic() + _FILE_AVAILABILITY_WAIT_TIMEOUT_SECS
    missing = list(url_list)
    while missing := [url for url in missing if (path := local_path(url)) is not None and not os.path.exists(path)]:
        if time.monotonic() > end:
            raise RuntimeError(
                f"Timeout while waiting for all parquet-store files to appear at urls {', '.join(missing):.1000}: has the "
                f"converter been deleted, or does this machine not see its folder?"
            )
        time.sleep(0.1)


def _check_dataset_file_median_size(url_list: Sequence[str]) -> None:
    paths = [path for path in map(local_path, url_list) if path is not None]
    sizes = sorted(map(os.path.getsize, paths))
    if len(sizes) > 1 and sizes[len(sizes) // 2] < _SMALL_FILE_BYTES:
        logger.warning(
            "The median size %d B (< 50 MB) of %d Parquet files is small, %d B together: fewer, larger ones, by df.coalesce(n) "
            "or df.repartition(n), may be read faster. The first is %s",
            *(sizes[len(sizes) // 2], len(sizes), sum(sizes), url_list[0]),
        )
