"""Samples that are several samples of another iterator, stacked."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
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
    Sample,
    adapted,
    batch_at,
    checked_indices,
    column_at,
    columns_at,
)
from data_stack.dataset.iterator.ownership import copied_objects, owned
from data_stack.dataset.iterator.sequence import SequenceDatasetIterator
from data_stack.dataset.iterator.stacking import emptied, stack_samples, stack_values, value_of
from data_stack.dataset.iterator.view import sample_or_view
from data_stack.dataset.meta import DatasetMetaIF, MetaFactory

__all__ = ["GroupedDatasetIterator", "distinct", "repeated_values"]

# Whatever else is in a column with one of these, it stays a column of objects.
_NEVER_STACKED = (str, bytes, type(None), Mapping)


class GroupedDatasetIterator(DatasetIterator):
    """What windows and batches have in common: a sample is ``read_batch`` of some positions of ``dataset_iterator``.

    A subclass sets ``_n_samples`` and defines ``_slots_of`` and ``_slots_at``. It does not define ``__len__`` or ``__getitem__``,
    which would take the short ways below from it.

    Args:
        dataset_iterator: what is grouped; it stays the caller's to close.
    """

    _n_samples: int

    def __init__(self, dataset_iterator: DatasetIteratorIF) -> None:
        self._dataset_iterator = dataset_iterator
        self._source = adapted(dataset_iterator)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_source"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._source = adapted(self._dataset_iterator)

    @abstractmethod
    def _slots_of(self, index: int) -> IndexArrayOfInts:
        """What sample ``index`` is made of, shape ``(k,)``, see :meth:`_positions_of`."""
        raise NotImplementedError

    @abstractmethod
    def _slots_at(self, indices: IndexArrayOfInts) -> IndexArrayOfInts | None:
        """The same for several, shape ``(n, k)``; None where they do not have as many each."""
        raise NotImplementedError

    def _positions_of(self, slots: IndexArrayOfInts) -> IndexArrayOfInts:
        """Positions in ``dataset_iterator`` for what the two above gave, shape ``(m,)``."""
        return slots

    def __len__(self) -> int:
        return self._n_samples

    def __getitem__(self, index: Any) -> Any:
        """A group for an int; a view for a slice or an index array."""
        if type(index) is int and 0 <= index < self._n_samples:
            return self._one(index)
        return sample_or_view(self, index)

    def __getitems__(self, indices: IndexArray) -> list[Sample]:
        """The groups at ``indices``, in one request."""
        return self._several(checked_indices(indices, self._n_samples))

    def read_batch(self, indices: IndexArray) -> Batch:
        """The groups at ``indices`` as columns of shape ``(n, k, ...)``, in one request."""
        return self._batch_at(checked_indices(indices, self._n_samples))

    def read_column(self, key: ColumnKey, indices: IndexArray | None = None) -> Column:
        """One column of the groups, shape ``(n, k, ...)``, in one request."""
        return self._column_at(key, None if indices is None else checked_indices(indices, self._n_samples))

    def _unchecked_reader(self) -> Callable[[int], Sample]:
        return self._one

    def _one(self, index: int) -> Sample:
        return owned([batch_at(self._source, self._positions_of(self._slots_of(index)))])

    def _several(self, indices: IndexArrayOfInts) -> list[Sample]:
        batch = self._groups_at(indices) if len(indices) > 1 else None
        if batch is None:
            return [self._one(index) for index in indices.tolist()]
        if isinstance(batch, dict):
            return [{key: column[row] for key, column in batch.items()} for row in range(len(indices))]
        if isinstance(batch, tuple):
            return [tuple([column[row] for column in batch]) for row in range(len(indices))]
        return list(batch)

    def _batch_at(self, positions: IndexArrayOfInts) -> Batch:
        if len(positions) == 0:
            return emptied(stack_samples([self._one(0)])) if self._n_samples else ()
        batch = self._groups_at(positions)
        return stack_samples(self._several(positions)) if batch is None else batch

    def _column_at(self, key: ColumnKey, positions: IndexArrayOfInts | None) -> Column:
        (column,) = self._columns_at([key], positions)
        return column

    def _columns_at(self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None) -> list[Column]:
        if positions is None:
            positions = np.arange(self._n_samples, dtype=np.intp)
        if len(positions) == 0:
            first = [self._one(0)] if self._n_samples else []
            return [stack_values([value_of(sample, key) for sample in first])[:0] for key in keys]
        slots = self._slots_at(positions)
        if slots is None or (not all(isinstance(key, str) for key in keys) and self._groups_are_bare()):
            samples = self._several(positions)
            return [stack_values([value_of(sample, key) for sample in samples]) for key in keys]
        wanted, inverse = distinct(slots)
        wanted = self._positions_of(wanted)
        columns = []
        for key, column in zip(keys, owned([tuple(columns_at(self._source, keys, wanted))]), strict=True):
            grouped = _grouped(repeated_values(column, inverse), slots.shape)
            columns.append(self._column_one_by_one(key, positions) if grouped is None else grouped)
        return columns

    def _column_one_by_one(self, key: ColumnKey, positions: IndexArrayOfInts) -> Column:
        source = self._source
        return copied_objects(
            stack_values([column_at(source, key, self._positions_of(self._slots_of(index))) for index in positions.tolist()])
        )

    def _groups_at(self, indices: IndexArrayOfInts) -> Batch | None:
        """Several groups read in one request; None where the groups one by one may look different."""
        slots = self._slots_at(indices)
        if slots is None:
            return None
        wanted, inverse = distinct(slots)
        batch = owned([batch_at(self._source, self._positions_of(wanted))])
        columns = list(batch.values()) if isinstance(batch, dict) else list(batch) if isinstance(batch, tuple) else [batch]
        grouped = []
        for column in columns:
            groups = _grouped(repeated_values(column, inverse), slots.shape)
            if groups is None:
                return None
            grouped.append(groups)
        if isinstance(batch, dict):
            return dict(zip(batch, grouped, strict=True))
        return tuple(grouped) if isinstance(batch, tuple) else grouped[0]

    def _groups_are_bare(self) -> bool:
        """Whether a group is one array, so that an int finds a sample in it and no column; found out once, by one sample."""
        bottom, _ = self._source._located()
        if type(bottom).__getitem__ is SequenceDatasetIterator.__getitem__:
            return False
        if "_bare" not in self.__dict__:
            self._bare = isinstance(batch_at(self._source, self._positions_of(self._slots_of(0)[:1])), np.ndarray)
        return self._bare

    def _followed(self, meta: DatasetMetaIF) -> DatasetMetaIF:
        # a target is an array of targets now
        return replace(MetaFactory.copy_dataset_meta(meta), target_kind=None)

    @property
    def underlying_iterators(self) -> list[DatasetIteratorIF]:
        """The iterator that is grouped."""
        return [self._dataset_iterator]


def distinct(slots: IndexArrayOfInts) -> tuple[IndexArrayOfInts, npt.NDArray[np.intp] | None]:
    """What to read for ``slots``, of any shape, and where each of them is in it (None: all are there in order).

    Groups that overlap much, such as one window after the other, are read without repeats, for a sample may be a picture to
    decode. That is seen from how close together the slots are; groups picked at random hardly overlap.
    """
    flat = slots.reshape(-1)
    if 2 * (int(flat.max()) - int(flat.min()) + 1) > flat.size:
        return flat, None
    wanted, inverse = np.unique(flat, return_inverse=True)
    return wanted, inverse


def repeated_values(column: Column, inverse: npt.NDArray[np.intp] | None) -> Column:
    """The values of several groups, those that some of them share for each by itself."""
    return column if inverse is None else copied_objects(column[inverse])


def _grouped(column: Column, shape: tuple[int, ...]) -> Column | None:
    """A column of shape ``(n * k, ...)`` as ``(n, k, ...)``; None where the ``n`` groups, stacked, may be something else.

    Objects are such a case: the values of one group may make an array by themselves, as arrays of equal shape do.
    """
    if column.dtype == object and column.ndim == 1:
        groups = column.reshape(shape)
        return groups if all(any(isinstance(value, _NEVER_STACKED) for value in group) for group in groups) else None
    return column.reshape(shape + column.shape[1:])
