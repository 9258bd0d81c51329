"""Where iterators come from: the base of dataset factories, and makers of stacked iterators."""

from __future__ import annotations

import importlib
import random
from abc import ABC
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from data_stack.dataset.iterator import (
    CombinedDatasetIterator,
    DatasetIteratorIF,
    DatasetIteratorView,
    IndexArray,
    InformedDatasetIterator,
    InMemoryDatasetIterator,
)
from data_stack.dataset.meta import DatasetMetaIF, IteratorMeta

if TYPE_CHECKING:
    from data_stack.dataset.declarative import DatasetCard, DatasetFactory
    from data_stack.io.storage_connectors import StorageConnector

__all__ = ["BaseDatasetFactory", "DatasetCard", "DatasetFactory", "HigherOrderDatasetFactory", "InformedDatasetFactory"]


def __getattr__(name: str) -> Any:
    # DatasetFactory is a BaseDatasetFactory, so its module can be imported only after this one.
    if name in ("DatasetCard", "DatasetFactory"):
        return getattr(importlib.import_module("data_stack.dataset.declarative"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class BaseDatasetFactory(ABC):  # noqa: B024  # the original's is abstract in name only, and its clients construct it
    """Makes the iterators of one dataset; the freest form: a subclass does everything in ``get_dataset_iterator``.

    Nothing else of a subclass is ever called. :class:`DatasetFactory` is the form that takes retrieval, storage and
    readiness off its author's hands.

    Args:
        storage_connector: where the dataset's resources are kept, for the subclass to use; None if it keeps none.
    """

    def __init__(self, storage_connector: StorageConnector | None = None) -> None:
        self.storage_connector: Any = storage_connector

    def get_dataset_iterator(self, config: Any = None) -> tuple[DatasetIteratorIF, IteratorMeta]:
        """An iterator as ``config`` wants it, e.g. ``{"split": "train"}``, and the layout of its samples."""
        raise NotImplementedError(f"{type(self).__name__} must define get_dataset_iterator(config)")


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
