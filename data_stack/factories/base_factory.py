"""Factories as the original DataStack had them."""

from __future__ import annotations

import gzip
import random
from abc import ABC
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
from data_stack.dataset.meta import DatasetMetaIF, IteratorMeta
from data_stack.io.resources import ResourceFactory, StreamedResource
from data_stack.io.storage_connectors import StorageConnector


# The original's is abstract in name only, and its clients construct it.
class BaseDatasetFactory(ABC):  # noqa: B024
    """Makes the iterators of one dataset.

    This is the freest form: a subclass does everything in ``get_dataset_iterator``, the only
    method that data_stack calls. A subclass of
    :class:`data_stack.factories.declarative.DatasetFactory` declares its sources, and data_stack
    retrieves, stores and checks them.

    Args:
        storage_connector: where the dataset's resources are kept, for the subclass to use; None if
            it keeps none.
    """

    def __init__(self, storage_connector: StorageConnector | None = None) -> None:
        self.storage_connector: Any = storage_connector

    def get_dataset_iterator(self, config: Any = None) -> tuple[DatasetIteratorIF, IteratorMeta]:
        """Return an iterator, and the layout of its samples.

        Args:
            config: what the iterator is to hold, e.g. ``{"split": "train"}``.
        """
        raise NotImplementedError(f"{type(self).__name__} must define get_dataset_iterator(config)")


class PreprocessingHelpers:
    """Transformations of resources as streams."""

    @staticmethod
    def get_gzip_stream(resource: StreamedResource) -> StreamedResource:
        """Return the decompressed content of a gzip resource, under the same identifier.

        Nothing is read yet. It reads from ``resource`` as it is read, so ``resource`` must stay
        open; the caller closes it. Damaged content raises what :mod:`gzip` raises (EOFError,
        gzip.BadGzipFile, zlib.error) when it is reached.
        """
        decompressed: StreamedResource = ResourceFactory.get_resource(
            resource.identifier, gzip.GzipFile(fileobj=resource, mode="rb")
        )
        return decompressed


class HigherOrderDatasetFactory:
    """Makes iterators from iterators, as the original DataStack did.

    An iterator's methods make these and all other layers.
    """

    @staticmethod
    def get_combined_dataset_iterator(iterators: Sequence[DatasetIteratorIF]) -> DatasetIteratorIF:
        """Return a :class:`CombinedDatasetIterator`: the iterators one after the other."""
        return CombinedDatasetIterator(iterators)

    @staticmethod
    def get_dataset_iterator_view(
        iterator: DatasetIteratorIF, indices: IndexArray, view_tags: Mapping[str, Any] | None = None
    ) -> DatasetIteratorIF:
        """Return a :class:`DatasetIteratorView`: the samples at ``indices``."""
        return DatasetIteratorView(iterator, indices, view_tags)

    @staticmethod
    def get_in_memory_dataset_iterator(iterator: DatasetIteratorIF) -> DatasetIteratorIF:
        """Return an :class:`InMemoryDatasetIterator`: all samples, read now and kept in memory."""
        return InMemoryDatasetIterator(iterator)

    @staticmethod
    def get_shuffled_dataset_iterator(iterator: DatasetIteratorIF, seed: int) -> DatasetIteratorIF:
        """Return all samples in the order that the original DataStack had for ``seed``.

        It is Python's shuffle of all positions. ``iterator.shuffle(seed)`` has another order, keeps
        no positions, and takes no time to begin with.
        """
        indices = list(range(len(iterator)))
        random.Random(seed).shuffle(indices)  # noqa: S311  # an order, not a secret
        return DatasetIteratorView(iterator, np.asarray(indices, dtype=np.intp))


class InformedDatasetFactory:
    """Derives iterators from iterators and adds their meta, as the original DataStack did."""

    @staticmethod
    def get_dataset_iterator(
        iterator: DatasetIteratorIF, meta: DatasetMetaIF
    ) -> InformedDatasetIterator:
        """Return ``iterator`` with its meta."""
        return InformedDatasetIterator(iterator, meta)

    @staticmethod
    def get_combined_dataset_iterator(
        iterators: Sequence[DatasetIteratorIF], meta: DatasetMetaIF
    ) -> InformedDatasetIterator:
        """Return the iterators one after the other, with their meta."""
        return InformedDatasetIterator(
            HigherOrderDatasetFactory.get_combined_dataset_iterator(iterators), meta
        )

    @staticmethod
    def get_dataset_iterator_view(
        iterator: DatasetIteratorIF,
        meta: DatasetMetaIF,
        indices: IndexArray,
        view_tags: Mapping[str, Any] | None = None,
    ) -> InformedDatasetIterator:
        """Return the samples at ``indices``, with their meta."""
        return InformedDatasetIterator(
            HigherOrderDatasetFactory.get_dataset_iterator_view(iterator, indices, view_tags), meta
        )

    @staticmethod
    def get_in_memory_dataset_iterator(
        iterator: DatasetIteratorIF, meta: DatasetMetaIF
    ) -> InformedDatasetIterator:
        """Return all samples, read now and kept in memory, with their meta."""
        return InformedDatasetIterator(
            HigherOrderDatasetFactory.get_in_memory_dataset_iterator(iterator), meta
        )

    @staticmethod
    def get_shuffled_dataset_iterator(
        iterator: DatasetIteratorIF, meta: DatasetMetaIF, seed: int
    ) -> InformedDatasetIterator:
        """Return all samples in the original's order for ``seed``, with their meta."""
        return InformedDatasetIterator(
            HigherOrderDatasetFactory.get_shuffled_dataset_iterator(iterator, seed), meta
        )
