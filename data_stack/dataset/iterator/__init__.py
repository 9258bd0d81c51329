"""Samples behind one interface, and what can be stacked on it."""

from __future__ import annotations

# They put in what methods of iterators call, and are built on the layers.
from data_stack.dataset import encoding, reporting  # noqa: F401
from data_stack.dataset.iterator.access import (
    DefaultAccess,
    OneToOneAccess,
    RearrangedAccess,
    SampleAccess,
    SourceAccess,
    access_to,
)
from data_stack.dataset.iterator.balanced import BalancedDatasetIterator
from data_stack.dataset.iterator.batched import BatchedDatasetIterator
from data_stack.dataset.iterator.cached import CachedDatasetIterator
from data_stack.dataset.iterator.combined import CombinedDatasetIterator
from data_stack.dataset.iterator.contract import (
    AccessedDatasetIterator,
    Batch,
    Column,
    ColumnKey,
    DatasetIterator,
    DatasetIteratorIF,
    IndexArray,
    InformedDatasetIteratorIF,
    Sample,
    column_names,
    sample_or_view,
)
from data_stack.dataset.iterator.deduplicated import DeduplicatedDatasetIterator
from data_stack.dataset.iterator.encoded import EncodedDatasetIterator
from data_stack.dataset.iterator.fields import (
    DictsDatasetIterator,
    FieldsDatasetIterator,
    RenamedDatasetIterator,
    TuplesDatasetIterator,
)
from data_stack.dataset.iterator.filtered import FilteredDatasetIterator
from data_stack.dataset.iterator.in_memory import InMemoryDatasetIterator
from data_stack.dataset.iterator.informed import InformedDatasetIterator
from data_stack.dataset.iterator.interleaved import InterleavedDatasetIterator
from data_stack.dataset.iterator.mapped import MappedDatasetIterator
from data_stack.dataset.iterator.mixed import MixedDatasetIterator
from data_stack.dataset.iterator.ordered import SortedDatasetIterator
from data_stack.dataset.iterator.repeated import RepeatedDatasetIterator
from data_stack.dataset.iterator.resampled import ResampledDatasetIterator
from data_stack.dataset.iterator.sequence import SequenceDatasetIterator
from data_stack.dataset.iterator.sharded import ShardedDatasetIterator
from data_stack.dataset.iterator.shuffled import ShuffledDatasetIterator
from data_stack.dataset.iterator.stored_cache import StoredCacheDatasetIterator
from data_stack.dataset.iterator.view import DatasetIteratorView
from data_stack.dataset.iterator.windowed import WindowedDatasetIterator
from data_stack.dataset.iterator.zipped import ZippedDatasetIterator
from data_stack.dataset.recipes import recipe  # noqa: F401
from data_stack.dataset.reports import explanation  # noqa: F401
from data_stack.dataset.splits import parts  # noqa: F401

__all__ = [
    "AccessedDatasetIterator",
    "BalancedDatasetIterator",
    "Batch",
    "BatchedDatasetIterator",
    "CachedDatasetIterator",
    "Column",
    "ColumnKey",
    "CombinedDatasetIterator",
    "DatasetIterator",
    "DatasetIteratorIF",
    "DatasetIteratorView",
    "DeduplicatedDatasetIterator",
    "DefaultAccess",
    "DictsDatasetIterator",
    "EncodedDatasetIterator",
    "FieldsDatasetIterator",
    "FilteredDatasetIterator",
    "InMemoryDatasetIterator",
    "IndexArray",
    "InformedDatasetIterator",
    "InformedDatasetIteratorIF",
    "InterleavedDatasetIterator",
    "MappedDatasetIterator",
    "MixedDatasetIterator",
    "OneToOneAccess",
    "RearrangedAccess",
    "RenamedDatasetIterator",
    "RepeatedDatasetIterator",
    "ResampledDatasetIterator",
    "Sample",
    "SampleAccess",
    "SequenceDatasetIterator",
    "ShardedDatasetIterator",
    "ShuffledDatasetIterator",
    "SortedDatasetIterator",
    "SourceAccess",
    "StoredCacheDatasetIterator",
    "TuplesDatasetIterator",
    "WindowedDatasetIterator",
    "ZippedDatasetIterator",
    "access_to",
    "column_names",
    "sample_or_view",
]
