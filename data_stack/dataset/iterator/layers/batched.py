"""Batches of an iterator's samples, as samples."""

from __future__ import annotations

import numpy as np

from data_stack.dataset.iterator.access import SampleAccess
from data_stack.dataset.iterator.contract import DatasetIteratorIF, as_iterator
from data_stack.dataset.iterator.layer import layer
from data_stack.dataset.iterator.layers.grouped import GroupedAccess, GroupedDatasetIterator
from data_stack.dataset.positions import IndexArrayOfInts, check_integer


@layer("batched")
class BatchedDatasetIterator(GroupedDatasetIterator):
    """Sample ``i`` is the batch of the samples ``i * batch_size`` to ``(i + 1) * batch_size - 1`` of ``dataset_iterator``.

    It is what ``read_batch`` returns for them: columns of shape ``(batch_size, ...)``, in one request. Several batches are one
    request too, of shape ``(n, batch_size, ...)``. Making it reads nothing and keeps nothing, however many samples there are.

    Args:
        dataset_iterator: what is read; it stays the caller's to close.
        batch_size: samples in a batch, at least 1.
        drop_last: whether the last batch is left out if it is shorter. Otherwise batches stacked together with it are columns of
            objects, one array each.

    Raises:
        ConfigError: ``batch_size`` is not a positive integer.
    """

    def __init__(self, dataset_iterator: DatasetIteratorIF, batch_size: int, *, drop_last: bool = False) -> None:
        size = check_integer("batch_size", batch_size, at_least=1)
        super().__init__(dataset_iterator, batch_size=size, drop_last=drop_last)
        self._n_below = len(as_iterator(dataset_iterator))

    def make_access(self) -> SampleAccess:
        return _BatchedAccess(self._below(), self._n_below, **self._made_with)


class _BatchedAccess(GroupedAccess):
    """Access to batches of ``batch_size`` of the first ``n_below`` samples below."""

    def __init__(self, below: SampleAccess, n_below: int, batch_size: int, *, drop_last: bool) -> None:
        self._batch_size, self._n_below = batch_size, n_below
        self._n_full, rest = divmod(n_below, batch_size)
        super().__init__(below, self._n_full + (1 if rest and not drop_last else 0))

    def slots_of(self, position: int) -> IndexArrayOfInts:
        start = position * self._batch_size
        return np.arange(start, min(start + self._batch_size, self._n_below), dtype=np.intp)

    def slots_at(self, positions: IndexArrayOfInts) -> IndexArrayOfInts | None:
        is_short = positions == self._n_full
        if not bool(is_short.any()):
            return positions.astype(np.intp)[:, np.newaxis] * self._batch_size + np.arange(self._batch_size, dtype=np.intp)
        return np.tile(self.slots_of(self._n_full), (len(positions), 1)) if bool(is_short.all()) else None
