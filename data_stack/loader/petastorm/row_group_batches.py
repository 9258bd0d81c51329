"""The rows of row groups, or of parts of them, as one sample each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator import DatasetIterator, DatasetIteratorIF, IndexArray, sample_or_view
from data_stack.dataset.iterator.iterator import adapted, batch_at, checked_indices
from data_stack.dataset.randomness.seeds import derived_generator, derived_seed
from data_stack.exception import ConfigError

__all__ = ["RowGroupBatches", "parts_of_blocks"]


class RowGroupBatches(DatasetIterator):
    """Sample ``i`` is ``read_batch`` of the rows of block ``i``: columns, as many rows as the block has.

    Args:
        dataset_iterator: the rows; it stays the caller's.
        lengths: of the blocks, in order, shape ``(n_blocks,)``; together all rows.
        seed: for the rows of each block in a random order, another one in each epoch; None: in their order.
        epoch: whose order.

    Raises:
        ConfigError: the blocks have another number of rows together.
    """

    _layer_name = "row_group_batches"

    def __init__(
        self, dataset_iterator: DatasetIteratorIF, lengths: npt.ArrayLike, *, seed: int | None = None, epoch: int = 0
    ) -> None:
        self._dataset_iterator, self._source = dataset_iterator, adapted(dataset_iterator)
        self._lengths = np.asarray(lengths, dtype=np.int64)
        if self._lengths.ndim != 1 or (self._lengths < 0).any() or int(self._lengths.sum()) != len(self._source):
            raise ConfigError(f"the blocks have the {len(self._source)} rows together, not {lengths!r:.80}")
        self._ends = np.cumsum(self._lengths)
        self._seed, self._epoch = seed, epoch

    def __len__(self) -> int:
        return len(self._lengths)

    def __getitem__(self, index: Any) -> Any:
        """The columns of a block for an int; a view for a slice or an index array."""
        if type(index) is not int or not 0 <= index < len(self._lengths):
            return sample_or_view(self, index)
        end, length = int(self._ends[index]), int(self._lengths[index])
        rows = np.arange(end - length, end, dtype=np.intp)
        if self._seed is not None:
            rows = derived_generator(derived_seed("rows of blocks", self._seed, self._epoch), index).permutation(rows)
        return batch_at(self._source, rows)

    def __getitems__(self, indices: IndexArray) -> list[Any]:
        """The columns of several blocks, one by one."""
        return [self[index] for index in checked_indices(indices, len(self)).tolist()]

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        """The iterator of the rows."""
        return [self._dataset_iterator]

    def _arguments(self) -> dict[str, Any]:
        arguments: dict[str, Any] = {"lengths": self._lengths}
        return arguments if self._seed is None else {**arguments, "seed": self._seed, "epoch": self._epoch}

    @classmethod
    def _rebuilt(cls, underlying: list[Any], arguments: Mapping[str, Any]) -> DatasetIteratorIF:
        (rows,) = underlying
        return cls(rows, **arguments)


def parts_of_blocks(lengths: npt.NDArray[np.int64], n_parts: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Blocks cut into parts that differ by one row at most.

    Returns:
        The lengths of all parts that have rows, in order; and of each block, how many it has.
    """
    n_of_each = np.minimum(np.maximum(lengths, 1), n_parts)
    each, n_over = np.divmod(np.repeat(lengths, n_of_each), np.repeat(n_of_each, n_of_each))
    place = np.arange(len(each)) - np.repeat(np.cumsum(n_of_each) - n_of_each, n_of_each)
    return each + (place < n_over), n_of_each
