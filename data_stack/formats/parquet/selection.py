"""Maps the samples of a dataset to rows of row groups."""

from __future__ import annotations

import bisect
import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.exception import ConfigError
from data_stack.formats.parquet.columns import CellError
from data_stack.formats.parquet.known_values import instants_of, types_of
from data_stack.formats.parquet.row_groups import RowGroups
from data_stack.formats.parquet.selecting import Predicate, PredicateError
from data_stack.formats.parquet.selecting.expressions import could_match, suits_bounds_of_floats
from data_stack.formats.parquet.selecting.predicate import InstantColumns
from data_stack.io.parallel import Workers
from data_stack.util.processors import n_threads
from data_stack.util.stretches import Stretches
from data_stack.values.stacked_values import objects
from data_stack.values.stacking import Column, stack_values

_Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Located:
    """The places of some samples.

    Attributes:
        groups: their row groups, ascending.
        which: for each sample the index of its row group in ``groups``, shape ``(n,)``; None for a single row group.
        rows: for each sample its position among the samples of its row group, shape ``(n,)``.
    """

    groups: list[int]
    which: npt.NDArray[np.intp] | None
    rows: _Integers

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, number: int) -> tuple[_Integers, npt.NDArray[np.intp]]:
        """The rows in the row group ``groups[number]``, and their positions among the samples."""
        if self.which is None:
            return self.rows, np.arange(len(self.rows))
        order, bounds = self._by_group
        places = order[bounds[number] : bounds[number + 1]]
        return self.rows[places], places

    @functools.cached_property
    def counts(self) -> list[int]:
        """Number of rows in each row group."""
        if self.which is None:
            return [len(self.rows)]
        counts: list[int] = np.bincount(self.which, minlength=len(self.groups)).tolist()
        return counts

    @functools.cached_property
    def _by_group(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """The samples in the order of their row groups, and the start of each row group."""
        if self.which is None:
            return np.arange(len(self.rows)), np.array([0, len(self.rows)])
        few = self.which.astype(np.uint16) if len(self.groups) <= 1 << 16 else self.which  # sorted without comparisons
        return np.argsort(few, kind="stable"), np.cumsum([0, *self.counts])


class Gathering:
    """Collects one column of a batch, row group by row group, so that they need not be in memory together.

    Args:
        located: the places of the rows, which must exist.
    """

    def __init__(self, located: Located) -> None:
        self._located = located
        self._batch: npt.NDArray[Any] | None = None
        self._pieces: list[Column] = []
        self._places: list[npt.NDArray[np.intp]] = []

    def put(self, number: int, values: Column) -> None:
        """Add the values of the rows of one row group.

        Args:
            number: index of the row group in ``located.groups``.
            values: shape ``(n, ...)``.
        """
        _, places = self._located.part(number)
        if not self._pieces and (self._batch is None or _are_alike(self._batch, values)):
            self._into(places, values)
            return
        if self._batch is not None:  # earlier values have another dtype or shape
            self._pieces = [self._batch[each] for each in self._places]
            self._batch = None
        self._pieces.append(values)
        self._places.append(places)

    def _into(self, places: npt.NDArray[np.intp], values: Column) -> None:
        if self._batch is None:
            self._batch = np.empty((len(self._located), *values.shape[1:]), values.dtype)
        self._batch[places] = values
        self._places.append(places)

    def column(self) -> Column:
        """The column, shape ``(n_rows, ...)``, after all parts were added."""
        if self._batch is not None:
            return self._batch
        is_of_objects = any(piece.dtype == object and piece.ndim == 1 for piece in self._pieces)
        values = [value for piece in self._pieces for value in piece]
        in_order = [values[place] for place in np.argsort(np.concatenate(self._places)).tolist()]
        return objects(in_order) if is_of_objects else stack_values(in_order)


def _are_alike(array: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    return array.dtype == other.dtype and array.shape[1:] == other.shape[1:]


class Selection:
    """The selected rows, in the order of their row groups. It is immutable.

    Args:
        groups: the row groups with selected rows, ascending, shape ``(n_blocks,)``.
        rows: the selected rows of each row group, ascending; None for all.
        lengths: the number of selected rows of each row group.
    """

    def __init__(self, groups: _Integers, rows: tuple[npt.NDArray[np.int32] | None, ...], lengths: _Integers) -> None:
        self.groups, self.rows, self.lengths = groups, rows, lengths
        self.n_rows = int(lengths.sum())
        self._blocks = Stretches(lengths)
        # a list is five times as fast to look up one position
        self._end_list: list[int] = self._blocks.ends.tolist()
        self._group_list: list[int] = groups.tolist()

    def __reduce__(self) -> tuple[Any, ...]:
        return Selection, (self.groups, self.rows, self.lengths)

    def n_rows_of(self, group: int) -> int:
        """Number of selected rows of a row group."""
        block = self._block_of(group)
        return 0 if block is None else int(self.lengths[block])

    def rows_of(self, group: int) -> npt.NDArray[np.int32] | None:
        """The selected rows of a row group, ascending; None for all."""
        block = self._block_of(group)
        return None if block is None else self.rows[block]

    def _block_of(self, group: int) -> int | None:
        block = bisect.bisect_left(self._group_list, group)
        return block if block < len(self._group_list) and self._group_list[block] == group else None

    def locate(self, position: int) -> tuple[int, int]:
        """The row group of a sample, and its position there."""
        block = bisect.bisect_right(self._end_list, position)
        return self._group_list[block], position - (self._end_list[block - 1] if block else 0)

    def groups_of(self, positions: npt.NDArray[Any]) -> list[int]:
        """The row groups of samples, those of the first samples first."""
        return list(dict.fromkeys(self.groups[self._blocks.of(positions)].tolist()))

    def locate_all(self, positions: npt.NDArray[Any]) -> Located:
        """The places of samples; ``positions`` must not be empty."""
        lowest, highest = int(positions.min()), int(positions.max())
        if lowest < 0 or highest >= self.n_rows:
            raise IndexError(
                f"sample {lowest if lowest < 0 else highest} is out of bounds: the dataset has {self.n_rows} samples"
            )
        first = int(self._blocks.ends.searchsorted(lowest, "right"))
        start = int(self._blocks.starts[first])
        if highest < self._blocks.ends[first]:
            return Located([int(self.groups[first])], None, positions - start)
        blocks = self._blocks.of(positions)
        wanted, which = _number(blocks, len(self._blocks))
        return Located(self.groups[wanted].tolist(), which, positions - self._blocks.starts[blocks])


def _number(blocks: npt.NDArray[np.intp], n_blocks: int) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """The distinct blocks, ascending, and for each of ``blocks`` its index among them."""
    if n_blocks > 64 * len(blocks):
        return np.unique(blocks, return_inverse=True)
    is_there = np.zeros(n_blocks, bool)  # without sorting
    is_there[blocks] = True
    wanted = np.flatnonzero(is_there)
    place = np.empty(n_blocks, np.intp)
    place[wanted] = np.arange(len(wanted))
    return wanted, place[blocks]


def select(groups: RowGroups, chosen: _Integers, predicate: Predicate | None) -> Selection:
    """The rows of the chosen row groups that a predicate selects; None selects all.

    Row groups that partitions and statistics exclude are not read. Of the others, only the columns of the predicate are read.

    Raises:
        DatasetFileCorruptError, StorageError: a row group cannot be read.
        ConfigError: the predicate failed.
    """
    n_rows = groups.footers.n_rows[chosen]
    if predicate is None:
        kept = n_rows > 0
        return Selection(chosen[kept], (None,) * int(kept.sum()), n_rows[kept])
    chosen = chosen[n_rows > 0]
    if predicate.bound is not None:
        with_floats = suits_bounds_of_floats(predicate.bound)
        types = types_of(groups.schema, predicate)
        guarantees = [groups.guarantee(group, types, with_floats=with_floats) for group in chosen.tolist()]
        chosen = chosen[could_match(predicate.bound, types, guarantees)]
    instants = instants_of(groups.schema, predicate)
    found: dict[int, npt.NDArray[np.int32] | None] = {}

    def look_at(group: int) -> None:
        columns = groups.read(group, predicate.fields)
        every = np.arange(groups.footers.n_rows[group], dtype=np.int64)
        values = {}
        for name, column in columns.items():
            try:
                values[name] = column.take(every)
            except CellError as error:
                raise groups.damage_error(group, name, error) from error
        try:
            mask = predicate.mask(InstantColumns(values, instants))
        except PredicateError as error:
            where = groups.footers.name_of(group) + ("" if error.row is None else f", row {error.row}")
            raise ConfigError(f"{where}: {error.reason}") from error
        if mask.any():
            found[group] = None if mask.all() else np.flatnonzero(mask).astype(np.int32)

    Workers(chosen.tolist(), look_at, n_threads()).run()
    hits = [group for group in chosen.tolist() if group in found]
    rows = tuple(found[group] for group in hits)
    lengths = [
        int(groups.footers.n_rows[group]) if taken is None else len(taken) for group, taken in zip(hits, rows, strict=True)
    ]
    return Selection(np.array(hits, np.int64), rows, np.array(lengths, np.int64))
