"""Reads schemas from the metadata of datasets, under the names of Petastorm's module."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from data_stack.exception import ConfigError
from data_stack.formats.parquet.files import find_files
from data_stack.formats.parquet.footers import Footers
from data_stack.formats.parquet.inference import read_schema
from data_stack.formats.parquet.schema import SCHEMA_KEY, Schema
from data_stack_petastorm.fs_utils import FilesystemResolver
from data_stack_petastorm.parquet_metadata import ROW_GROUPS_KEY, UNISCHEMA_KEY
from data_stack_petastorm.schemas import as_schema, as_unischema
from data_stack_petastorm.unischema import Unischema

__all__ = [
    "ROW_GROUPS_PER_FILE_KEY",
    "UNISCHEMA_KEY",
    "PetastormMetadataError",
    "PetastormMetadataGenerationError",
    "footers_of",
    "get_schema",
    "get_schema_from_dataset_url",
    "infer_or_load_unischema",
    "materialize_dataset",
]

#: Petastorm's name for the key of the numbers of row groups.
ROW_GROUPS_PER_FILE_KEY = ROW_GROUPS_KEY


class PetastormMetadataError(ConfigError):
    """The metadata of a dataset has no schema."""


class PetastormMetadataGenerationError(ConfigError):
    """Petastorm could not generate metadata. Only programs use it: data_stack never raises it."""


def materialize_dataset(
    spark: Any,
    dataset_url: str,
    schema: Unischema | Schema,
    row_group_size_mb: float | None = None,
    use_summary_metadata: bool = False,
    filesystem_factory: Callable[[], Any] | None = None,
) -> AbstractContextManager[None]:
    """Return a context in which Spark writes Parquet files that become a dataset with a schema.

    It needs the package ``lazy-data-stack-spark``.

    ::

        with materialize_dataset(spark, url, Frames, row_group_size_mb=64):
            samples = spark.sparkContext.parallelize(range(1000)).map(make_sample)
            rows = samples.map(lambda sample: dict_to_spark_row(Frames, sample))
            spark.createDataFrame(rows, Frames.as_spark_schema()).write.parquet(url)

    After the ``with`` block, the driver reads the footers of all files and writes the manifest and
    ``_common_metadata``. Petastorm can read the dataset as well, unless the schema has codecs of
    your own.

    Args:
        spark: the session that writes.
        dataset_url: the URL of the folder.
        schema: the schema of the rows.
        row_group_size_mb: the maximum size of a row group in MiB; None: that of the session.
        use_summary_metadata: whether Spark also writes all footers into ``_metadata``.
        filesystem_factory: a function that returns the file system from which to read the footers;
            None: the file system of the URL.

    Raises:
        ImportError: ``data_stack_spark`` is missing: install ``plugins/spark``.
        ConfigError: Spark has no type for a field, or files do not fit the schema.
        ResourceNotFoundError: there are no Parquet files after the block.
    """
    from data_stack_spark import materialize_dataset as materialize_with_spark

    context: AbstractContextManager[None] = materialize_with_spark(
        spark,
        dataset_url,
        as_schema(schema),
        row_group_size_mb,
        use_summary_metadata,
        filesystem_factory,
    )
    return context


def get_schema(dataset: Any) -> Unischema:
    """Return the schema in the metadata of a dataset; a pickled schema is read, but not run.

    Args:
        dataset: URL or path of the dataset, or a ``ParquetDataset`` of pyarrow.

    Raises:
        PetastormMetadataError: the metadata has no schema.
        ResourceNotFoundError: the dataset does not exist.
        DatasetFileCorruptError: the metadata is damaged.
    """
    return _schema_of(footers_of(dataset))


def get_schema_from_dataset_url(
    dataset_url_or_urls: Any,
    hdfs_driver: str = "libhdfs3",
    storage_options: Mapping[str, Any] | None = None,
    filesystem: Any = None,
) -> Unischema:
    """Return the schema in the metadata of a dataset.

    Args:
        dataset_url_or_urls: URL or path of the dataset, or a list of those of its files.
        hdfs_driver: ignored.
        storage_options: arguments of fsspec's file system.
        filesystem: a file system of pyarrow or fsspec with the dataset.

    Raises:
        PetastormMetadataError, ResourceNotFoundError, DatasetFileCorruptError: as for
            :func:`get_schema`.
    """
    if storage_options and filesystem is None:
        first_url = dataset_url_or_urls
        if isinstance(dataset_url_or_urls, list):
            first_url = dataset_url_or_urls[0]
        resolver = FilesystemResolver(first_url, storage_options=storage_options)
        filesystem = resolver.filesystem()
    files = find_files(dataset_url_or_urls, filesystem=filesystem)
    return _schema_of(Footers(files, lazily=True))


def infer_or_load_unischema(dataset: Any) -> Unischema:
    """Return the schema in the metadata of a dataset, or else one inferred from its columns.

    Args:
        dataset: as for :func:`get_schema`.
    """
    try:
        return get_schema(dataset)
    except PetastormMetadataError:
        return as_unischema(read_schema(footers_of(dataset)))


def footers_of(dataset: Any) -> Footers:
    """Return the footers of a dataset.

    Args:
        dataset: URL or path of the dataset, a ``ParquetDataset`` of pyarrow, or the footers
            themselves.
    """
    if isinstance(dataset, Footers):
        return dataset
    if isinstance(dataset, pq.ParquetDataset):
        filesystem: pa.fs.FileSystem = dataset.filesystem
        files = find_files(_folder_of(dataset.files), filesystem=filesystem)
    else:
        files = find_files(dataset)
    return Footers(files, lazily=True)


def _folder_of(paths: Sequence[str]) -> str:
    """Return the folder of a dataset, whose files may lie in folders of partitions (``"a=1"``).

    Args:
        paths: the paths of all files.
    """
    folder = os.path.commonpath([os.path.dirname(path) for path in paths])
    while "=" in os.path.basename(folder):  # all files are in one partition
        folder = os.path.dirname(folder)
    return folder


def _schema_of(footers: Footers) -> Unischema:
    """Return the schema in the metadata of a dataset.

    Raises:
        PetastormMetadataError: the metadata has no schema.
    """
    if SCHEMA_KEY not in footers.metadata and UNISCHEMA_KEY not in footers.metadata:
        raise PetastormMetadataError(
            f"Could not find the unischema in the metadata of {footers.files.folder.name}: "
            "generate_petastorm_metadata(None, url, 'module.Schema') writes it; make_batch_reader "
            "needs none"
        )
    return as_unischema(read_schema(footers))
