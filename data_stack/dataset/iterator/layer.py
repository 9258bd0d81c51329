"""A layer on one iterator."""

from __future__ import annotations

from typing import Any

from data_stack.dataset.iterator.access import SampleAccess, access_to
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.contract import AccessedDatasetIterator, DatasetIteratorIF


class LayerDatasetIterator(AccessedDatasetIterator):
    """A layer on one iterator.

    Args:
        dataset_iterator: what lies below; it stays the caller's to close.
        made_with: the other arguments of the layer, for recipes.
    """

    def __init__(self, dataset_iterator: DatasetIteratorIF, **made_with: Any) -> None:
        as_iterator(dataset_iterator)  # refuses what has no samples
        self._dataset_iterator, self._made_with = dataset_iterator, made_with

    def _below(self) -> SampleAccess:
        return access_to(as_iterator(self._dataset_iterator))

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        """The iterator that the layer is stacked on."""
        return [self._dataset_iterator]
