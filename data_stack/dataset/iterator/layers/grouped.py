"""The base of layers whose samples are groups of samples, stacked: windows and batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from operator import itemgetter
from typing import Any, Union

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.access import SampleAccess
from data_stack.dataset.iterator.contract import Batch, ColumnArray, ColumnKey, Sample
from data_stack.dataset.iterator.detached_batches import detach
from data_stack.dataset.iterator.layer import LayerDatasetIterator
from data_stack.dataset.iterator.origins import Origin
from data_stack.dataset.meta import DatasetMeta
from data_stack.dataset.positions import IndexArrayOfInts, blocks_at, compose, take
from data_stack.values.copies import copy_objects
from data_stack.values.stacking import list_columns, list_samples, map_columns, stack_samples

Starts = Union[range, IndexArrayOfInts]
"""The places at which groups start."""

#: Types of values that keep a column a column of objects.
_UNSTACKED_TYPES = (str, bytes, type(None), Mapping)

_take_first = itemgetter(0)


class GroupedDatasetIterator(LayerDatasetIterator):
    """The base class of windows and batches.

    A sample is what ``read_batch`` returns for some samples below. A subclass makes a
    :class:`GroupedAccess`.
    """

    def _derive_meta(self, meta: DatasetMeta) -> DatasetMeta:
        # A target is an array of targets now.
        return replace(meta, target_kind=None)


class GroupedAccess(SampleAccess):
    """Access to groups of samples that follow each other, each a batch of the samples below.

    A *place* is the number of a sample in the order in which samples follow each other. A group has
    the samples at consecutive places.

    Args:
        below: the samples that are grouped.
        starts: the places at which groups start.
        length: number of samples in a group.
        order: the positions below of all places; None if places are positions.
        end: the place after the last sample. Groups that would reach beyond it are shorter. None if
            all groups have ``length`` samples.
    """

    #: The places at which groups start.
    _starts: Starts

    #: The number of samples in a group.
    _length: int

    #: The positions below of all places; None if places are positions.
    _order: IndexArrayOfInts | None

    #: The place at which the last groups end; None if all have one length.
    _end: int | None

    def __init__(
        self,
        below: SampleAccess,
        starts: Starts,
        length: int,
        order: IndexArrayOfInts | None = None,
        end: int | None = None,
    ) -> None:
        self.below = below
        self.n_samples = len(starts)
        self._starts = starts
        self._length = length
        self._order = order
        self._end = end

    # ------------------------------------------------------------------ where groups are

    def starts_at(self, positions: IndexArrayOfInts) -> IndexArrayOfInts:
        """Return the places at which groups start."""
        return take(self._starts, positions).astype(np.intp, copy=False)

    def runs_at(self, positions: IndexArrayOfInts) -> tuple[IndexArrayOfInts, int] | None:
        """Return the places at which groups start, shape ``(n,)``, and the length of the groups.

        None where the groups differ in length.
        """
        starts = self.starts_at(positions)
        if self._end is None:
            return starts, self._length
        lengths = np.minimum(self._end - starts, self._length)
        have_one_length = bool((lengths == lengths[0]).all())
        return (starts, int(lengths[0])) if have_one_length else None

    def positions_of(self, places: IndexArrayOfInts) -> IndexArrayOfInts:
        """Return the positions below of places, shape ``(m,)``."""
        return places if self._order is None else self._order.take(places)

    # ------------------------------------------------------------------ samples

    def sample(self, position: int) -> Sample:
        start = int(self._starts[position])
        stop = start + self._length
        if self._end is not None:
            stop = min(stop, self._end)
        if self._order is None:
            run = self.below.runs(np.array([start]), stop - start)
            if run is not None:
                return map_columns(_take_first, run)
        places = np.arange(start, stop, dtype=np.intp)
        return detach(self.below.batch(self.positions_of(places)))

    def samples(self, positions: IndexArrayOfInts) -> list[Sample]:
        groups = self._read_groups(positions) if len(positions) > 1 else None
        if groups is None:
            return [self.sample(position) for position in positions.tolist()]
        return list_samples(groups)

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        if len(positions) == 0:
            return self.empty_batch()
        groups: Batch | None = self._read_groups(positions)
        if groups is None:
            return stack_samples(self.samples(positions))
        return groups

    def columns(
        self, keys: Sequence[ColumnKey], positions: IndexArrayOfInts | None = None
    ) -> list[ColumnArray]:
        if positions is None:
            positions = np.arange(self.n_samples, dtype=np.intp)
        if len(positions) and self._names_columns(keys):
            groups = self._read_groups(positions, keys)
            if groups is not None:
                return list(groups)
        return super().columns(keys, positions)

    def _names_columns(self, keys: Sequence[ColumnKey]) -> bool:
        """Return whether ``keys`` name columns: an int in a group of bare values names a sample."""
        return all(isinstance(key, str) for key in keys) or not self._groups_are_bare

    @cached_property
    def _groups_are_bare(self) -> bool:
        """Whether a group is one array, as samples are bare values; found by one sample."""
        first_place = self.starts_at(np.zeros(1, dtype=np.intp))
        return isinstance(self.below.batch(self.positions_of(first_place)), np.ndarray)

    def _read_groups(
        self, positions: IndexArrayOfInts, keys: Sequence[ColumnKey] | None = None
    ) -> Any:
        """Read several groups, or columns of them, in one request.

        Returns:
            A batch, or a tuple of the columns. None where stacking groups that are read one by one
            may have another result.
        """
        starts_and_length = self.runs_at(positions)
        if starts_and_length is None:
            return None
        starts, length = starts_and_length
        if self._order is None:
            runs = self.below.runs(starts, length, keys)
            if runs is not None:
                return runs
        places = starts[:, np.newaxis] + np.arange(length, dtype=np.intp)
        wanted, inverse = find_distinct(places)
        positions_below = self.positions_of(wanted)
        if keys is None:
            batch = self.below.batch(positions_below)
        else:
            batch = tuple(self.below.columns(keys, positions_below))

        def group(column: ColumnArray) -> ColumnArray | None:
            return _group_values(repeat_values(column, inverse), places.shape)

        groups = map_columns(group, detach(batch))
        if any(column is None for column in list_columns(groups)):
            return None
        return groups

    # ------------------------------------------------------------------ what is known of them

    @property
    def releases_gil(self) -> bool:  # type: ignore[override]  # read-only here
        return self.below.releases_gil

    @property
    def prefers_blocks(self) -> bool:  # type: ignore[override]  # read-only here
        return self.below.prefers_blocks

    @cached_property
    def fixed_columns(self) -> bool:  # type: ignore[override]  # read-only here
        if self._end is not None and self.n_samples:
            is_last_shorter = bool(self._starts[-1] + self._length > self._end)
            if is_last_shorter:
                return False
        return self.below.runs(np.empty(0, dtype=np.intp), self._length) is not None

    def blocks(self) -> npt.NDArray[np.int64] | None:
        """Return the blocks below, each with the groups that start in it."""
        return blocks_at(compose(self._starts, self._order), self.below.blocks())

    def prefetch(
        self, positions: IndexArrayOfInts, keys: Sequence[int | str] | None = None
    ) -> None:
        self.below.prefetch(self.positions_of(self.starts_at(positions)))

    def locate(self, position: int) -> str | None:
        first_place = self.starts_at(np.array([position]))
        return self.below.locate(int(self.positions_of(first_place)[0]))

    def origins(self, position: int) -> Sequence[Origin]:
        start = int(self._starts[position])
        stop = start + self._length
        if self._end is not None:
            stop = min(stop, self._end)
        return self.origins_of_places(np.arange(start, stop, dtype=np.intp))

    def origins_of_places(self, places: IndexArrayOfInts) -> list[Origin]:
        """Return the origins of the samples at places, one after the other."""
        origins: list[Origin] = []
        for position in self.positions_of(places).tolist():
            origins.extend(self.below.origins(position))
        return origins


def find_distinct(
    places: IndexArrayOfInts,
) -> tuple[IndexArrayOfInts, npt.NDArray[np.intp] | None]:
    """Return which places to read for ``places``, each once if they repeat much.

    Groups that overlap, such as windows one after the other, have samples in common, and a sample
    may be a picture to decode. Groups at random positions hardly overlap, and finding the distinct
    places would take time for nothing.

    Args:
        places: at least one place; an array of any shape.

    Returns:
        The places to read, shape ``(n,)``; and for each of ``places``, flattened, its index among
        them. None in place of the indices if the places to read are ``places``, flattened.
    """
    flat = places.reshape(-1)
    n_spanned = int(flat.max()) - int(flat.min()) + 1
    # Unless each place repeats twice on average, few places can be saved.
    if 2 * n_spanned > flat.size:
        return flat, None
    wanted, inverse = np.unique(flat, return_inverse=True)
    return wanted, inverse


def repeat_values(column: ColumnArray, inverse: npt.NDArray[np.intp] | None) -> ColumnArray:
    """Return the values of several groups, made of the values that were read.

    Each group gets a copy of its own of an object that several groups have in common.

    Args:
        column: the values that were read.
        inverse: the indices that :func:`find_distinct` returned.
    """
    return column if inverse is None else copy_objects(column[inverse])


def _group_values(column: ColumnArray, shape: tuple[int, ...]) -> ColumnArray | None:
    """Return a column of shape ``(n * k, ...)`` as groups of shape ``(n, k, ...)``.

    None where stacking the ``n`` groups one by one may have another result. That may be so with
    objects: the arrays of one group may have one shape, and make a larger array.
    """
    if column.dtype != object or column.ndim > 1:
        return column.reshape(shape + column.shape[1:])
    groups = column.reshape(shape)
    for group in groups:
        stays_objects = any(isinstance(value, _UNSTACKED_TYPES) for value in group)
        if not stays_objects:
            return None
    return groups
