"""Samples that are batches of the samples of another iterator."""

from __future__ import annotations

from data_stack.dataset.iterator.access import SampleAccess
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.iterator.layer import layer
from data_stack.dataset.iterator.layers.grouped import GroupedAccess, GroupedDatasetIterator
from data_stack.dataset.positions import check_integer


@layer("batched")
class BatchedDatasetIterator(GroupedDatasetIterator):
    """Sample ``i`` is batch ``i`` of the samples of ``dataset_iterator``, in their order.

    Batch ``i`` is what ``read_batch`` returns for the samples ``i * batch_size`` to
    ``(i + 1) * batch_size - 1``: columns of shape ``(batch_size, ...)``, in one request. Several
    batches are read in one request too, as columns of shape ``(n, batch_size, ...)``. No sample is
    read when this is made, and no memory is taken for positions.

    Args:
        dataset_iterator: the samples; it is not closed.
        batch_size: samples in a batch, at least 1.
        drop_last: whether the last batch is left out if it is shorter. Otherwise a batch of batches
            with it has columns of objects, which are arrays.

    Raises:
        ConfigError: ``batch_size`` is not a positive integer.
    """

    #: The number of samples in a batch.
    _batch_size: int

    #: Whether a shorter last batch is left out.
    _drop_last: bool

    #: The number of samples below, when this was made.
    _n_below: int

    def __init__(
        self, dataset_iterator: DatasetIteratorIF, batch_size: int, *, drop_last: bool = False
    ) -> None:
        checked_size = check_integer("batch_size", batch_size, at_least=1)
        super().__init__(dataset_iterator, batch_size=checked_size, drop_last=drop_last)
        self._batch_size = checked_size
        self._drop_last = drop_last
        self._n_below = len(as_iterator(dataset_iterator))

    def make_access(self) -> SampleAccess:
        if self._drop_last:
            starts = range(0, self._n_below - self._batch_size + 1, self._batch_size)
        else:
            starts = range(0, self._n_below, self._batch_size)
        return GroupedAccess(self._below(), starts, self._batch_size, end=self._n_below)
