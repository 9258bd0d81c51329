"""A view: some samples of another iterator, in an order of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.iterator import (
    Batch,
    Column,
    ColumnKey,
    DatasetIterator,
    DatasetIteratorIF,
    IndexArray,
    InformedDatasetIteratorIF,
    Sample,
    adapted,
    checked_index,
    checked_indices,
)
from data_stack.dataset.meta import DatasetMetaIF
from data_stack.exception import DatasetOutOfBoundsError

__all__ = ["DatasetIteratorView", "InformedDatasetIteratorView", "sample_or_view"]

_POSITIONS_AT_ONCE = 1 << 16


class DatasetIteratorView(DatasetIterator):
    """The samples of ``dataset_iterator`` at ``indices``, in that order; nothing is copied.

    A view of a view reads from the bottom directly, so depth costs nothing; ``underlying_iterators`` still names the
    iterator it was made from.

    Args:
        dataset_iterator: the iterator looked through; it stays the caller's to close.
        indices: integers, each in ``[-n, n)`` for an iterator of n samples, repeats allowed; or n bools; or a slice.
            They are copied: changing them afterwards does not change the view.
        view_tags: whatever the caller wants to remember of this view.

    Raises:
        DatasetOutOfBoundsError: a position lies outside of ``dataset_iterator``.
        TypeError: ``indices`` are not one-dimensional, or neither integers nor bools.
    """

    def __init__(
        self, dataset_iterator: DatasetIteratorIF, indices: IndexArray | npt.ArrayLike, view_tags: Mapping[str, Any] | None = None
    ) -> None:
        # Checked here, not in __getitem__: a wrong split then fails where it was made, not hours later in a worker.
        source, positions_of_parent = adapted(dataset_iterator)._located()
        length = len(source) if positions_of_parent is None else len(positions_of_parent)
        positions = checked_indices(indices, length)
        if not isinstance(indices, (list, range, slice)):
            positions = positions.copy()
        self._dataset_iterator = dataset_iterator
        self._given_positions = positions
        self._gives_list = not hasattr(indices, "__array__")
        self._view_tags = None if view_tags is None else dict(view_tags)
        self._source = source
        self._positions = positions if positions_of_parent is None else positions_of_parent[positions]

    def __len__(self) -> int:
        return len(self._positions)

    def __getitem__(self, index: Any) -> Any:
        """A sample for an int; a view of this view for a slice or an index array."""
        if type(index) is int:
            try:
                position = self._positions.item(index)
            except (IndexError, OverflowError):
                raise DatasetOutOfBoundsError(f"position {index} is outside of a view of {len(self)} samples") from None
            return self._source[position]
        return sample_or_view(self, index)

    def __iter__(self) -> Iterator[Sample]:
        source, positions = self._source, self._positions
        for start in range(0, len(positions), _POSITIONS_AT_ONCE):  # as Python ints, but never all of them at once
            for position in positions[start : start + _POSITIONS_AT_ONCE].tolist():
                yield source[position]

    def __getitems__(self, indices: IndexArray) -> list[Sample]:
        """The samples at ``indices``, in one request to the source."""
        return self._source.__getitems__(self._positions[checked_indices(indices, len(self))].tolist())

    def read_batch(self, indices: IndexArray) -> Batch:
        """The samples at ``indices`` as columns, in one request to the source."""
        return self._source.read_batch(self._positions[checked_indices(indices, len(self))])

    def read_column(self, key: ColumnKey, indices: IndexArray | None = None) -> Column:
        """One column, in one request to the source, for this view's samples only."""
        wanted = self._positions if indices is None else self._positions[checked_indices(indices, len(self))]
        return self._source.read_column(key, wanted)

    def _located(self) -> tuple[DatasetIteratorIF, npt.NDArray[np.intp] | None]:
        return self._source, self._positions

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        """The iterator that this view was made from."""
        return [self._dataset_iterator]

    @property
    def indices(self) -> Any:
        """The positions in ``underlying_iterators[0]``: an array if the view was made with one, otherwise a list of ints.

        Negative positions are resolved and masks written out. Made anew each time: in a loop, keep it in a variable.
        """
        return self._given_positions.tolist() if self._gives_list else self._given_positions.copy()

    @property
    def view_tags(self) -> dict[str, Any] | None:
        """What the view was tagged with; None if nothing."""
        return self._view_tags


class InformedDatasetIteratorView(DatasetIteratorView, InformedDatasetIteratorIF):
    """What slicing an informed iterator gives: a view that is still of that dataset."""

    @property
    def dataset_meta(self) -> DatasetMetaIF:
        """The meta of the iterator that was sliced."""
        meta: DatasetMetaIF = self._dataset_iterator.dataset_meta  # type: ignore[attr-defined]  # sample_or_view made it
        return meta


def sample_or_view(iterator: DatasetIteratorIF, index: Any) -> Any:
    """What ``iterator[index]`` means for any index; for ``__getitem__`` to end in when it was asked for no plain position.

    An integer of any kind (negative, numpy, 0-d array) becomes ``iterator[p]`` with an int ``0 <= p < len(iterator)``;
    a slice, list, index array or mask becomes a view.

    Raises:
        DatasetOutOfBoundsError: a position lies outside.
        TypeError: ``index`` is neither.
    """
    if getattr(index, "ndim", 0) == 0 and hasattr(index, "__index__"):
        return iterator[checked_index(index, len(iterator))]
    if not isinstance(index, (slice, list, range)) and getattr(index, "ndim", 0) != 1:
        raise TypeError(f"a sample is found by an integer, a slice, or a list or array of integers, not by {index!r}")
    if isinstance(iterator, InformedDatasetIteratorIF):
        return InformedDatasetIteratorView(iterator, index)
    return DatasetIteratorView(iterator, index)
