"""An iterator together with the meta that says which dataset it is of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.iterator import (
    Batch,
    Column,
    ColumnKey,
    DatasetIteratorIF,
    IndexArray,
    InformedDatasetIteratorIF,
    Sample,
    adapted,
)
from data_stack.dataset.iterator.view import sample_or_view
from data_stack.dataset.meta import DatasetMetaIF

__all__ = ["InformedDatasetIterator"]


class InformedDatasetIterator(InformedDatasetIteratorIF):
    """The samples of ``dataset_iterator``, of the dataset that ``dataset_meta`` describes.

    It adds no layer of its own: ``underlying_iterators`` are those of ``dataset_iterator``. A slice is a view with the same meta.
    """

    def __init__(self, dataset_iterator: DatasetIteratorIF, dataset_meta: DatasetMetaIF) -> None:
        self._dataset_meta = dataset_meta
        self._dataset_iterator = dataset_iterator
        self._source = adapted(dataset_iterator)

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: Any) -> Any:
        """A sample for an int; an informed view for a slice or an index array."""
        if type(index) is int and 0 <= index < len(self._source):
            return self._source[index]
        return sample_or_view(self, index)

    def __iter__(self) -> Iterator[Sample]:
        return iter(self._source)

    def __getitems__(self, indices: IndexArray) -> list[Sample]:
        """The samples at ``indices``, as the wrapped iterator fetches them."""
        return self._source.__getitems__(indices)

    def read_batch(self, indices: IndexArray) -> Batch:
        """The samples at ``indices`` as columns, as the wrapped iterator reads them."""
        return self._source.read_batch(indices)

    def read_column(self, key: ColumnKey, indices: IndexArray | None = None) -> Column:
        """One column, as the wrapped iterator reads it."""
        return self._source.read_column(key, indices)

    def _located(self) -> tuple[DatasetIteratorIF, npt.NDArray[np.intp] | None]:
        return self._source._located()

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        """What the wrapped iterator is stacked on."""
        return self._dataset_iterator.underlying_iterators

    @property
    def dataset_meta(self) -> DatasetMetaIF:
        """The meta given."""
        return self._dataset_meta
