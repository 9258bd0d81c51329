"""Where iterators come from: factories of datasets and of stacked iterators."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from data_stack.dataset.iterator import (
    CombinedDatasetIterator,
    DatasetIteratorIF,
    DatasetIteratorView,
    IndexArray,
    InformedDatasetIterator,
    InMemoryDatasetIterator,
)
from data_stack.dataset.meta import DatasetMetaIF
from data_stack.factories.base_factory import BaseDatasetFactory
from data_stack.factories.declarative import DatasetCard, DatasetFactory

__all__ = ["BaseDatasetFactory", "DatasetCard", "DatasetFactory", "HigherOrderDatasetFactory", "InformedDatasetFactory"]


class HigherOrderDatasetFactory:
    """Makes iterators from iterators, as the original DataStack did; an iterator's methods make these and all other layers."""

    @staticmethod
    def get_combined_dataset_iterator(iterators: Sequence[DatasetIteratorIF]) -> DatasetIteratorIF:
        """The iterators one after the other: :class:`CombinedDatasetIterator`."""
        return CombinedDatasetIterator(iterators)

    @staticmethod
    def get_dataset_iterator_view(
        iterator: DatasetIteratorIF, indices: IndexArray, view_tags: Mapping[str, Any] | None = None
    ) -> DatasetIteratorIF:
        """The samples at ``indices``: :class:`DatasetIteratorView`."""
        return DatasetIteratorView(iterator, indices, view_tags)

    @staticmethod
    def get_in_memory_dataset_iterator(iterator: DatasetIteratorIF) -> DatasetIteratorIF:
        """All samples, read now and kept in memory: :class:`InMemoryDatasetIterator`."""
        return InMemoryDatasetIterator(iterator)

    @staticmethod
    def get_shuffled_dataset_iterator(iterator: DatasetIteratorIF, seed: int) -> DatasetIteratorIF:
        """All samples in the original's order for ``seed``: Python's shuffle of all positions.

        ``iterator.shuffle(seed)`` keeps no positions and takes no time to begin with; its order is another one.
        """
        indices = list(range(len(iterator)))
        random.Random(seed).shuffle(indices)  # noqa: S311  # an order, not a secret
        return DatasetIteratorView(iterator, np.asarray(indices, dtype=np.intp))


class InformedDatasetFactory:
    """Derives iterators from iterators and adds their meta, as the original DataStack did."""

    @staticmethod
    def get_dataset_iterator(iterator: DatasetIteratorIF, meta: DatasetMetaIF) -> InformedDatasetIterator:
        """``iterator`` with its meta."""
        return InformedDatasetIterator(iterator, meta)

    @staticmethod
    def get_combined_dataset_iterator(iterators: Sequence[DatasetIteratorIF], meta: DatasetMetaIF) -> InformedDatasetIterator:
        """The iterators one after the other."""
        return InformedDatasetIterator(HigherOrderDatasetFactory.get_combined_dataset_iterator(iterators), meta)

    @staticmethod
    def get_dataset_iterator_view(
        iterator: DatasetIteratorIF, meta: DatasetMetaIF, indices: IndexArray, view_tags: Mapping[str, Any] | None = None
    ) -> InformedDatasetIterator:
        """The samples at ``indices``."""
        return InformedDatasetIterator(HigherOrderDatasetFactory.get_dataset_iterator_view(iterator, indices, view_tags), meta)

    @staticmethod
    def get_in_memory_dataset_iterator(iterator: DatasetIteratorIF, meta: DatasetMetaIF) -> InformedDatasetIterator:
        """All samples, read now and kept in memory."""
        return InformedDatasetIterator(HigherOrderDatasetFactory.get_in_memory_dataset_iterator(iterator), meta)

    @staticmethod
    def get_shuffled_dataset_iterator(iterator: DatasetIteratorIF, meta: DatasetMetaIF, seed: int) -> InformedDatasetIterator:
        """All samples in the original's order for ``seed``: Python's shuffle of all positions."""
        return InformedDatasetIterator(HigherOrderDatasetFactory.get_shuffled_dataset_iterator(iterator, seed), meta)
