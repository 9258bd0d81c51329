"""The samples of an iterator at some positions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.access import DeclaredColumn, DistinctValues, SampleAccess
from data_stack.dataset.iterator.contract import DatasetIteratorIF, as_iterator
from data_stack.dataset.iterator.layer import LayerDatasetIterator, layer
from data_stack.dataset.positions import (
    ComputedPositions,
    IndexArrayOfInts,
    Positions,
    as_index_array,
    blocks_at,
    check_positions,
    compose,
    take,
)
from data_stack.values.stacking import Batch, Column

_POSITIONS_AT_ONCE = 1 << 16


@layer("view")
class DatasetIteratorView(LayerDatasetIterator):
    """The samples of ``dataset_iterator`` at ``indices``, in that order; nothing is copied.

    A view of a view reads from the bottom directly, so depth costs nothing; ``underlying_iterators`` still names the
    iterator it was made from. A slice or range keeps no array, however long; other indices take 4 bytes each, or 8 in an
    iterator of more than 2**31 samples.

    Args:
        dataset_iterator: the iterator looked through; it stays the caller's to close.
        indices: integers, each in ``[-n, n)`` for an iterator of n samples, repeats allowed; or n bools; or a slice.
            They are copied: changing them afterwards does not change the view.
        view_tags: notes of the caller about this view.

    Raises:
        DatasetOutOfBoundsError: a position lies outside of ``dataset_iterator``.
        TypeError: ``indices`` are not one-dimensional, or neither integers nor bools.
    """

    def __init__(
        self,
        dataset_iterator: DatasetIteratorIF,
        indices: npt.ArrayLike | slice | ComputedPositions,
        view_tags: Mapping[str, Any] | None = None,
    ) -> None:
        # Checked here, not in __getitem__: a wrong split then fails where it was made, not hours later in a worker.
        super().__init__(dataset_iterator)
        length = len(as_iterator(dataset_iterator))
        self._given: Positions = (
            indices if isinstance(indices, ComputedPositions) else check_positions(indices, length)
        )
        self._gives_list = not hasattr(indices, "__array__")
        self._view_tags = None if view_tags is None else dict(view_tags)
        self._made_with = {"indices": self._given, "view_tags": self._view_tags}

    def make_access(self) -> SampleAccess:
        return RearrangedAccess(self._below(), self._given)

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if isinstance(self._given, np.ndarray):
            self._given.setflags(write=False)

    @property
    def indices(self) -> Any:
        """The positions in ``underlying_iterators[0]``: an array if the view was made with one, otherwise a list of ints.

        Negative positions and masks are resolved. Each call makes a new object: in a loop, keep it in a variable.
        """
        positions = as_index_array(self._given)
        return positions.tolist() if self._gives_list else positions.astype(np.intp)

    view_tags = property(
        attrgetter("_view_tags"), doc="What the view was tagged with; None if nothing."
    )


class RearrangedAccess(SampleAccess):
    """Access to the samples of ``source`` at ``positions``: a view, a shuffle, a shard, a fold.

    Positions are composed once, so that a view of a view reads from the bottom directly.

    Args:
        source: what is looked through.
        positions: in ``source``; a range or a formula stays such.
    """

    def __init__(self, source: SampleAccess, positions: Positions) -> None:
        self._source, inner = source.unwrap()
        self._positions = chosen = positions if inner is None else compose(positions, inner)
        self._take = chosen.take if isinstance(chosen, ComputedPositions) else partial(take, chosen)
        # a memoryview returns an int in half the time of an array's item()
        self._at = at = chosen.data if isinstance(chosen, np.ndarray) else chosen
        self._read = read = self._source.sample
        self.n_samples = len(chosen)
        # a closure takes two thirds of the time of a method
        self.sample = lambda position: read(at[position])  # type: ignore[method-assign]

    fixed_columns = property(attrgetter("_source.fixed_columns"))
    releases_gil = property(attrgetter("_source.releases_gil"))
    prefers_blocks = property(attrgetter("_source.prefers_blocks"))
    stacks_samples = property(attrgetter("_source.stacks_samples"))
    n_at_once = property(attrgetter("_source.n_at_once"))

    def sample(self, position: int) -> Any:
        return self._read(self._at[position])

    def values_of_sample(self, position: int, keys: Sequence[int | str]) -> list[Any] | None:
        return self._source.values_of_sample(self._at[position], keys)

    def samples(self, positions: IndexArrayOfInts) -> list[Any]:
        return self._source.samples(self._take(positions))

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        return self._source.batch(self._take(positions))

    def columns(
        self, keys: Sequence[int | str], positions: IndexArrayOfInts | None = None
    ) -> list[Column]:
        wanted = as_index_array(self._positions) if positions is None else self._take(positions)
        return self._source.columns(keys, wanted)

    def each(self, key: int | str, positions: IndexArrayOfInts) -> Iterator[Any] | None:
        return self._source.each(key, self._take(positions))

    def distinct_values(
        self, key: int | str, positions: IndexArrayOfInts | None = None
    ) -> DistinctValues | None:
        wanted = as_index_array(self._positions) if positions is None else self._take(positions)
        return self._source.distinct_values(key, wanted)

    def iterate(self, start: int, stop: int) -> Iterator[Any]:
        read = self._read
        for first in range(
            start, stop, _POSITIONS_AT_ONCE
        ):  # as Python ints, but never all of them at once
            block = range(first, min(first + _POSITIONS_AT_ONCE, stop))
            for position in as_index_array(compose(block, self._positions)).tolist():
                yield read(position)

    def runs(
        self, starts: IndexArrayOfInts, length: int, keys: Sequence[int | str] | None = None
    ) -> Batch | None:
        chosen = self._positions
        is_run = isinstance(chosen, range) and chosen.step == 1
        return self._source.runs(self._take(starts), length, keys) if is_run else None

    def blocks(self) -> npt.NDArray[np.int64] | None:
        """Those of the source, as far as its samples are here, if they are in its order."""
        return blocks_at(self._positions, self._source.blocks())

    def prefetch(
        self, positions: IndexArrayOfInts, keys: Sequence[int | str] | None = None
    ) -> None:
        self._source.prefetch(self._take(positions), keys)

    def locate(self, position: int) -> str | None:
        return self._source.locate(int(self._at[position]))

    def unwrap(self) -> tuple[SampleAccess, Positions | None]:
        return self._source, self._positions

    def declare_columns(self) -> Mapping[str, DeclaredColumn] | None:
        return self._source.declare_columns()
