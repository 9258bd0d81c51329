"""An iterator together with the meta that says which dataset it is of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from data_stack.dataset.iterator.iterator import (
    Batch,
    Column,
    ColumnKey,
    DatasetIteratorIF,
    IndexArray,
    IndexArrayOfInts,
    InformedDatasetIteratorIF,
    Sample,
    adapted,
    batch_at,
    column_at,
    column_key,
    columns_at,
)
from data_stack.dataset.iterator.positions import Positions
from data_stack.dataset.iterator.view import sample_or_view
from data_stack.dataset.meta import DatasetMetaIF

__all__ = ["InformedDatasetIterator"]


class InformedDatasetIterator(InformedDatasetIteratorIF):
    """The samples of ``dataset_iterator``, of the dataset that ``dataset_meta`` describes.

    It adds no layer of its own: ``underlying_iterators`` are those of ``dataset_iterator``, and what only that has, such as the
    ``indices`` of a view or ``cache_info`` of a cache, is found here too. A slice is a view with the same meta.

    Args:
        dataset_iterator: the samples; it stays the caller's to close.
        dataset_meta: what is known of them.
        origin: plain data by which the samples can be had again, as a repository puts it: the dataset's name, version, split
            and options. None where there is no such thing; see :meth:`recipe`.
    """

    _layer_name = "informed"

    def __init__(
        self, dataset_iterator: DatasetIteratorIF, dataset_meta: DatasetMetaIF, *, origin: Mapping[str, Any] | None = None
    ) -> None:
        self._origin = None if origin is None else dict(origin)
        self._dataset_meta = dataset_meta
        self._dataset_iterator = dataset_iterator
        self._source = adapted(dataset_iterator)

    if not TYPE_CHECKING:  # a type checker is not to believe in every name

        def __getattr__(self, name: str) -> Any:
            """What only the wrapped iterator has, such as the ``indices`` of a view or ``fill`` of a stored cache."""
            # Private names and protocols are asked of this very object, and while it is unpickled nothing is wrapped yet.
            if not name.startswith("_") and hasattr(self._dataset_iterator, name):
                return getattr(self._dataset_iterator, name)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

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
        """One column, also by its name, as the wrapped iterator reads it."""
        return self._source.read_column(column_key(self, key), indices)

    def _located(self) -> tuple[DatasetIteratorIF, Positions | None]:
        return self._source._located()

    def _unchecked_reader(self) -> Callable[[int], Sample]:
        return self._source._unchecked_reader()

    def _batch_at(self, positions: IndexArrayOfInts) -> Batch:
        return batch_at(self._source, positions)

    def _column_at(self, key: ColumnKey, positions: IndexArrayOfInts | None) -> Column:
        return column_at(self._source, column_key(self, key), positions)

    def _columns_at(self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None) -> list[Column]:
        return columns_at(self._source, [column_key(self, key) for key in keys], positions)

    def _arguments(self) -> dict[str, Any]:
        return {"dataset_meta": self._dataset_meta, "origin": self._origin}

    def _stacked_on(self) -> list[DatasetIteratorIF]:
        return [self._dataset_iterator]

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        """What the wrapped iterator is stacked on."""
        return self._dataset_iterator.underlying_iterators

    @property
    def dataset_meta(self) -> DatasetMetaIF:
        """The meta given."""
        return self._dataset_meta
