"""Ray Datasets as datasets in a store."""

from __future__ import annotations

from typing import Any

import ray.data

from data_stack import StorageConnector, default_storage, storage_connector_from_url
from data_stack.exception import ConfigError, DataStackError
from data_stack.io.storage_connectors.memory import InMemoryStorageConnector
from data_stack_ray.dataset_sink import DatasetSink, Format
from data_stack_ray.unfinished_dataset import UnfinishedDataset


def write(
    dataset: ray.data.Dataset,
    *,
    name: str,
    storage: Any = None,
    format: Format = "records",  # noqa: A002  # what load() calls it
    schema: Any = None,
    min_rows_per_file: int | None = None,
    **options: Any,
) -> int:
    """Write a Ray Dataset into a store, from where :func:`data_stack.load` loads it.

    ::

        write(frames, storage="s3://bucket/sets", name="frames/train")
        data_stack.load("s3://bucket/sets/frames", split="train")

    Ray's tasks write in parallel. Each write task makes a shard of records, or Parquet files, which
    readers do not see. When all tasks have succeeded, this process renames the files, and writes
    the manifest last. A task that fails, or that Ray repeats, leaves no files. If this process is
    killed, its files stay invisible, and the next ``write`` of the same name removes them.

    Rows are in the order of Ray's blocks. That is the order of the dataset if
    ``ExecutionOptions.preserve_order`` is set.

    Args:
        dataset: rows with a value for each column.
        name: name of the dataset in the store, or of a split of a dataset: ``"frames/train"``.
            Existing datasets are not overwritten.
        storage: a connector, URL or path that all nodes reach; None for the default store.
        format: "records" for random access to any values, "parquet" for nulls, and for tools that
            read tables.
        schema: None to infer it in each task, from the first rows; otherwise for records a type for
            each column (``{"image": "jpg", "label": "i64"}``, see ``RecordWriter``), for Parquet a
            ``Schema``.
        min_rows_per_file: minimum number of rows that a task writes; None: those of a block of Ray.
        options: arguments of ``write_datasink``: ``concurrency``, ``ray_remote_args``.

    Returns:
        The number of rows.

    Raises:
        ConfigError: there is a dataset of that name, the store is in the memory of this process,
            there are no rows, or a value fits no column.
        StorageConflictError: another process is writing the dataset.
        StorageError: the store refuses a file.
    """
    if format not in ("records", "parquet"):
        raise ConfigError(f"format must be 'records' or 'parquet', got {format!r:.40}")
    unfinished = UnfinishedDataset(_find_store(storage), name.strip("/"))
    sink = DatasetSink(unfinished, format, schema, min_rows_per_file)
    with unfinished.writing():
        try:
            dataset.write_datasink(sink, **options)
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, DataStackError):
                raise error.cause from None
            raise
    return sink.n_rows


def _find_store(storage: Any) -> StorageConnector:
    """Return the connector of a store that Ray's workers reach.

    Args:
        storage: a connector, URL or path; None for the default store.

    Raises:
        ConfigError: the store is in the memory of this process.
    """
    connector = storage
    if connector is None:
        connector = default_storage()
    elif not isinstance(connector, StorageConnector):
        connector = storage_connector_from_url(connector)
    if isinstance(connector, InMemoryStorageConnector):
        raise ConfigError(
            f"Ray's workers cannot reach {connector!r}, which is in the memory of this process: "
            "use a folder or a server"
        )
    return connector
