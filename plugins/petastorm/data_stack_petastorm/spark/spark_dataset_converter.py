"""DataFrames of Spark as batches, with Petastorm's arguments and defaults.

:mod:`data_stack_spark` writes the files. Private functions have Petastorm's names, as its own tests
and programs after their example call them.
"""

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

#: The setting of a session that names the folder for all converters.
_CACHE_DIR_SETTING: Final = "petastorm.spark.converter.parentCacheDirUrl"

_DEFAULT_WORKERS: Final = 4
_DEFAULT_BATCH_SIZE: Final = 32

#: Below this median size of the files, a warning advises to write fewer.
_SMALL_FILE_BYTES: Final = 50 << 20

#: How long a mounted file system may take until it shows the files of an executor.
_FILE_AVAILABILITY_WAIT_TIMEOUT_SECS = 30
_POLL_SECONDS: Final = 0.1

#: The environment variable that a machine of Databricks has.
_DATABRICKS_VARIABLE: Final = "DATABRICKS_RUNTIME_VERSION"


class SparkDatasetConverter(data_stack_spark.SparkDatasetConverter):
    """The rows of a DataFrame as Parquet files, for batches of torch and TensorFlow.

    :func:`make_spark_converter` makes it. It pickles, so functions that Spark's executors or other
    processes run may use it.

    Attributes:
        cache_dir_url: URL of the folder.
        file_urls: URLs of the Parquet files in it, a list.
        dataset_size: number of rows, also ``len(converter)``.
        PARENT_CACHE_DIR_URL_CONF: name of the setting of a session that names the folder for all
            converters.
    """

    PARENT_CACHE_DIR_URL_CONF: Final = _CACHE_DIR_SETTING

    @contextlib.contextmanager
    def make_torch_dataloader(
        self,
        batch_size: int | None = _DEFAULT_BATCH_SIZE,
        num_epochs: int | None = None,
        workers_count: int | None = None,
        shuffling_queue_capacity: int = 0,
        data_loader_fn: Callable[..., Any] | None = None,
        **petastorm_reader_kwargs: Any,
    ) -> Iterator[Any]:
        """Make a torch loader for a ``with`` block, at whose end the reader is stopped.

        ::

            with converter.make_torch_dataloader(batch_size=256, num_epochs=1) as loader:
                for batch in loader:
                    train(batch["features"], batch["label"])

        Args:
            batch_size: rows of each batch; None: 32.
            num_epochs: epochs of the reader; None: endless.
            workers_count: workers of the reader; None: 4.
            shuffling_queue_capacity: minimum number of rows to shuffle together; 0: the reader's
                order.
            data_loader_fn: makes the loader from ``reader=``, ``batch_size=`` and
                ``shuffling_queue_capacity=``; None:
                :class:`data_stack_petastorm.pytorch.DataLoader`.
            petastorm_reader_kwargs: other arguments of
                :func:`data_stack_petastorm.make_batch_reader`, such as ``cur_shard`` and
                ``shard_count``, ``transform_spec``, ``seed``.

        Raises (at the beginning of the block):
            TypeError: an argument is unknown.
            ConfigError: an argument is out of range.
            RuntimeError: the files do not exist.
        """
        from data_stack_petastorm.pytorch import DataLoader

        make_loader = DataLoader if data_loader_fn is None else data_loader_fn
        if batch_size is None:
            batch_size = _DEFAULT_BATCH_SIZE
        with self._open_reader(num_epochs, workers_count, petastorm_reader_kwargs) as reader:
            loader = make_loader(
                reader=reader,
                batch_size=batch_size,
                shuffling_queue_capacity=shuffling_queue_capacity,
            )
            if hasattr(loader, "__exit__"):
                with loader:  # our loaders end their workers then
                    yield loader
            else:
                yield loader

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
        """Make a ``tf.data.Dataset`` of batches for a ``with`` block.

        A batch is a named tuple of tensors.

        Args:
            batch_size: rows of each batch; None: 32.
            prefetch: number of batches to prefetch; None: ``tf.data.AUTOTUNE``.
            num_epochs: epochs of the reader; None: endless.
            workers_count: workers of the reader; None: 4.
            shuffling_queue_capacity: rows of the buffer of ``tf.data.Dataset.shuffle``; None: the
                reader's order.
            petastorm_reader_kwargs: other arguments of
                :func:`data_stack_petastorm.make_batch_reader`.

        Raises (at the beginning of the block):
            TypeError, ConfigError, RuntimeError: as for :meth:`make_torch_dataloader`.
        """
        import tensorflow as tf

        from data_stack_petastorm.tf_utils import make_petastorm_dataset

        with self._open_reader(num_epochs, workers_count, petastorm_reader_kwargs) as reader:
            rows = make_petastorm_dataset(reader).unbatch()
            if shuffling_queue_capacity:
                rows = rows.shuffle(shuffling_queue_capacity)
            if prefetch is None:
                prefetch = tf.data.AUTOTUNE
            yield rows.batch(batch_size or _DEFAULT_BATCH_SIZE).prefetch(prefetch)

    @contextlib.contextmanager
    def _open_reader(
        self, num_epochs: int | None, workers_count: int | None, other_arguments: Mapping[str, Any]
    ) -> Iterator[Any]:
        """Open a reader of the row groups for a ``with`` block."""
        _check_rank_and_size_consistent_with_horovod(other_arguments)
        _wait_file_available(self.file_urls)
        if workers_count is None:
            workers_count = _DEFAULT_WORKERS
        with make_batch_reader(
            [readable_source(url) for url in self.file_urls],
            num_epochs=num_epochs,
            workers_count=workers_count,
            **other_arguments,
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
            ``petastorm.spark.converter.parentCacheDirUrl``; or the path or URL of a folder with
            Parquet, which is used as it is and which ``delete()`` keeps.
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
        if _DATABRICKS_VARIABLE in os.environ:
            url = _normalize_databricks_dbfs_url(
                url, f"on Databricks, paths must start with file:/dbfs/ or dbfs:/, got {url!r}"
            )
        converter = data_stack_spark.make_spark_converter(url)
    else:
        converter = data_stack_spark.make_spark_converter(
            df,
            parquet_row_group_size_bytes,
            compression_codec,
            dtype,
            cache_dir=_get_parent_cache_dir_url(),
        )
    _check_dataset_file_median_size(converter.file_urls)
    return SparkDatasetConverter(
        converter.cache_dir_url,
        list(converter.file_urls),
        converter.dataset_size,
        converter.is_own,
    )


# ---------------------------------------------------------------------- which shard is read


def _get_horovod_rank_and_size() -> tuple[int, int] | tuple[None, None]:
    """Return the rank of this process and the number of processes, as its launcher set them.

    Both are None for a process without a launcher, such as Horovod's or torchrun.
    """
    return launcher_shard() or (None, None)


def _check_rank_and_size_consistent_with_horovod(
    petastorm_reader_kwargs: Mapping[str, Any],
) -> bool:
    """Return whether the arguments select the shard of this process.

    A warning is logged if they do not.
    """
    rank, size = _get_horovod_rank_and_size()
    cur_shard = petastorm_reader_kwargs.get("cur_shard")
    shard_count = petastorm_reader_kwargs.get("shard_count")
    is_single = size is None or size == 1
    if is_single or (cur_shard, shard_count) == (rank, size):
        return True
    logger.warning(
        "rank %s of %s: this is one of several training processes, but cur_shard=%s and "
        "shard_count=%s; to read only its shard, pass cur_shard=%s, shard_count=%s",
        rank,
        size,
        cur_shard,
        shard_count,
        rank,
        size,
    )
    return False


# ---------------------------------------------------------------------- where the files lie


def _get_spark_session() -> SparkSession:
    """Return the session of this program.

    Raises:
        RuntimeError: this process is an executor.
    """
    if TaskContext.get() is not None:
        raise RuntimeError(
            "convert the DataFrame in the driver, and send the converter to the executors"
        )
    return spark_session()


def _is_spark_local_mode() -> bool:
    """Return whether Spark runs on this machine only."""
    master = str(_get_spark_session().sparkContext.master)
    return master.startswith("local")


def _get_parent_cache_dir_url() -> str:
    """Return the folder for all converters.

    Raises:
        ConfigError: the setting is missing, or is not a URL.
    """
    url = _get_spark_session().conf.get(_CACHE_DIR_SETTING, None)
    if url is None:
        raise ConfigError(
            f"Please set the spark config {_CACHE_DIR_SETTING} to the URL of a folder that the "
            "executors and all readers reach, such as 'file:///mnt/shared/cache'"
        )
    _check_parent_cache_dir_url(url)
    return url


def _check_url(dir_url: str) -> None:
    """Refuse a path that is not a URL: the executors may be on another machine.

    Raises:
        ConfigError: ``dir_url`` has no scheme.
    """
    if not urlsplit(dir_url).scheme:
        raise ConfigError(
            f"ambiguous scheme-less URL {dir_url!r}: write file:// for a folder of this machine"
        )


def _check_parent_cache_dir_url(dir_url: str) -> None:
    """Refuse a path that is not a URL; warn of a folder that not all nodes of Databricks share.

    The warning is logged.

    Raises:
        ConfigError: ``dir_url`` has no scheme.
    """
    _check_url(dir_url)
    if _DATABRICKS_VARIABLE not in os.environ:
        return
    path = local_path(dir_url)
    is_shared = not path or path.startswith("/dbfs/")
    if is_shared or _is_spark_local_mode():
        return
    logger.warning(
        "on a cluster of Databricks you should specify a dbfs fuse path, such as "
        "'file:/dbfs/cache', for %s: all nodes must see %r under one path",
        _CACHE_DIR_SETTING,
        path,
    )


def _normalize_databricks_dbfs_url(url: str, err_msg: str) -> str:
    """Return the URL of the local folder at which a ``dbfs:/`` URL of Databricks is mounted.

    Raises:
        ConfigError: ``url`` is not in that store, or has a host; the message is ``err_msg``.
    """
    if url.startswith(("file:/dbfs/", "file:///dbfs/")):
        return url
    scheme, _, path = url.partition(":")
    has_host = path.startswith("//") and not path.startswith("///")
    if scheme != "dbfs" or not path.startswith("/") or has_host:
        raise ConfigError(err_msg)
    return "file:/dbfs/" + path.lstrip("/")


def _wait_file_available(url_list: Sequence[str]) -> None:
    """Wait until this machine sees all files.

    A mounted file system may show files of an executor a little later.

    Raises:
        RuntimeError: some files do not appear within 30 seconds.
    """
    deadline = time.monotonic() + _FILE_AVAILABILITY_WAIT_TIMEOUT_SECS
    missing_urls = _missing_files(url_list)
    while missing_urls:
        if time.monotonic() > deadline:
            raise RuntimeError(
                "Timeout while waiting for all parquet-store files to appear at urls "
                f"{', '.join(missing_urls):.1000}: was the converter deleted, or can this machine "
                "not reach its folder?"
            )
        time.sleep(_POLL_SECONDS)
        missing_urls = _missing_files(missing_urls)


def _missing_files(urls: Sequence[str]) -> list[str]:
    """Return the URLs of files that do not exist; files of other stores are taken to exist."""
    missing_urls = []
    for url in urls:
        path = local_path(url)
        if path is not None and not os.path.exists(path):
            missing_urls.append(url)
    return missing_urls


def _check_dataset_file_median_size(url_list: Sequence[str]) -> None:
    """Log a warning if most files are small; sizes in other stores are not known."""
    sizes = []
    for url in url_list:
        path = local_path(url)
        if path is not None:
            sizes.append(os.path.getsize(path))
    if len(sizes) < 2:
        return
    median_size = sorted(sizes)[len(sizes) // 2]
    if median_size >= _SMALL_FILE_BYTES:
        return
    logger.warning(
        "The median size %d B (< 50 MB) of %d Parquet files is small, %d B in total. Fewer, larger "
        "files may be read faster: use df.coalesce(n) or df.repartition(n). The first file is %s",
        median_size,
        len(sizes),
        sum(sizes),
        url_list[0],
    )
