"""The selected rows of a dataset, and where each sample is among them."""

from __future__ import annotations

import bisect
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from data_stack.util.intervals import Intervals

_Integers = npt.NDArray[np.int64]
Places = npt.NDArray[np.intp]

#: Numbers of fewer row groups fit into 16 bits, which numpy sorts without comparisons.
_MAX_OF_16_BITS = 1 << 16


class RowsOfGroup(NamedTuple):
    """Some samples that are in one row group.

    Attributes:
        group: number of the row group.
        positions: of the samples among the selected rows of the row group, shape ``(n,)``.
        places: of the samples in the request, shape ``(n,)``.
    """

    group: int
    positions: _Integers
    places: Places


class Selection:
    """The selected rows, in the order of their row groups. It is immutable.

    A row group with selected rows is a block of samples.

    Args:
        groups: the row groups with selected rows, ascending, shape ``(n_blocks,)``.
        rows: the selected rows of each row group, ascending; None for all.
        lengths: the number of selected rows of each row group.

    Attributes:
        groups: as given.
        rows: as given.
        lengths: as given.
        n_rows: of all.
    """

    groups: _Integers
    rows: tuple[npt.NDArray[np.int32] | None, ...]
    lengths: _Integers
    n_rows: int

    #: The blocks as intervals of positions.
    _blocks: Intervals

    #: The same as ``groups`` and as the ends of the blocks: a list is five times as fast to look
    #: up one position.
    _group_list: list[int]
    _end_list: list[int]

    def __init__(
        self, groups: _Integers, rows: tuple[npt.NDArray[np.int32] | None, ...], lengths: _Integers
    ) -> None:
        self.groups = groups
        self.rows = rows
        self.lengths = lengths
        self.n_rows = int(lengths.sum())
        self._blocks = Intervals(lengths)
        self._group_list = groups.tolist()
        self._end_list = self._blocks.ends.tolist()

    def __reduce__(self) -> tuple[Any, ...]:
        return Selection, (self.groups, self.rows, self.lengths)

    def rows_of(self, group: int) -> npt.NDArray[np.int32] | None:
        """Return the selected rows of a row group, ascending; None for all."""
        block = bisect.bisect_left(self._group_list, group)
        has_rows = block < len(self._group_list) and self._group_list[block] == group
        return self.rows[block] if has_rows else None

    def locate(self, position: int) -> tuple[int, int]:
        """Return the row group of a sample, and its position among the selected rows there."""
        block = bisect.bisect_right(self._end_list, position)
        start = self._end_list[block - 1] if block else 0
        return self._group_list[block], position - start

    def locate_many(self, positions: npt.NDArray[Any]) -> list[RowsOfGroup]:
        """Return samples row group by row group, ascending; in each, they keep their order."""
        blocks = self._blocks.find(positions)
        positions_in_blocks = positions - self._blocks.starts[blocks]
        sortable: npt.NDArray[Any] = blocks
        if len(self._blocks) <= _MAX_OF_16_BITS:
            sortable = blocks.astype(np.uint16)
        order = np.argsort(sortable, kind="stable")
        starts_of_next_block = np.flatnonzero(np.diff(blocks[order])) + 1
        parts = []
        for places in np.split(order, starts_of_next_block):
            group = self._group_list[blocks[places[0]]]
            parts.append(RowsOfGroup(group, positions_in_blocks[places], places))
        return parts

    def locate_all(self) -> list[RowsOfGroup]:
        """Return all samples row group by row group, ascending."""
        parts = []
        start = 0
        for group, end in zip(self._group_list, self._end_list, strict=True):
            positions = np.arange(end - start, dtype=np.int64)
            parts.append(RowsOfGroup(group, positions, positions + start))
            start = end
        return parts

    def groups_of(self, positions: npt.NDArray[Any]) -> list[int]:
        """Return the row groups of samples, those of the first samples first."""
        groups = self.groups[self._blocks.find(positions)].tolist()
        return list(dict.fromkeys(groups))

    def locate_in_joined_groups(
        self, positions: npt.NDArray[Any], max_rows_per_sample: int
    ) -> tuple[list[int], _Integers] | None:
        """Return the row groups of samples, and each sample's place among their rows end to end.

        None for one row group, or if all rows of these row groups are more than
        ``max_rows_per_sample`` for each of the samples.

        Args:
            positions: of the samples.
            max_rows_per_sample: the limit.
        """
        blocks = self._blocks.find(positions)
        used_blocks = np.flatnonzero(np.bincount(blocks))
        lengths = self.lengths[used_blocks]
        n_rows = int(lengths.sum())
        if len(used_blocks) == 1 or n_rows > max_rows_per_sample * len(positions):
            return None
        # how far the rows of each block move, as the unused blocks before it are left out
        shifts = np.zeros(len(self._blocks), np.int64)
        new_starts = np.cumsum(lengths) - lengths
        shifts[used_blocks] = new_starts - self._blocks.starts[used_blocks]
        return self.groups[used_blocks].tolist(), positions + shifts[blocks]
