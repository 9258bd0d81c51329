"""Samples that are several samples of another iterator, stacked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.access import SampleAccess, copy_objects, detach
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.contract import Batch, Column, ColumnKey, DatasetIteratorIF, Sample
from data_stack.dataset.iterator.layer import LayerDatasetIterator, layer
from data_stack.dataset.meta import DatasetMeta
from data_stack.dataset.positions import IndexArrayOfInts, blocks_at, check_integer, compose, take
from data_stack.values.stacking import list_columns, list_samples, map_columns, stack_samples


class GroupedDatasetIterator(LayerDatasetIterator):
    """Base class of windows and batches: a sample is ``read_batch`` of some samples of the iterator below.

    A subclass makes a :class:`GroupedAccess`.
    """

    def _derive_meta(self, meta: DatasetMeta) -> DatasetMeta:
        # a target is an array of targets now
        return replace(meta, target_kind=None)


class GroupedAccess(SampleAccess):
    """Access to groups of samples that follow each other, each of which is a batch of the samples below.

    Args:
        below: what is grouped.
        starts: the places at which groups start.
        length: number of samples in a group.
        order: the positions below of all places; None if places are positions.
        end: the place at which the last groups end, which may be shorter; None if all are of one length.
    """

    def __init__(
        self,
        below: SampleAccess,
        starts: range | IndexArrayOfInts,
        length: int,
        order: IndexArrayOfInts | None = None,
        end: int | None = None,
    ) -> None:
        self.below, self.n_samples = below, len(starts)
        self._starts, self._length, self._order, self._end = starts, length, order, end

    releases_gil = property(attrgetter("below.releases_gil"))
    prefers_blocks = property(attrgetter("below.prefers_blocks"))

    @cached_property
    def fixed_columns(self) -> bool:  # type: ignore[override]  # read-only here
        is_full = (
            self._end is None or not self.n_samples or self._starts[-1] + self._length <= self._end
        )
        return (
            bool(is_full) and self.below.runs(np.empty(0, dtype=np.intp), self._length) is not None
        )

    # ------------------------------------------------------------------ where groups are

    def starts_at(self, positions: IndexArrayOfInts) -> IndexArrayOfInts:
        """The places at which groups start."""
        return take(self._starts, positions).astype(np.intp, copy=False)

    def runs_at(self, positions: IndexArrayOfInts) -> tuple[IndexArrayOfInts, int] | None:
        """The places at which groups start, and their length; None where they differ in length."""
        starts = self.starts_at(positions)
        if self._end is None:
            return starts, self._length
        lengths = np.minimum(self._end - starts, self._length)
        return (starts, int(lengths[0])) if bool((lengths == lengths[0]).all()) else None

    def positions_of(self, places: IndexArrayOfInts) -> IndexArrayOfInts:
        """Positions below of places, shape ``(m,)``."""
        return places if self._order is None else self._order.take(places)

    def blocks(self) -> npt.NDArray[np.int64] | None:
        """Those below, each with the groups that start in it."""
        return blocks_at(compose(self._starts, self._order), self.below.blocks())

    def prefetch(
        self, positions: IndexArrayOfInts, keys: Sequence[int | str] | None = None
    ) -> None:
        self.below.prefetch(self.positions_of(self.starts_at(positions)))

    def locate(self, position: int) -> str | None:
        return self.below.locate(int(self.positions_of(self.starts_at(np.array([position])))[0]))

    # ------------------------------------------------------------------ samples

    def sample(self, position: int) -> Sample:
        start, length = int(self._starts[position]), self._length
        if self._end is not None:
            length = min(length, self._end - start)
        runs = self.below.runs(np.array([start]), length) if self._order is None else None
        if runs is not None:
            return map_columns(_FIRST, runs)
        return detach(
            self.below.batch(self.positions_of(np.arange(start, start + length, dtype=np.intp)))
        )

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

    def columns(
        self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None
    ) -> list[Column]:
        at = np.arange(self.n_samples, dtype=np.intp) if positions is None else positions
        if len(at) and (all(isinstance(key, str) for key in keys) or not self._groups_are_bare):
            groups = self._groups_at(at, keys)
            if groups is not None:
                return list(groups)
        return super().columns(keys, at)

    def _groups_at(
        self, positions: IndexArrayOfInts, keys: Sequence[ColumnKey] | None = None
    ) -> Any:
        """Several groups, or columns of them, read in one request; None where the groups one by one may look different."""
        found = self.runs_at(positions)
        if found is None:
            return None
        starts, length = found
        runs = self.below.runs(starts, length, keys) if self._order is None else None
        if runs is not None:
            return runs
        places = starts[:, np.newaxis] + np.arange(length, dtype=np.intp)
        wanted, inverse = distinct(places)
        at = self.positions_of(wanted)
        batch = detach(
            self.below.batch(at) if keys is None else tuple(self.below.columns(keys, at))
        )
        groups = map_columns(
            lambda column: _group(repeat_values(column, inverse), places.shape), batch
        )
        return None if any(column is None for column in list_columns(groups)) else groups

    @cached_property
    def _groups_are_bare(self) -> bool:
        """Whether a group is one array, so that an int finds a sample in it and no column; found out once, by one sample."""
        return isinstance(
            self.below.batch(self.positions_of(self.starts_at(np.zeros(1, dtype=np.intp)))),
            np.ndarray,
        )


_FIRST = itemgetter(0)


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
        groups, unstacked = (
            column.reshape(shape),
            (str, bytes, type(None), Mapping),
        )  # with one of these it stays objects
        return (
            groups
            if all(any(isinstance(value, unstacked) for value in group) for group in groups)
            else None
        )
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

    def __init__(
        self, dataset_iterator: DatasetIteratorIF, batch_size: int, *, drop_last: bool = False
    ) -> None:
        size = check_integer("batch_size", batch_size, at_least=1)
        super().__init__(dataset_iterator, batch_size=size, drop_last=drop_last)
        self._n_below = len(as_iterator(dataset_iterator))

    def make_access(self) -> SampleAccess:
        size, end = self._made_with["batch_size"], self._n_below
        starts = range(0, end - size + 1 if self._made_with["drop_last"] else end, size)
        return GroupedAccess(self._below(), starts, size, end=end)
