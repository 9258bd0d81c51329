"""The samples of an iterator at some positions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.access import DeclaredColumn, DistinctValues, SampleAccess
from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.iterator.layer import LayerDatasetIterator, layer
from data_stack.dataset.iterator.origins import Origin
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
from data_stack.values.stacking import Batch, ColumnArray

#: Positions that are Python ints at the same time while samples are iterated over.
_POSITIONS_AT_ONCE = 1 << 16


@layer("view")
class DatasetIteratorView(LayerDatasetIterator):
    """The samples of ``dataset_iterator`` at ``indices``, in that order; nothing is copied.

    A view of a view reads from the bottom directly, so depth costs nothing;
    ``underlying_iterators`` still has the iterator that the view was made from. A slice or range
    takes no memory; other indices take 4 bytes each, or 8 in an iterator of more than 2**31
    samples.

    Args:
        dataset_iterator: the iterator looked through; it is not closed.
        indices: integers, each in ``[-n, n)`` for an iterator of n samples, repeats allowed; or n
            bools; or a slice. They are copied: changing them afterwards does not change the view.
        view_tags: notes of the caller about this view, which nothing of data_stack reads.

    Raises:
        DatasetOutOfBoundsError: a position lies outside of ``dataset_iterator``.
        TypeError: ``indices`` are not one-dimensional, or neither integers nor bools.
    """

    #: The positions in the iterator below.
    _positions: Positions

    #: Whether the property ``indices`` is a list; False for a view that was made with an array.
    _has_list_of_indices: bool

    #: The notes of the caller; None if there are none.
    _view_tags: dict[str, Any] | None

    def __init__(
        self,
        dataset_iterator: DatasetIteratorIF,
        indices: npt.ArrayLike | slice | ComputedPositions,
        view_tags: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(dataset_iterator)
        # Checked here, not in __getitem__: a wrong split then fails where it was made, not hours
        # later in a worker.
        if isinstance(indices, ComputedPositions):
            self._positions = indices
        else:
            self._positions = check_positions(indices, len(as_iterator(dataset_iterator)))
        self._has_list_of_indices = not hasattr(indices, "__array__")
        self._view_tags = None if view_tags is None else dict(view_tags)
        self._made_with = {"indices": self._positions, "view_tags": self._view_tags}

    def make_access(self) -> SampleAccess:
        return RearrangedAccess(self._below(), self._positions)

    @property
    def indices(self) -> Any:
        """The positions in ``underlying_iterators[0]``, from 0 on.

        An array if the view was made with one, otherwise a list of ints. Each access makes a new
        object: in a loop, keep it in a variable.
        """
        positions = as_index_array(self._positions)
        if self._has_list_of_indices:
            return positions.tolist()
        return positions.astype(np.intp)

    @property
    def view_tags(self) -> dict[str, Any] | None:
        """The notes of the caller about this view; None if there are none."""
        return self._view_tags

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        # pickle does not keep that an array is read-only
        if isinstance(self._positions, np.ndarray):
            self._positions.setflags(write=False)


class RearrangedAccess(SampleAccess):
    """Access to the samples of ``source`` at ``positions``: a view, a shuffle, a shard, a fold.

    Positions are composed once, so that a view of a view reads from the bottom directly.

    Args:
        source: the samples that are rearranged.
        positions: the position in ``source`` of each sample. A range or a formula takes no memory.
    """

    #: The access that is read: the first one below that does more than rearrange samples.
    _source: SampleAccess

    #: The positions in ``_source``.
    _positions: Positions

    #: The same positions, to look up one. A memoryview returns an int in half the time of an
    #: array's item().
    _single_positions: Any

    def __init__(self, source: SampleAccess, positions: Positions) -> None:
        self._source, positions_below = source.unwrap()
        if positions_below is not None:
            positions = compose(positions, positions_below)
        self._positions = positions
        self._single_positions = positions
        if isinstance(positions, np.ndarray):
            self._single_positions = positions.data
        self.n_samples = len(positions)

    # ------------------------------------------------------------------ samples

    def sample(self, position: int) -> Any:
        return self._source.sample(self._single_positions[position])

    def make_sample_reader(self) -> Callable[[int], Any]:
        # a closure takes two thirds of the time of a method
        read_source = self._source.make_sample_reader()
        positions = self._single_positions
        if isinstance(positions, ComputedPositions):
            compute = positions.at
            return lambda position: read_source(compute(position))
        return lambda position: read_source(positions[position])

    def values_of_sample(self, position: int, keys: Sequence[int | str]) -> list[Any] | None:
        return self._source.values_of_sample(self._single_positions[position], keys)

    def samples(self, positions: IndexArrayOfInts) -> list[Any]:
        return self._source.samples(take(self._positions, positions))

    def batch(self, positions: IndexArrayOfInts) -> Batch:
        return self._source.batch(take(self._positions, positions))

    def columns(
        self, keys: Sequence[int | str], positions: IndexArrayOfInts | None = None
    ) -> list[ColumnArray]:
        if positions is None:
            return self._source.columns(keys, as_index_array(self._positions))
        return self._source.columns(keys, take(self._positions, positions))

    def iterate_column(self, key: int | str, positions: IndexArrayOfInts) -> Iterator[Any] | None:
        return self._source.iterate_column(key, take(self._positions, positions))

    def distinct_values(
        self, key: int | str, positions: IndexArrayOfInts | None = None
    ) -> DistinctValues | None:
        if positions is None:
            return self._source.distinct_values(key, as_index_array(self._positions))
        return self._source.distinct_values(key, take(self._positions, positions))

    def iterate(self, start: int, stop: int) -> Iterator[Any]:
        read_source = self._source.make_sample_reader()
        for first in range(start, stop, _POSITIONS_AT_ONCE):
            block = range(first, min(first + _POSITIONS_AT_ONCE, stop))
            for position in as_index_array(compose(block, self._positions)).tolist():
                yield read_source(position)

    def runs(
        self, starts: IndexArrayOfInts, length: int, keys: Sequence[int | str] | None = None
    ) -> Batch | None:
        is_run_of_source = isinstance(self._positions, range) and self._positions.step == 1
        if not is_run_of_source:
            return None
        return self._source.runs(take(self._positions, starts), length, keys)

    # ------------------------------------------------------------------ what is known of them

    @property
    def fixed_columns(self) -> bool:  # type: ignore[override]  # read-only here
        return self._source.fixed_columns

    @property
    def releases_gil(self) -> bool:  # type: ignore[override]  # read-only here
        return self._source.releases_gil

    @property
    def prefers_blocks(self) -> bool:  # type: ignore[override]  # read-only here
        return self._source.prefers_blocks

    @property
    def stacks_samples(self) -> bool:  # type: ignore[override]  # read-only here
        return self._source.stacks_samples

    @property
    def n_at_once(self) -> int:  # type: ignore[override]  # read-only here
        return self._source.n_at_once

    def blocks(self) -> npt.NDArray[np.int64] | None:
        """Return how many samples of each block of the source are here.

        None if the samples are not in the order of the source.
        """
        return blocks_at(self._positions, self._source.blocks())

    def prefetch(
        self, positions: IndexArrayOfInts, keys: Sequence[int | str] | None = None
    ) -> None:
        self._source.prefetch(take(self._positions, positions), keys)

    def locate(self, position: int) -> str | None:
        return self._source.locate(int(self._single_positions[position]))

    def origins(self, position: int) -> Sequence[Origin]:
        return self._source.origins(int(self._single_positions[position]))

    def unwrap(self) -> tuple[SampleAccess, Positions | None]:
        return self._source, self._positions

    def declare_columns(self) -> Mapping[str, DeclaredColumn] | None:
        return self._source.declare_columns()
