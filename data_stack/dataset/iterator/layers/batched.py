"""Samples that are several samples of another iterator, stacked."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.access import SampleAccess, copy_objects, detach
from data_stack.dataset.iterator.contract import Batch, Column, ColumnKey, DatasetIteratorIF, Sample, as_iterator
from data_stack.dataset.iterator.layer import LayerDatasetIterator, layer
from data_stack.dataset.meta import DatasetMeta
from data_stack.dataset.positions import IndexArrayOfInts, check_integer
from data_stack.values.stacking import list_columns, list_samples, map_columns, stack_samples


class GroupedDatasetIterator(LayerDatasetIterator):
    """Base class of windows and batches: a sample is ``read_batch`` of some positions of the iterator below.

    A subclass makes a :class:`GroupedAccess`.
    """

    def _derive_meta(self, meta: DatasetMeta) -> DatasetMeta:
        # a target is an array of targets now
        return replace(meta, target_kind=None)


class GroupedAccess(SampleAccess):
    """Access to groups of samples, each of which is a batch of the samples below.

    A subclass defines ``slots_of`` and ``slots_at``, and where slots are not positions ``positions_of``.

    Args:
        below: what is grouped.
        n_samples: number of groups.
    """

    def __init__(self, below: SampleAccess, n_samples: int) -> None:
        self.below, self.n_samples = below, n_samples
        self.releases_gil, self.prefers_blocks = below.releases_gil, below.prefers_blocks

    @abstractmethod
    def slots_of(self, position: int) -> IndexArrayOfInts:
        """What a group is made of, shape ``(k,)``, see :meth:`positions_of`."""

    @abstractmethod
    def slots_at(self, positions: IndexArrayOfInts) -> IndexArrayOfInts | None:
        """The same for several, shape ``(n, k)``; None where they do not have as many each."""

    def positions_of(self, slots: IndexArrayOfInts) -> IndexArrayOfInts:
        """Positions below for what the two methods above returned, shape ``(m,)``."""
        return slots

    def prefetch(self, positions: IndexArrayOfInts, keys: Sequence[int | str] | None = None) -> None:
        firsts = np.array([self.slots_of(position)[0] for position in positions.tolist()], dtype=np.intp)
        self.below.prefetch(self.positions_of(firsts))

    def locate(self, position: int) -> str | None:
        return self.below.locate(int(self.positions_of(self.slots_of(position)[:1])[0]))

    def sample(self, position: int) -> Sample:
        return detach(self.below.batch(self.positions_of(self.slots_of(position))))

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        batch = self._groups_at(positions) if len(positions) > 1 else None
        if batch is None:
            return [self.sample(position) for position in positions.tolist()]
        return list_samples(batch)

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        if len(positions) == 0:
            return self.empty_batch()
        batch = self._groups_at(positions)
        return stack_samples(self.samples(positions)) if batch is None else batch

    def columns(self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None) -> list[Column]:
        at = np.arange(self.n_samples, dtype=np.intp) if positions is None else positions
        slots = self.slots_at(at) if len(at) else None
        if slots is not None and (all(isinstance(key, str) for key in keys) or not self._groups_are_bare):
            groups = self._read_groups(slots, lambda wanted: tuple(self.below.columns(keys, wanted)))
            if not any(column is None for column in groups):
                return list(groups)
        return super().columns(keys, at)

    def _groups_at(self, positions: IndexArrayOfInts) -> Batch | None:
        """Several groups read in one request; None where the groups one by one may look different."""
        slots = self.slots_at(positions)
        if slots is None:
            return None
        groups: Batch = self._read_groups(slots, self.below.batch)
        return None if any(column is None for column in list_columns(groups)) else groups

    def _read_groups(self, slots: IndexArrayOfInts, read: Callable[[IndexArrayOfInts], Batch]) -> Any:
        """What ``read`` returns for all groups in one request, with None in place of columns that :func:`_group` refuses."""
        wanted, inverse = distinct(slots)
        batch = detach(read(self.positions_of(wanted)))
        return map_columns(lambda column: _group(repeat_values(column, inverse), slots.shape), batch)

    @cached_property
    def _groups_are_bare(self) -> bool:
        """Whether a group is one array, so that an int finds a sample in it and no column; found out once, by one sample."""
        return isinstance(self.below.batch(self.positions_of(self.slots_of(0)[:1])), np.ndarray)


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


def repeat_values(column: Column, inverse: npt.NDArray[np.intp] | None) -> Column:
    """The values of several groups, those that some of them share for each by itself."""
    return column if inverse is None else copy_objects(column[inverse])


def _group(column: Column, shape: tuple[int, ...]) -> Column | None:
    """A column of shape ``(n * k, ...)`` as ``(n, k, ...)``; None where the ``n`` groups, stacked, may be something else.

    Objects are such a case: the values of one group may make an array by themselves, as arrays of equal shape do.
    """
    if column.dtype == object and column.ndim == 1:
        groups, unstacked = column.reshape(shape), (str, bytes, type(None), Mapping)  # with one of these it stays objects
        return groups if all(any(isinstance(value, unstacked) for value in group) for group in groups) else None
    return column.reshape(shape + column.shape[1:])


@layer("batched")
class BatchedDatasetIterator(GroupedDatasetIterator):
    """Sample ``i`` is the batch of the samples ``i * batch_size`` to ``(i + 1) * batch_size - 1`` of ``dataset_iterator``.

    It is what ``read_batch`` returns for them: columns of shape ``(batch_size, ...)``, in one request. Several batches are one
    request too, of shape ``(n, batch_size, ...)``. Making it reads nothing and keeps nothing, however many samples there are.

    Args:
        dataset_iterator: what is read; it stays the caller's to close.
        batch_size: samples in a batch, at least 1.
        drop_last: whether the last batch is left out if it is shorter. Otherwise batches stacked together with it are columns of
            objects, one array each.

    Raises:
        ConfigError: ``batch_size`` is not a positive integer.
    """

    def __init__(self, dataset_iterator: DatasetIteratorIF, batch_size: int, *, drop_last: bool = False) -> None:
        size = check_integer("batch_size", batch_size, at_least=1)
        super().__init__(dataset_iterator, batch_size=size, drop_last=drop_last)
        self._n_below = len(as_iterator(dataset_iterator))

    def make_access(self) -> SampleAccess:
        return _BatchedAccess(self._below(), self._n_below, **self._made_with)


class _BatchedAccess(GroupedAccess):
    """Access to batches of ``batch_size`` of the first ``n_below`` samples below."""

    def __init__(self, below: SampleAccess, n_below: int, batch_size: int, *, drop_last: bool) -> None:
        self._batch_size, self._n_below = batch_size, n_below
        self._n_full, rest = divmod(n_below, batch_size)
        super().__init__(below, self._n_full + (1 if rest and not drop_last else 0))

    def slots_of(self, position: int) -> IndexArrayOfInts:
        start = position * self._batch_size
        return np.arange(start, min(start + self._batch_size, self._n_below), dtype=np.intp)

    def slots_at(self, positions: IndexArrayOfInts) -> IndexArrayOfInts | None:
        is_short = positions == self._n_full
        if not bool(is_short.any()):
            return positions.astype(np.intp)[:, np.newaxis] * self._batch_size + np.arange(self._batch_size, dtype=np.intp)
        return np.tile(self.slots_of(self._n_full), (len(positions), 1)) if bool(is_short.all()) else None
