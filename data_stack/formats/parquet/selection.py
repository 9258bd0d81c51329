"""Which rows of which row groups are the samples of a dataset."""

from __future__ import annotations

import bisect
import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.exception import ConfigError
from data_stack.formats.parquet.columns import CellError
from data_stack.formats.parquet.row_groups import RowGroups
from data_stack.formats.parquet.selecting import PredicateError
from data_stack.io.parallel import Workers
from data_stack.util.processors import n_processors

__all__ = ["Selection", "selected"]

_Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Selection:
    """Rows by position: those of the first row group, then those of the second, and so on.

    Attributes:
        groups: the row groups that have any, ascending, shape ``(n_blocks,)``.
        rows: of each, the rows, ascending; None for all.
        lengths: of each, how many.
    """

    groups: _Integers
    rows: tuple[npt.NDArray[np.int32] | None, ...]
    lengths: _Integers
    n_rows: int = field(init=False)
    _ends: _Integers = field(init=False, repr=False)
    _starts: _Integers = field(init=False, repr=False)
    _end_list: list[int] = field(init=False, repr=False)  # where one position is looked up, a list is five times as fast
    _group_list: list[int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        ends = np.cumsum(self.lengths)
        for name, value in (
            ("_ends", ends),
            ("_starts", ends - self.lengths),
            ("n_rows", int(self.lengths.sum())),
            ("_end_list", ends.tolist()),
            ("_group_list", self.groups.tolist()),
        ):
            object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return Selection, (self.groups, self.rows, self.lengths)

    def rows_of(self, block: int) -> _Integers:
        """The rows of a block, shape ``(lengths[block],)``."""
        rows = self.rows[block]
        return np.arange(self.lengths[block], dtype=np.int64) if rows is None else rows.astype(np.int64)

    def n_rows_of(self, group: int) -> int:
        """How many rows of a row group are samples."""
        block = bisect.bisect_left(self._group_list, group)
        is_there = block < len(self._group_list) and self._group_list[block] == group
        return int(self.lengths[block]) if is_there else 0

    def locate(self, position: int) -> tuple[int, int]:
        """Row group and row of a position."""
        block = bisect.bisect_right(self._end_list, position)
        row = position - (self._end_list[block - 1] if block else 0)
        rows = self.rows[block]
        return self._group_list[block], row if rows is None else int(rows[row])

    def located(self, positions: npt.NDArray[Any]) -> list[tuple[int, _Integers, npt.NDArray[np.intp]]]:
        """Row groups, the rows of each that are wanted, and where these stand among the positions."""
        first = int(self._ends.searchsorted(positions[0], "right"))
        start = int(self._starts[first])
        if positions.min() >= start and positions.max() < self._ends[first]:
            return [(int(self.groups[first]), self._rows_at(first, positions - start), np.arange(len(positions)))]
        blocks = self._ends.searchsorted(positions, "right")
        if len(self._ends) <= 1 << 16:
            blocks = blocks.astype(np.uint16)  # sorted without comparisons
        places = np.argsort(blocks, kind="stable")
        blocks, positions = blocks[places], positions[places]
        bounds = [0, *(np.flatnonzero(blocks[1:] != blocks[:-1]) + 1).tolist(), len(blocks)]
        parts: list[tuple[int, _Integers, npt.NDArray[np.intp]]] = []
        for low, high in itertools.pairwise(bounds):
            block = int(blocks[low])
            rows = self._rows_at(block, positions[low:high] - int(self._starts[block]))
            parts.append((int(self.groups[block]), rows, places[low:high]))
        return parts

    def _rows_at(self, block: int, places: npt.NDArray[Any]) -> _Integers:
        rows = self.rows[block]
        return places if rows is None else rows[places].astype(np.int64)


def selected(groups: RowGroups, chosen: _Integers, predicate: Any) -> Selection:
    """The rows of the chosen row groups that a predicate takes; None takes all.

    Row groups of which partition values and statistics tell that none or all of their rows are taken are not read; of the others
    nothing is but the columns that the predicate needs.

    Raises:
        DatasetFileCorruptError, StorageError: they cannot be read.
        ConfigError: the predicate failed.
    """
    n_rows = groups.footers.n_rows[chosen]
    if predicate is None:
        kept = n_rows > 0
        return Selection(chosen[kept], (None,) * int(kept.sum()), n_rows[kept])
    found: dict[int, npt.NDArray[np.int32] | None] = {}

    def look_at(group: int) -> None:
        statistics = groups.statistics(group, predicate.fields)
        if not groups.footers.n_rows[group] or not predicate.could_match(statistics):
            return
        if predicate.must_match(statistics):
            found[group] = None
            return
        columns = groups.read(group, predicate.fields)
        every = np.arange(groups.footers.n_rows[group], dtype=np.int64)
        values = {}
        for name, column in columns.items():
            try:
                values[name] = column.take(every)
            except CellError as error:
                raise groups.damaged(group, name, error) from error
        try:
            mask = predicate.mask(values)
        except PredicateError as error:
            where = groups.footers.name_of(group) + ("" if error.row is None else f", row {error.row}")
            raise ConfigError(f"{where}: {error.reason}") from error
        if mask.any():
            found[group] = None if mask.all() else np.flatnonzero(mask).astype(np.int32)

    Workers(chosen.tolist(), look_at, n_processors()).run()
    hits = [group for group in chosen.tolist() if group in found]
    rows = tuple(found[group] for group in hits)
    lengths = [
        int(groups.footers.n_rows[group]) if taken is None else len(taken) for group, taken in zip(hits, rows, strict=True)
    ]
    return Selection(np.array(hits, np.int64), rows, np.array(lengths, np.int64))
