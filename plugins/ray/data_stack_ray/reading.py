"""Datasets as Ray Datasets: lazy tasks that read blocks of samples."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import ray
import ray.data
from ray.data.block import BlockAccessor, BlockMetadata
from ray.data.datasource import Datasource, ReadTask
from ray.exceptions import RaySystemError

from data_stack.dataset.iterator import access_to
from data_stack.dataset.iterator.blocks import estimate_bytes
from data_stack.exception import ConfigError, StorageError
from data_stack.exchange.tables.table import NamedColumns

#: Size of the blocks that a task returns one after the other.
_BLOCK_BYTES = 32 << 20
_N_MEASURED = 8


def from_data_stack(
    iterator: Any,
    *,
    columns: Sequence[str] | None = None,
    override_num_blocks: int | None = None,
    **options: Any,
) -> ray.data.Dataset:
    """Return the samples of an iterator as a Ray Dataset. Nothing but a few samples is read now, and later only by Ray's tasks.

    ::

        train = from_data_stack(data_stack.load("s3://bucket/frames", split="train"))
        for batch in train.select_columns(["image", "label"]).iter_torch_batches(batch_size=256): ...

    A task reads a range of samples, whole blocks or row groups of the source where it has any, of the columns in use
    (``columns``, and those that ``select_columns`` leaves). It opens the source again by path or URL, so all nodes must reach it
    there, and need data_stack, this package and the modules that the stack uses. For a filter of rows that reads less, pass a
    ``ParquetDataset`` with ``filters``.

    Arrays of one shape are tensors; arrays of several shapes are tensors of variable shape; texts, bytes, numbers, dicts and
    lists are values of Arrow; other objects are pickled by Ray. The columns of tuple samples are called as in ``to_pandas()``:
    by the dataset's names, or ``sample``, ``target``, ``tag``, or ``column_0`` …; a bare sample is the column ``value``.
    Samples in the memory of this process are copied into Ray's object store, once.

    Args:
        iterator: any stack of iterators, or an object with ``len`` and ``[i]``.
        columns: names of columns; None for all.
        override_num_blocks: number of read tasks; None: Ray chooses, by the estimated size.
        options: of ``ray.data.read_datasource``: ``concurrency``, ``num_cpus``, ``memory`` …

    Raises:
        ConfigError: a column does not exist; or the iterator cannot be sent to other processes, for instance because it reads a
            store in the memory of this one.
    """
    source = _Samples(iterator, columns)
    dataset: ray.data.Dataset = ray.data.read_datasource(
        source, override_num_blocks=override_num_blocks, **options
    )
    return dataset


class _Samples(Datasource):
    """Read tasks for ranges of samples.

    Args:
        iterator: of the samples.
        columns: names of those to read; None for all.
    """

    def __init__(self, iterator: Any, columns: Sequence[str] | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Ray's
        named = NamedColumns(iterator)
        self._access, self._n_samples = access_to(named.iterator), len(named.iterator)
        self._projection_map = None if columns is None else {name: name for name in columns}
        positions = np.unique(
            np.linspace(0, max(self._n_samples - 1, 0), _N_MEASURED).astype(np.intp)
        )[: self._n_samples]
        batch: Any = self._access.batch(positions)
        keys = (
            list(batch)
            if isinstance(batch, dict)
            else range(len(batch))
            if isinstance(batch, tuple)
            else [None]
        )
        self._keys: dict[str, Any] = dict(zip(named.names, keys, strict=False))
        if unknown := [name for name in columns or () if name not in self._keys]:
            raise ConfigError(
                f"the samples have no column {unknown[0]!r:.80}; they have {', '.join(self._keys)}"
            )
        values = {name: batch if key is None else batch[key] for name, key in self._keys.items()}
        self._bytes = {
            name: estimate_bytes(column) / max(1, len(positions)) for name, column in values.items()
        }
        try:
            self._sent = ray.put(named.iterator)
        except Exception as error:  # an object cannot be pickled
            raise ConfigError(
                f"{named.iterator!r:.200} cannot be sent to other processes: {error!s:.500}"
            ) from error

    def get_name(self) -> str:
        return "DataStack"

    def supports_projection_pushdown(self) -> bool:
        return True

    def estimate_inmemory_data_size(self) -> int:
        return int(self._n_samples * self._bytes_of_sample())

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        size, keys = self._bytes_of_sample(), {name: self._keys[name] for name in self._names()}
        n_at_once = max(1, int(_BLOCK_BYTES / max(1, size)))
        tasks = []
        for start, stop in self._ranges(parallelism):
            n_bytes = int((stop - start) * size)
            metadata = BlockMetadata(
                num_rows=stop - start, size_bytes=n_bytes, input_files=None, exec_stats=None
            )
            read = functools.partial(_read, self._sent, keys, start, stop, n_at_once)
            tasks.append(ReadTask(read, metadata, per_task_row_limit=per_task_row_limit))
        return tasks

    def _names(self) -> list[str]:
        chosen = self.get_projection_map()
        return list(
            self._keys if chosen is None else chosen or [*self._keys][:1]
        )  # without columns, Ray counts the rows of one

    def _bytes_of_sample(self) -> float:
        return sum(self._bytes[name] for name in self._names())

    def _ranges(self, n_tasks: int) -> Iterator[tuple[int, int]]:
        """Ranges of about the same number of samples, which end where blocks of the source do."""
        ends = np.linspace(0, self._n_samples, max(1, min(n_tasks, self._n_samples)) + 1).astype(
            np.int64
        )
        if (lengths := self._access.blocks()) is not None:
            starts = np.concatenate([[0], np.cumsum(lengths)])
            ends = starts[np.searchsorted((starts[:-1] + starts[1:]) / 2, ends)]
        return ((start, stop) for start, stop in itertools.pairwise(ends.tolist()) if start < stop)


def _read(sent: Any, keys: dict[str, Any], start: int, stop: int, n_at_once: int) -> Iterator[Any]:
    """Blocks of Arrow of the samples from ``start`` to ``stop``, in a worker."""
    try:
        access = access_to(ray.get(sent))
    except (
        RaySystemError
    ) as error:  # a file is missing or damaged; this error of Ray's it would repeat without end
        raise StorageError(
            f"the dataset cannot be opened in a worker of Ray: {error!s:.2000}"
        ) from None
    parts = [
        np.arange(first, min(first + n_at_once, stop)) for first in range(start, stop, n_at_once)
    ]
    chosen = None if None in keys.values() else list(keys.values())
    for number, positions in enumerate(parts):
        columns = [access.batch(positions)] if chosen is None else access.columns(chosen, positions)
        if number + 1 < len(parts):
            access.prefetch(parts[number + 1], chosen)
        yield BlockAccessor.batch_to_arrow_block(dict(zip(keys, columns, strict=True)))
