"""Datasets as Ray Datasets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ray.data

from data_stack_ray.samples_source import SamplesSource


def from_data_stack(
    iterator: Any,
    *,
    columns: Sequence[str] | None = None,
    override_num_blocks: int | None = None,
    **options: Any,
) -> ray.data.Dataset:
    """Return the samples of an iterator as a Ray Dataset.

    This call reads a few samples, to find their columns and sizes. Ray's tasks read the others. ::

        train = from_data_stack(data_stack.load("s3://bucket/frames", split="train"))
        chosen = train.select_columns(["image", "label"])
        for batch in chosen.iter_torch_batches(batch_size=256):
            ...

    A task reads a range of samples: whole blocks or row groups, if the source has any. It reads
    only the columns that are used: ``columns``, or those that ``select_columns`` leaves. It opens
    the source again by path or URL. So all nodes must reach the source there, and need data_stack,
    this package and the modules that the stack uses. To read only some rows, pass a
    ``ParquetDataset`` with ``filters``.

    Arrays of one shape are tensors; arrays of several shapes are tensors of variable shape; texts,
    bytes, numbers, dicts and lists are values of Arrow; other objects are pickled by Ray. The
    columns of tuple samples are called as in ``to_pandas()``: by the dataset's names, or
    ``sample``, ``target``, ``tag``, or ``column_0`` …; a bare sample is the column ``value``.
    Samples in the memory of this process are copied into Ray's object store, once.

    Args:
        iterator: any stack of iterators, or an object with ``len`` and ``[i]``.
        columns: names of columns; None for all.
        override_num_blocks: number of read tasks; None: Ray chooses, by the estimated size.
        options: arguments of ``ray.data.read_datasource``, such as ``concurrency`` and ``memory``.

    Raises:
        ConfigError: a column does not exist; or the iterator cannot be sent to other processes, for
            instance because it reads a store in the memory of this one.
    """
    source = SamplesSource(iterator, columns)
    dataset: ray.data.Dataset = ray.data.read_datasource(
        source, override_num_blocks=override_num_blocks, **options
    )
    return dataset
