"""DataFrames of Spark as batches for training: written once as Parquet, read by the loader."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import platformdirs
from data_stack_petastorm.reader import make_batch_reader
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from data_stack.exception import ConfigError, StorageError
from data_stack.formats.parquet import ParquetDataset
from data_stack.loader import Loader
from data_stack.loader.ranks import launcher_shard
from data_stack.util.logger import logger
from data_stack.values.named_rows import row_type
from data_stack_spark.cache import delete_folder, files_and_rows, register_delete_dir_handler, write_once
from data_stack_spark.columns import PRECISIONS, convert_columns
from data_stack_spark.materialize import writing_settings
from data_stack_spark.session import local_path, readable_source

__all__ = [
    "PARENT_CACHE_DIR_URL_CONF",
    "SparkDatasetConverter",
    "is_shard_of_rank",
    "make_spark_converter",
    "rank_and_size",
    "register_delete_dir_handler",
]

#: The setting of a session that names the folder for converted DataFrames, as in Petastorm.
PARENT_CACHE_DIR_URL_CONF: Final = "petastorm.spark.converter.parentCacheDirUrl"

_OF_LOADER: Final = ("drop_last", "prefetch", "transform", "collate", "timeout_seconds")


@dataclass(frozen=True)
class SparkDatasetConverter:
    """The rows of a DataFrame as Parquet, for batches in any number of trainings; made by :func:`make_spark_converter`.

    It pickles, and other processes (those of Horovod, say) use it without Spark.

    Attributes:
        cache_dir_url: of the folder.
        file_urls: of the Parquet files in it.
        dataset_size: rows.
    """

    PARENT_CACHE_DIR_URL_CONF = PARENT_CACHE_DIR_URL_CONF

    cache_dir_url: str
    file_urls: Sequence[str]
    dataset_size: int
    is_own: bool = True

    def __len__(self) -> int:
        return self.dataset_size

    def dataset(self, columns: Iterable[Any] | None = None, filters: Any = None, **options: Any) -> ParquetDataset:
        """The rows as a :class:`~data_stack.formats.parquet.ParquetDataset`, which takes these arguments.

        Raises:
            ResourceNotFoundError: the folder has been deleted.
        """
        return ParquetDataset(readable_source(self.cache_dir_url), columns, filters, **options)

    def make_torch_dataloader(
        self,
        batch_size: int = 32,
        num_epochs: int | None = 1,
        workers_count: int | None = None,
        shuffling_queue_capacity: int = 0,
        data_loader_fn: Callable[..., Any] | None = None,
        **reader: Any,
    ) -> contextlib.AbstractContextManager[Any]:
        """Batches as torch tensors: a loader, to be used in a ``with`` block, of dicts of a tensor for each column.

        ::

            with converter.make_torch_dataloader(batch_size=256, num_epochs=10, shuffling_queue_capacity=100_000) as loader:
                for batch in loader:
                    train(batch["features"], batch["label"])

        It has the methods of :class:`~data_stack.loader.loader.Loader` (``len``, ``state_dict``, ``set_epoch`` …). Columns of
        text or dates are lists of values, floats without a value are NaN, and integers without a value are an error.

        Args:
            batch_size: rows of each batch.
            num_epochs: epochs of an iteration; None: endless, which is Petastorm's default.
            workers_count: None: one for each processor.
            shuffling_queue_capacity: number of rows that are shuffled together, rounded up to whole row groups; at least one.
            data_loader_fn: makes the loader from ``reader=``, ``batch_size=`` and ``shuffling_queue_capacity=``, as Petastorm's
                classes do; the reader comes from :func:`data_stack_petastorm.make_batch_reader`.
            reader: arguments of :func:`data_stack_petastorm.make_batch_reader`: ``seed`` (default 0), ``shuffle_row_groups``
                (True: shuffle row groups, and the rows in each, anew in each epoch), ``cur_shard`` and ``shard_count`` (one
                shard, with equally many steps in each), ``uneven``, ``schema_fields``, ``predicate``, ``filters`` …; and of the
                loader: ``drop_last``, ``prefetch``, ``transform``, ``collate``,
                ``timeout_seconds``.

        Raises:
            TypeError: there is no such argument.
            ConfigError: one is out of range.
            ResourceNotFoundError: the folder has been deleted.
            ImportError: torch is not installed.
        """
        reader = _with_shard(reader)
        if data_loader_fn is not None:
            return self._with_reader(
                data_loader_fn, batch_size, shuffling_queue_capacity, {"num_epochs": num_epochs, **_pool(workers_count), **reader}
            )
        batches: contextlib.AbstractContextManager[Any] = self._loader(
            batch_size, num_epochs, workers_count, shuffling_queue_capacity, reader
        ).torch()
        return batches

    def make_tf_dataset(
        self,
        batch_size: int | None = None,
        prefetch: int | None = None,
        num_epochs: int | None = 1,
        workers_count: int | None = None,
        shuffling_queue_capacity: int | None = None,
        **reader: Any,
    ) -> contextlib.AbstractContextManager[Any]:
        """Batches as a ``tf.data.Dataset``, to be used in a ``with`` block: of named tuples of a tensor for each column.

        ::

            with converter.make_tf_dataset(batch_size=256) as dataset:
                model.fit(dataset.map(lambda row: (row.features, row.label)))

        Args:
            batch_size: rows of each batch; None: 32.
            prefetch: batches that are made ahead; None: ``tf.data.AUTOTUNE``.
            num_epochs: as for :meth:`make_torch_dataloader`, like all other arguments.
            workers_count: likewise.
            shuffling_queue_capacity: likewise; None: 0.
            reader: likewise.

        Raises:
            ConfigError, ResourceNotFoundError: as :meth:`make_torch_dataloader`.
            ImportError: TensorFlow is not installed.
        """
        reader = _with_shard(reader)
        loader = self._loader(batch_size or 32, num_epochs, workers_count, shuffling_queue_capacity or 0, reader)
        return _tf_dataset(loader, prefetch)

    def delete(self) -> None:
        """Delete the folder that the converter wrote. The folder of a converter of a path is not deleted."""
        if self.is_own:
            delete_folder(self.cache_dir_url)
        else:
            logger.info("%s was not written by a converter; it stays", self.cache_dir_url)

    # ------------------------------------------------------------------ inside

    def _loader(
        self, batch_size: int, num_epochs: int | None, workers_count: int | None, capacity: int, options: dict[str, Any]
    ) -> Loader:
        of_reader = {name: value for name, value in options.items() if name not in _OF_LOADER}
        of_loader = {name: value for name, value in options.items() if name in _OF_LOADER}
        of_reader["seed"] = 0 if of_reader.get("seed") is None else of_reader["seed"]
        of_reader.setdefault("shuffle_rows", of_reader.get("shuffle_row_groups", True))
        if "reader_pool_type" not in of_reader:
            of_loader |= {"workers": workers_count, "worker_kind": "auto"}
        reader = make_batch_reader(
            readable_source(self.cache_dir_url), num_epochs=num_epochs, **{**_pool(workers_count), **of_reader}
        )
        return reader.loader(batch_size, shuffling_queue_capacity=capacity, **of_loader)

    @contextlib.contextmanager
    def _with_reader(
        self, data_loader_fn: Callable[..., Any], batch_size: int, capacity: int, reader: dict[str, Any]
    ) -> Iterator[Any]:
        with make_batch_reader(list(self.file_urls), **reader) as rows:
            yield data_loader_fn(reader=rows, batch_size=batch_size, shuffling_queue_capacity=capacity)


def make_spark_converter(
    df: DataFrame | str,
    parquet_row_group_size_bytes: int = 32 << 20,
    compression_codec: str | None = None,
    dtype: str | None = None,
    *,
    cache_dir: str | os.PathLike[str] | None = None,
) -> SparkDatasetConverter:
    """Write a DataFrame as Parquet, once, for batches of torch and TensorFlow.

    ::

        converter = make_spark_converter(df, cache_dir="file:///mnt/shared/cache")
        len(converter)
        with converter.make_torch_dataloader(batch_size=256) as loader: ...
        converter.delete()

    A process writes the same DataFrame with the same options once: one with the same semantics (``DataFrame.sameSemantics``) and
    unchanged input files. ``delete()`` makes the next converter write anew.

    The files are deleted by :meth:`SparkDatasetConverter.delete`, or when this process ends; a process that is killed leaves
    them. To keep files, write them with Spark and make a converter of their path.

    Args:
        df: a DataFrame; or the path of a folder with Parquet, which is used as it is, and stays.
        parquet_row_group_size_bytes: of each row group, as Spark counts them: before compression.
        compression_codec: "snappy", "gzip", "lz4", "zstd" …; None: uncompressed.
        dtype: "float32" or "float64" for all floating-point numbers; None leaves them as they are (Petastorm's default is
            "float32"). With "float32", columns that lose precision are logged.
        cache_dir: a path, or a URL of any file system that Spark writes to, which all readers reach; None: the setting
            ``petastorm.spark.converter.parentCacheDirUrl`` of the session, or else, in local mode, the user's cache.

    Raises:
        ConfigError: an argument is wrong, or no folder is named.
        StorageError: the files could not be written, for example because Parquet lacks the type of a column.
        ResourceNotFoundError: there is no Parquet at the path.
    """
    if dtype not in PRECISIONS:
        raise ConfigError(f"dtype is None, 'float32' or 'float64', not {dtype!r:.40}")
    codec, size = compression_codec or "uncompressed", parquet_row_group_size_bytes
    if type(size) is not int or not 0 < size < 1 << 31:
        raise ConfigError(f"parquet_row_group_size_bytes is a number of bytes below 2 GiB, not {size!r:.40}")
    if isinstance(df, (str, os.PathLike)):
        if dtype is not None or compression_codec is not None:
            raise ConfigError("a path is used as it is; to convert it, give spark.read.parquet(path)")
        return _of_path(os.fspath(df))
    parent = _cache_url(cache_dir, df.sparkSession)
    frame = write_once(df, parent, (size, codec, dtype), lambda url: _write(df, url, size, codec, dtype))
    return SparkDatasetConverter(frame.url, tuple(f"{frame.url}/{file}" for file in frame.files), frame.n_rows)


def _write(df: DataFrame, url: str, row_group_bytes: int, codec: str, dtype: str | None) -> None:
    writer = convert_columns(df, dtype).write.option("compression", codec).option("parquet.block.size", row_group_bytes)
    # row groups of wide rows have few rows; by default Parquet checks the size every 100 rows
    writer = writer.option("parquet.page.size.row.check.min", 3).option("parquet.summary.metadata.level", "NONE")
    try:
        with writing_settings(df.sparkSession):
            writer.parquet(url)
    except (PySparkException, Py4JJavaError) as error:  # Spark 3.5 raises the second where a job fails
        reason = str(error.java_exception) if isinstance(error, Py4JJavaError) else str(error)
        raise StorageError(f"Spark could not write the DataFrame to {url}: {reason:.1000}") from error


def _of_path(path: str) -> SparkDatasetConverter:
    local = local_path(path)
    url = path.rstrip("/") if local is None else Path(local).as_uri()
    files, n_rows = files_and_rows(path)
    return SparkDatasetConverter(url, tuple(f"{url}/{file}" for file in files), n_rows, is_own=False)


def _cache_url(cache_dir: str | os.PathLike[str] | None, spark: SparkSession) -> str:
    if cache_dir is not None:
        return os.fspath(cache_dir)
    found = spark.conf.get(PARENT_CACHE_DIR_URL_CONF, None) or spark.sparkContext.getConf().get(PARENT_CACHE_DIR_URL_CONF)
    if found:
        return found
    if str(spark.sparkContext.master).startswith("local"):
        return os.path.join(platformdirs.user_cache_dir("data_stack"), "spark_converter")
    raise ConfigError(
        f"a converter needs a folder that Spark's executors and all readers reach: give cache_dir=…, or "
        f"spark.conf.set({PARENT_CACHE_DIR_URL_CONF!r}, 'hdfs:///…')"
    )


# ------------------------------------------------------------------ how it is read


def _pool(workers_count: int | None) -> dict[str, Any]:
    return {} if workers_count is None else {"workers_count": workers_count}


def rank_and_size() -> tuple[int, int] | tuple[None, None]:
    """Rank of this process and number of processes of a training, as its launcher says; or Nones."""
    return launcher_shard() or (None, None)


def is_shard_of_rank(reader: Mapping[str, Any]) -> bool:
    """Whether the arguments ask for the shard of this process; logs a warning if it is one of several, and they do not."""
    rank, size = rank_and_size()
    shard = reader.get("cur_shard"), reader.get("shard_count")
    if size is None or size == 1 or shard == (rank, size):
        return True
    logger.warning(
        "rank %s of %s: this is one of several training processes, but cur_shard=%s and shard_count=%s; to read only its shard: "
        "cur_shard=%s, shard_count=%s",
        *(rank, size, *shard, rank, size),
    )
    return False


@contextlib.contextmanager
def _tf_dataset(loader: Loader, prefetch: int | None) -> Iterator[Any]:
    import tensorflow as tf

    with loader:
        batches = loader.tensorflow().dataset()
        names = tuple(batches.element_spec)
        row = row_type("Row", names)
        named = batches.map(lambda batch: row(*[batch[name] for name in names]))
        yield named.prefetch(tf.data.AUTOTUNE if prefetch is None else prefetch)


def _with_shard(reader: dict[str, Any]) -> dict[str, Any]:
    """Arguments of a reader that name a shard: all rows if none was given, about which there is a warning here."""
    is_shard_of_rank(reader)
    if reader.get("cur_shard") is None and reader.get("shard_count") is None:
        return {**reader, "cur_shard": 0, "shard_count": 1}
    return reader
