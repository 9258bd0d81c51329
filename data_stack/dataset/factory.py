"""Where iterators come from: factories of datasets and of stacked iterators."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from data_stack.dataset.base_factory import BaseDatasetFactory
from data_stack.dataset.declarative import DatasetCard, DatasetFactory
from data_stack.dataset.iterator import (
    CombinedDatasetIterator,
    DatasetIteratorIF,
    DatasetIteratorView,
    IndexArray,
    InformedDatasetIterator,
    InMemoryDatasetIterator,
)
from data_stack.dataset.meta import DatasetMetaIF

__all__ = ["BaseDatasetFactory", "DatasetCard", "DatasetFactory", "HigherOrderDatasetFactory", "InformedDatasetFactory"]


class HigherOrderDatasetFactory:
    """Makes iterators from iterators."""

    @staticmethod
    def get_combined_dataset_iterator(iterators: Sequence[DatasetIteratorIF]) -> DatasetIteratorIF:
        """The iterators one after the other."""
        return CombinedDatasetIterator(iterators)

    @staticmethod
    def get_dataset_iterator_view(
        iterator: DatasetIteratorIF, indices: IndexArray, view_tags: Mapping[str, Any] | None = None
    ) -> DatasetIteratorIF:
        """The samples at ``indices``."""
        return DatasetIteratorView(iterator, indices, view_tags)


class InformedDatasetFactory:
    """Makes iterators from iterators and says which dataset they are of."""

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
        return InformedDatasetIterator(InMemoryDatasetIterator(iterator), meta)

    @staticmethod
    def get_shuffled_dataset_iterator(iterator: DatasetIteratorIF, meta: DatasetMetaIF, seed: int) -> InformedDatasetIterator:
        """All samples in an order that ``seed`` alone decides (the original's: Python's shuffle of all positions)."""
        indices = list(range(len(iterator)))
        random.Random(seed).shuffle(indices)  # noqa: S311  # an order, not a secret
        return InformedDatasetFactory.get_dataset_iterator_view(iterator, meta, indices)
