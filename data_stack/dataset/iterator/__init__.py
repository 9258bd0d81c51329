"""Samples behind one interface, and what can be stacked on it."""

from __future__ import annotations

# Iterators offer these by methods, but lie below them, see registry.py. They import what they need of this package by module.
from data_stack.dataset import encoding, explanation, recipe, reporting, splitter  # noqa: F401
from data_stack.dataset.iterator import (  # noqa: F401  # each layer puts itself into the registry
    balanced,
    batched,
    cached,
    deduplicated,
    encoded,
    fields,
    filtered,
    interleaved,
    mapped,
    mixed,
    ordered,
    repeated,
    resampled,
    sharded,
    shuffled,
    stored_cache,
    windowed,
    zipped,
)
from data_stack.dataset.iterator.combined import CombinedDatasetIterator
from data_stack.dataset.iterator.in_memory import InMemoryDatasetIterator
from data_stack.dataset.iterator.informed import InformedDatasetIterator
from data_stack.dataset.iterator.iterator import (
    Batch,
    Column,
    ColumnKey,
    DatasetIterator,
    DatasetIteratorIF,
    IndexArray,
    InformedDatasetIteratorIF,
    Sample,
)
from data_stack.dataset.iterator.sequence import SequenceDatasetIterator
from data_stack.dataset.iterator.view import DatasetIteratorView, sample_or_view

__all__ = [
    "Batch",
    "Column",
    "ColumnKey",
    "CombinedDatasetIterator",
    "DatasetIterator",
    "DatasetIteratorIF",
    "DatasetIteratorView",
    "InMemoryDatasetIterator",
    "IndexArray",
    "InformedDatasetIterator",
    "InformedDatasetIteratorIF",
    "Sample",
    "SequenceDatasetIterator",
    "sample_or_view",
]
