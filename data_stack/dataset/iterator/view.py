"""A view: some samples of another iterator, in an order of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
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
    IndexArrayOfInts,
    InformedDatasetIteratorIF,
    Sample,
    adapted,
    batch_at,
    checked_index,
    checked_indices,
    checked_positions,
    column_at,
    column_key,
    columns_at,
    out_of_bounds,
)
from data_stack.dataset.iterator.positions import ComputedPositions, Positions, as_index_array, composed, taken
from data_stack.dataset.meta import DatasetMetaIF

__all__ = ["DatasetIteratorView", "InformedDatasetIteratorView", "sample_or_view"]

_POSITIONS_AT_ONCE = 1 << 16


class DatasetIteratorView(DatasetIterator):
    """The samples of ``dataset_iterator`` at ``indices``, in that order; nothing is copied.

    A view of a view reads from the bottom directly, so depth costs nothing; ``underlying_iterators`` still names the
    iterator it was made from. A slice or range keeps no array, however long; other indices take 4 bytes each, or 8 in an
    iterator of more than 2**31 samples.

    Args:
        dataset_iterator: the iterator looked through; it stays the caller's to close.
        indices: integers, each in ``[-n, n)`` for an iterator of n samples, repeats allowed; or n bools; or a slice.
            They are copied: changing them afterwards does not change the view.
        view_tags: whatever the caller wants to remember of this view.

    Raises:
        DatasetOutOfBoundsError: a position lies outside of ``dataset_iterator``.
        TypeError: ``indices`` are not one-dimensional, or neither integers nor bools.
    """

    _layer_name = "view"

    def __init__(
        self,
        dataset_iterator: DatasetIteratorIF,
        indices: IndexArray | npt.ArrayLike | ComputedPositions,
        view_tags: Mapping[str, Any] | None = None,
    ) -> None:
        # Checked here, not in __getitem__: a wrong split then fails where it was made, not hours later in a worker.
        source, positions_of_parent = adapted(dataset_iterator)._located()
        length = len(source) if positions_of_parent is None else len(positions_of_parent)
        self._dataset_iterator = dataset_iterator
        self._given: Positions = indices if isinstance(indices, ComputedPositions) else checked_positions(indices, length)
        self._gives_list = not hasattr(indices, "__array__")
        self._view_tags = None if view_tags is None else dict(view_tags)
        self._look_through(source, positions_of_parent)

    def _look_through(self, source: DatasetIteratorIF, positions_of_parent: Positions | None) -> None:
        self._source = source
        self._positions = composed(self._given, positions_of_parent)
        # a memoryview gives an int in half the time of an array's item()
        at: Any = self._positions
        self._at = memoryview(at) if isinstance(self._positions, np.ndarray) else at
        self._read = source._unchecked_reader()

    def __getstate__(self) -> dict[str, Any]:
        derived = ("_source", "_positions", "_at", "_read")
        return {name: value for name, value in self.__dict__.items() if name not in derived}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if isinstance(self._given, np.ndarray):
            self._given.setflags(write=False)
        self._look_through(*adapted(self._dataset_iterator)._located())

    def __len__(self) -> int:
        return len(self._positions)

    def __getitem__(self, index: Any) -> Any:
        """A sample for an int; a view of this view for a slice or an index array."""
        if type(index) is int:
            try:
                position = self._at[index]
            except IndexError:
                raise out_of_bounds(index, len(self)) from None
            return self._read(position)
        return sample_or_view(self, index)

    def __iter__(self) -> Iterator[Sample]:
        read, positions = self._read, self._positions
        for start in range(0, len(positions), _POSITIONS_AT_ONCE):  # as Python ints, but never all of them at once
            block = range(start, min(start + _POSITIONS_AT_ONCE, len(positions)))
            for position in as_index_array(composed(block, positions)).tolist():
                yield read(position)

    def __getitems__(self, indices: IndexArray) -> list[Sample]:
        """The samples at ``indices``, in one request to the source."""
        return self._source.__getitems__(self._taken(indices).tolist())

    def read_batch(self, indices: IndexArray) -> Batch:
        """The samples at ``indices`` as columns, in one request to the source."""
        return batch_at(self._source, self._taken(indices))

    def read_column(self, key: ColumnKey, indices: IndexArray | None = None) -> Column:
        """One column, in one request to the source, for this view's samples only."""
        return column_at(self._source, key, as_index_array(self._positions) if indices is None else self._taken(indices))

    def _taken(self, indices: IndexArray) -> IndexArrayOfInts:
        """The positions in the source at ``indices``, which anyone may have given."""
        positions = self._positions
        if type(positions) is np.ndarray and type(indices) is np.ndarray and indices.dtype == np.intp and indices.ndim == 1:
            try:
                return positions.take(indices)  # checks the bounds on its way, and counts negative ones from the end
            except IndexError:
                pass  # told with the position below
        return taken(positions, checked_indices(indices, len(positions)))

    def _located(self) -> tuple[DatasetIteratorIF, Positions | None]:
        return self._source, self._positions

    def _unchecked_reader(self) -> Callable[[int], Sample]:
        at, read = self._at, self._read
        return lambda index: read(at[index])

    def _batch_at(self, positions: IndexArrayOfInts) -> Batch:
        return batch_at(self._source, taken(self._positions, positions))

    def _column_at(self, key: ColumnKey, positions: IndexArrayOfInts | None) -> Column:
        return column_at(self._source, key, self._all_or_taken(positions))

    def _columns_at(self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None) -> list[Column]:
        return columns_at(self._source, keys, self._all_or_taken(positions))

    def _all_or_taken(self, positions: IndexArrayOfInts | None) -> IndexArrayOfInts:
        return as_index_array(self._positions) if positions is None else taken(self._positions, positions)

    def _arguments(self) -> dict[str, Any]:
        return {"indices": self._given, "view_tags": self._view_tags}

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        """The iterator that this view was made from."""
        return [self._dataset_iterator]

    @property
    def indices(self) -> Any:
        """The positions in ``underlying_iterators[0]``: an array if the view was made with one, otherwise a list of ints.

        Negative positions are resolved and masks written out. Made anew each time: in a loop, keep it in a variable.
        """
        positions = as_index_array(self._given)
        return positions.tolist() if self._gives_list else positions.astype(np.intp)

    @property
    def view_tags(self) -> dict[str, Any] | None:
        """What the view was tagged with; None if nothing."""
        return self._view_tags


class InformedDatasetIteratorView(DatasetIteratorView, InformedDatasetIteratorIF):
    """What slicing an informed iterator gives: a view that is still of that dataset."""

    _layer_name = "informed_view"

    @property
    def dataset_meta(self) -> DatasetMetaIF:
        """The meta of the iterator that was sliced."""
        meta: DatasetMetaIF = self._dataset_iterator.dataset_meta  # type: ignore[attr-defined]  # sample_or_view made it
        return meta

    def read_column(self, key: ColumnKey, indices: IndexArray | None = None) -> Column:
        """One column, also by its name, in one request to the source, for this view's samples only."""
        return super().read_column(column_key(self, key), indices)

    def _column_at(self, key: ColumnKey, positions: IndexArrayOfInts | None) -> Column:
        return super()._column_at(column_key(self, key), positions)

    def _columns_at(self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None) -> list[Column]:
        return super()._columns_at([column_key(self, key) for key in keys], positions)


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
