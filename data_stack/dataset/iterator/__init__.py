"""Samples behind one interface, and what can be stacked on it."""

from __future__ import annotations

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
