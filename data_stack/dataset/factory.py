"""Where iterators come from: factories of datasets and of stacked iterators."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from data_stack.dataset.base_factory import BaseDatasetFactory
from data_stack.dataset.declarative import DatasetCard, DatasetFactory
from data_stack.dataset.encoders import Encoder
from data_stack.dataset.iterator import (
    BalancedDatasetIterator,
    CachedDatasetIterator,
    ColumnKey,
    CombinedDatasetIterator,
    DatasetIteratorIF,
    DatasetIteratorView,
    DeduplicatedDatasetIterator,
    EncodedDatasetIterator,
    FieldsDatasetIterator,
    FilteredDatasetIterator,
    IndexArray,
    InformedDatasetIterator,
    InMemoryDatasetIterator,
    InterleavedDatasetIterator,
    MappedDatasetIterator,
    MixedDatasetIterator,
    RepeatedDatasetIterator,
    ResampledDatasetIterator,
    ShardedDatasetIterator,
    SortedDatasetIterator,
    WindowedDatasetIterator,
    ZippedDatasetIterator,
)
from data_stack.dataset.meta import DatasetMetaIF

__all__ = ["BaseDatasetFactory", "DatasetCard", "DatasetFactory", "HigherOrderDatasetFactory", "InformedDatasetFactory"]


class HigherOrderDatasetFactory:
    """Makes iterators from iterators; further options are those of the classes named, as keywords."""

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

    @staticmethod
    def get_repeated_dataset_iterator(iterator: DatasetIteratorIF, times: int) -> DatasetIteratorIF:
        """All samples several times: :class:`RepeatedDatasetIterator`."""
        return RepeatedDatasetIterator(iterator, times)

    @staticmethod
    def get_interleaved_dataset_iterator(iterators: Sequence[DatasetIteratorIF], **options: Any) -> DatasetIteratorIF:
        """One sample of each iterator in turn: :class:`InterleavedDatasetIterator`."""
        return InterleavedDatasetIterator(iterators, **options)

    @staticmethod
    def get_mixed_dataset_iterator(
        iterators: Sequence[DatasetIteratorIF], proportions: Sequence[float], seed: int, **options: Any
    ) -> DatasetIteratorIF:
        """The iterators in stated proportions: :class:`MixedDatasetIterator`."""
        return MixedDatasetIterator(iterators, proportions, seed, **options)

    @staticmethod
    def get_resampled_dataset_iterator(
        iterator: DatasetIteratorIF, n_samples: int, seed: int, **options: Any
    ) -> DatasetIteratorIF:
        """Samples drawn with replacement: :class:`ResampledDatasetIterator`."""
        return ResampledDatasetIterator(iterator, n_samples, seed, **options)

    @staticmethod
    def get_balanced_dataset_iterator(iterator: DatasetIteratorIF, by: ColumnKey, seed: int, **options: Any) -> DatasetIteratorIF:
        """Every class equally often: :class:`BalancedDatasetIterator`."""
        return BalancedDatasetIterator(iterator, by, seed, **options)

    @staticmethod
    def get_filtered_dataset_iterator(
        iterator: DatasetIteratorIF, predicate: Callable[[Any], Any], **options: Any
    ) -> DatasetIteratorIF:
        """The samples for which ``predicate`` is true: :class:`FilteredDatasetIterator`."""
        return FilteredDatasetIterator(iterator, predicate, **options)

    @staticmethod
    def get_sorted_dataset_iterator(iterator: DatasetIteratorIF, by: ColumnKey, **options: Any) -> DatasetIteratorIF:
        """The samples in the order of a column: :class:`SortedDatasetIterator`."""
        return SortedDatasetIterator(iterator, by, **options)

    @staticmethod
    def get_deduplicated_dataset_iterator(iterator: DatasetIteratorIF, **options: Any) -> DatasetIteratorIF:
        """The samples without repeats: :class:`DeduplicatedDatasetIterator`."""
        return DeduplicatedDatasetIterator(iterator, **options)

    @staticmethod
    def get_windowed_dataset_iterator(iterator: DatasetIteratorIF, length: int, **options: Any) -> DatasetIteratorIF:
        """Runs of consecutive samples: :class:`WindowedDatasetIterator`."""
        return WindowedDatasetIterator(iterator, length, **options)

    @staticmethod
    def get_sharded_dataset_iterator(iterator: DatasetIteratorIF, rank: int, world: int, **options: Any) -> DatasetIteratorIF:
        """The part of one rank: :class:`ShardedDatasetIterator`."""
        return ShardedDatasetIterator(iterator, rank, world, **options)

    @staticmethod
    def get_mapped_dataset_iterator(
        iterator: DatasetIteratorIF, function: Callable[..., Any], **options: Any
    ) -> DatasetIteratorIF:
        """A function of each sample: :class:`MappedDatasetIterator`."""
        return MappedDatasetIterator(iterator, function, **options)

    @staticmethod
    def get_selected_dataset_iterator(iterator: DatasetIteratorIF, columns: Sequence[ColumnKey]) -> DatasetIteratorIF:
        """Samples of some columns: :class:`FieldsDatasetIterator`."""
        return FieldsDatasetIterator(iterator, columns)

    @staticmethod
    def get_zipped_dataset_iterator(iterators: Sequence[DatasetIteratorIF]) -> DatasetIteratorIF:
        """The columns of several iterators side by side: :class:`ZippedDatasetIterator`."""
        return ZippedDatasetIterator(iterators)

    @staticmethod
    def get_encoded_dataset_iterator(iterator: DatasetIteratorIF, encoders: Mapping[ColumnKey, Encoder]) -> DatasetIteratorIF:
        """Columns that went through fitted encoders: :class:`EncodedDatasetIterator`."""
        return EncodedDatasetIterator(iterator, encoders)

    @staticmethod
    def get_cached_dataset_iterator(iterator: DatasetIteratorIF, max_bytes: int | None = None) -> DatasetIteratorIF:
        """Samples kept in memory once they were read: :class:`CachedDatasetIterator`."""
        return CachedDatasetIterator(iterator, max_bytes)


class InformedDatasetFactory:
    """Makes iterators from iterators and says which dataset they are of; options are those of the classes, as keywords."""

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

    @staticmethod
    def get_repeated_dataset_iterator(iterator: DatasetIteratorIF, meta: DatasetMetaIF, times: int) -> InformedDatasetIterator:
        """All samples several times."""
        return InformedDatasetIterator(HigherOrderDatasetFactory.get_repeated_dataset_iterator(iterator, times), meta)

    @staticmethod
    def get_interleaved_dataset_iterator(
        iterators: Sequence[DatasetIteratorIF], meta: DatasetMetaIF, **options: Any
    ) -> InformedDatasetIterator:
        """One sample of each iterator in turn."""
        return InformedDatasetIterator(HigherOrderDatasetFactory.get_interleaved_dataset_iterator(iterators, **options), meta)

    @staticmethod
    def get_mixed_dataset_iterator(
        iterators: Sequence[DatasetIteratorIF], meta: DatasetMetaIF, proportions: Sequence[float], seed: int, **options: Any
    ) -> InformedDatasetIterator:
        """The iterators in stated proportions."""
        mixed = HigherOrderDatasetFactory.get_mixed_dataset_iterator(iterators, proportions, seed, **options)
        return InformedDatasetIterator(mixed, meta)

    @staticmethod
    def get_resampled_dataset_iterator(
        iterator: DatasetIteratorIF, meta: DatasetMetaIF, n_samples: int, seed: int, **options: Any
    ) -> InformedDatasetIterator:
        """Samples drawn with replacement."""
        resampled = HigherOrderDatasetFactory.get_resampled_dataset_iterator(iterator, n_samples, seed, **options)
        return InformedDatasetIterator(resampled, meta)

    @staticmethod
    def get_balanced_dataset_iterator(
        iterator: DatasetIteratorIF, meta: DatasetMetaIF, seed: int, **options: Any
    ) -> InformedDatasetIterator:
        """Every class of the meta's target equally often."""
        balanced = HigherOrderDatasetFactory.get_balanced_dataset_iterator(iterator, meta.target_pos, seed, **options)
        return InformedDatasetIterator(balanced, meta)

    @staticmethod
    def get_filtered_dataset_iterator(
        iterator: DatasetIteratorIF, meta: DatasetMetaIF, predicate: Callable[[Any], Any], **options: Any
    ) -> InformedDatasetIterator:
        """The samples for which ``predicate`` is true."""
        return InformedDatasetIterator(
            HigherOrderDatasetFactory.get_filtered_dataset_iterator(iterator, predicate, **options), meta
        )

    @staticmethod
    def get_sorted_dataset_iterator(
        iterator: DatasetIteratorIF, meta: DatasetMetaIF, by: ColumnKey, **options: Any
    ) -> InformedDatasetIterator:
        """The samples in the order of a column."""
        return InformedDatasetIterator(HigherOrderDatasetFactory.get_sorted_dataset_iterator(iterator, by, **options), meta)

    @staticmethod
    def get_deduplicated_dataset_iterator(
        iterator: DatasetIteratorIF, meta: DatasetMetaIF, **options: Any
    ) -> InformedDatasetIterator:
        """The samples without repeats."""
        return InformedDatasetIterator(HigherOrderDatasetFactory.get_deduplicated_dataset_iterator(iterator, **options), meta)

    @staticmethod
    def get_windowed_dataset_iterator(
        iterator: DatasetIteratorIF, meta: DatasetMetaIF, length: int, **options: Any
    ) -> InformedDatasetIterator:
        """Runs of consecutive samples."""
        return InformedDatasetIterator(HigherOrderDatasetFactory.get_windowed_dataset_iterator(iterator, length, **options), meta)

    @staticmethod
    def get_sharded_dataset_iterator(
        iterator: DatasetIteratorIF, meta: DatasetMetaIF, rank: int, world: int, **options: Any
    ) -> InformedDatasetIterator:
        """The part of one rank."""
        sharded = HigherOrderDatasetFactory.get_sharded_dataset_iterator(iterator, rank, world, **options)
        return InformedDatasetIterator(sharded, meta)

    @staticmethod
    def get_mapped_dataset_iterator(
        iterator: DatasetIteratorIF, meta: DatasetMetaIF, function: Callable[..., Any], **options: Any
    ) -> InformedDatasetIterator:
        """A function of each sample."""
        return InformedDatasetIterator(HigherOrderDatasetFactory.get_mapped_dataset_iterator(iterator, function, **options), meta)

    @staticmethod
    def get_selected_dataset_iterator(
        iterator: DatasetIteratorIF, meta: DatasetMetaIF, columns: Sequence[ColumnKey]
    ) -> InformedDatasetIterator:
        """Samples of some columns; ``meta`` says where sample, target and tag are in them."""
        return InformedDatasetIterator(HigherOrderDatasetFactory.get_selected_dataset_iterator(iterator, columns), meta)

    @staticmethod
    def get_zipped_dataset_iterator(iterators: Sequence[DatasetIteratorIF], meta: DatasetMetaIF) -> InformedDatasetIterator:
        """The columns of several iterators side by side."""
        return InformedDatasetIterator(HigherOrderDatasetFactory.get_zipped_dataset_iterator(iterators), meta)

    @staticmethod
    def get_encoded_dataset_iterator(
        iterator: DatasetIteratorIF, meta: DatasetMetaIF, encoders: Mapping[ColumnKey, Encoder]
    ) -> InformedDatasetIterator:
        """Columns that went through fitted encoders."""
        return InformedDatasetIterator(HigherOrderDatasetFactory.get_encoded_dataset_iterator(iterator, encoders), meta)

    @staticmethod
    def get_cached_dataset_iterator(
        iterator: DatasetIteratorIF, meta: DatasetMetaIF, max_bytes: int | None = None
    ) -> InformedDatasetIterator:
        """Samples kept in memory once they were read."""
        return InformedDatasetIterator(HigherOrderDatasetFactory.get_cached_dataset_iterator(iterator, max_bytes), meta)
