"""A source of Ray Data: lazy tasks that read ranges of samples."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import ray
from ray.data.block import BlockAccessor, BlockMetadata
from ray.data.datasource import Datasource, ReadTask
from ray.exceptions import RaySystemError

from data_stack.dataset.iterator import SampleAccess, access_to
from data_stack.dataset.iterator.blocks import estimate_bytes
from data_stack.exception import ConfigError, StorageError
from data_stack.exchange.tables.table import NamedColumns

#: Size of the blocks that a task returns one after the other.
_BLOCK_BYTES = 32 << 20

#: Number of samples that are read to estimate sizes.
_N_MEASURED = 8


class SamplesSource(Datasource):
    """Read tasks for ranges of samples.

    Args:
        iterator: the samples: any stack of iterators, or an object with ``len`` and ``[i]``.
        columns: names of the columns to read; None for all.

    Raises:
        ConfigError: a column does not exist, or the iterator cannot be sent to other processes.
    """

    _access: SampleAccess
    _n_samples: int
    #: The key of each column in a batch, by its name. A bare sample has the key None.
    _keys: dict[str, Any]
    #: The mean size of a value of each column, by its name.
    _value_bytes: dict[str, float]
    #: Ray's reference to the iterator.
    _sent_iterator: Any
    #: Ray's own attribute: the new name of each column to read, by its name; None for all.
    _projection_map: dict[str, str] | None

    def __init__(self, iterator: Any, columns: Sequence[str] | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Ray's
        named_columns = NamedColumns(iterator)
        self._access = access_to(named_columns.iterator)
        self._n_samples = len(named_columns.iterator)
        self._projection_map = None
        if columns is not None:
            self._projection_map = {name: name for name in columns}

        # A few samples, spread over all, tell the columns and their sizes.
        positions = _spread_positions(self._n_samples)
        batch: Any = self._access.batch(positions)
        self._keys = dict(zip(named_columns.names, _keys_of_batch(batch), strict=False))
        for name in columns or ():
            if name not in self._keys:
                raise ConfigError(
                    f"the samples have no column {name!r:.80}; they have {', '.join(self._keys)}"
                )
        self._value_bytes = {}
        for name, key in self._keys.items():
            values = batch
            if key is not None:
                values = batch[key]
            self._value_bytes[name] = estimate_bytes(values) / max(1, len(positions))

        try:
            self._sent_iterator = ray.put(named_columns.iterator)
        except Exception as error:  # an object cannot be pickled
            raise ConfigError(
                f"{named_columns.iterator!r:.200} cannot be sent to other processes: {error!s:.500}"
            ) from error

    def get_name(self) -> str:
        """Return the name of this source in Ray's interface."""
        return "DataStack"

    def supports_projection_pushdown(self) -> bool:
        """Tell Ray that tasks only read the columns that it uses."""
        return True

    def estimate_inmemory_data_size(self) -> int:
        """Return the estimated size of all samples in bytes."""
        return int(self._n_samples * self._sample_bytes())

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """Return the tasks that read all samples, about ``parallelism`` of them."""
        sample_bytes = self._sample_bytes()
        n_at_once = max(1, int(_BLOCK_BYTES / max(1, sample_bytes)))
        keys = {name: self._keys[name] for name in self._names_to_read()}
        tasks = []
        for samples in split_samples(self._n_samples, parallelism, self._access.blocks()):
            metadata = BlockMetadata(
                num_rows=len(samples),
                size_bytes=int(len(samples) * sample_bytes),
                input_files=None,
                exec_stats=None,
            )
            read = functools.partial(_read, self._sent_iterator, keys, samples, n_at_once)
            tasks.append(ReadTask(read, metadata, per_task_row_limit=per_task_row_limit))
        return tasks

    def _names_to_read(self) -> list[str]:
        """Return the names of the columns that Ray uses."""
        projection = self.get_projection_map()
        if projection is None:
            return list(self._keys)
        if not projection:
            # Ray counts the rows: those of one column will do.
            return list(self._keys)[:1]
        return list(projection)

    def _sample_bytes(self) -> float:
        """Return the mean size of what is read of a sample."""
        return sum(self._value_bytes[name] for name in self._names_to_read())


def _spread_positions(n_samples: int) -> npt.NDArray[np.intp]:
    """Return the positions of a few samples, spread over all."""
    if n_samples == 0:
        return np.empty(0, np.intp)
    return np.unique(np.linspace(0, n_samples - 1, _N_MEASURED).astype(np.intp))


def _keys_of_batch(batch: Any) -> list[Any]:
    """Return the keys of the columns in a batch; None for the values of bare samples."""
    if isinstance(batch, dict):
        return list(batch)
    if isinstance(batch, tuple):
        return list(range(len(batch)))
    return [None]


def split_samples(
    n_samples: int, n_ranges: int, block_lengths: npt.NDArray[np.int64] | None
) -> list[range]:
    """Split samples into ranges of about the same length.

    Args:
        n_samples: number of samples.
        n_ranges: number of ranges; there may be fewer.
        block_lengths: the lengths of the blocks of the source, which stay whole; None without
            blocks.
    """
    n_bounds = max(1, min(n_ranges, n_samples)) + 1
    bounds = np.linspace(0, n_samples, n_bounds).astype(np.int64)
    if block_lengths is not None:
        # Each bound moves to the nearest bound of a block.
        block_bounds = np.concatenate([[0], np.cumsum(block_lengths)])
        block_middles = (block_bounds[:-1] + block_bounds[1:]) / 2
        bounds = block_bounds[np.searchsorted(block_middles, bounds)]
    ranges = [range(start, end) for start, end in itertools.pairwise(bounds.tolist())]
    return [samples for samples in ranges if samples]


def _read(
    sent_iterator: Any, keys: dict[str, Any], samples: range, n_at_once: int
) -> Iterator[Any]:
    """Yield samples as blocks of Arrow, in a worker.

    Args:
        sent_iterator: Ray's reference to the iterator.
        keys: the keys of the columns to read, by name. Bare samples have one column, with the key
            None.
        samples: the positions of the samples.
        n_at_once: number of samples of a block.

    Raises:
        StorageError: the dataset cannot be opened.
    """
    try:
        access = access_to(ray.get(sent_iterator))
    except RaySystemError as error:
        # A file is missing or damaged. Ray repeats a task with its own error without end.
        raise StorageError(
            f"the dataset cannot be opened in a worker of Ray: {error!s:.2000}"
        ) from None

    are_bare = None in keys.values()
    keys_to_read: list[Any] | None = None
    if not are_bare:
        keys_to_read = list(keys.values())
    parts = []
    for start in range(samples.start, samples.stop, n_at_once):
        stop = min(start + n_at_once, samples.stop)
        parts.append(np.arange(start, stop))

    for number, positions in enumerate(parts):
        columns: Sequence[Any]
        if keys_to_read is None:
            columns = [access.batch(positions)]
        else:
            columns = access.columns(keys_to_read, positions)
        # The next part arrives while Ray stores this one.
        if number + 1 < len(parts):
            access.prefetch(parts[number + 1], keys_to_read)
        block = dict(zip(keys, columns, strict=True))
        yield BlockAccessor.batch_to_arrow_block(block)
