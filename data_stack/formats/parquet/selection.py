"""Locates the samples of a dataset among the selected rows of its row groups."""

from __future__ import annotations

import bisect
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from data_stack.util.intervals import Intervals

_Integers = npt.NDArray[np.int64]
#: Indices into a request, which is an array of positions.
Places = npt.NDArray[np.intp]

#: The numbers of this many row groups fit into 16 bits. numpy sorts numbers of 16 bits faster,
#: without comparisons.
_MAX_GROUPS_OF_16_BITS = 1 << 16


class RowsOfGroup(NamedTuple):
    """The samples of a request that are in one row group.

    Attributes:
        group: number of the row group.
        positions: index of each sample among the selected rows of the row group, shape ``(n,)``.
        places: index of each sample in the request, shape ``(n,)``.
    """

    group: int
    positions: _Integers
    places: Places


class Selection:
    """The selected rows of a dataset, which are its samples. It is immutable.

    The samples are in the order of the row groups, and in each in the order of its rows. The
    selected rows of a row group are a block of samples.

    Attributes:
        groups: the row groups with selected rows, ascending, shape ``(n_blocks,)``.
        rows: for each of ``groups`` its selected rows, ascending; None for all.
        lengths: for each of ``groups`` the number of its selected rows, shape ``(n_blocks,)``.
        n_rows: number of all selected rows.
    """

    groups: _Integers
    rows: tuple[npt.NDArray[np.int32] | None, ...]
    lengths: _Integers
    n_rows: int

    #: The blocks as intervals of positions.
    _blocks: Intervals

    #: ``groups`` as a list, in which one number is looked up five times as fast.
    _group_list: list[int]

    #: The ends of the blocks, as a list for the same reason.
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
        """Return the selected rows of a row group, ascending; None for all.

        For a row group without selected rows, the result is None as well.
        """
        block = bisect.bisect_left(self._group_list, group)
        is_selected = block < len(self._group_list) and self._group_list[block] == group
        if not is_selected:
            return None
        return self.rows[block]

    def locate(self, position: int) -> tuple[int, int]:
        """Return the row group of a sample, and its index among the selected rows there.

        Args:
            position: position of the sample, 0 to ``n_rows - 1``.
        """
        block = bisect.bisect_right(self._end_list, position)
        if block == 0:
            return self._group_list[0], position
        start = self._end_list[block - 1]
        return self._group_list[block], position - start

    def locate_many(self, positions: npt.NDArray[Any]) -> list[RowsOfGroup]:
        """Return the samples of a request, row group by row group.

        Args:
            positions: positions of the samples, in any order, shape ``(n,)``.

        Returns:
            The samples of each row group that has any, in the order of ``positions``. The row
            groups are ascending.
        """
        if not len(positions):
            return []
        blocks = self._blocks.find(positions)
        positions_in_blocks = positions - self._blocks.starts[blocks]
        # Sort the request by its blocks. A stable sort keeps the order of the request in each.
        sortable: npt.NDArray[Any] = blocks
        if len(self._blocks) <= _MAX_GROUPS_OF_16_BITS:
            sortable = blocks.astype(np.uint16)
        order = np.argsort(sortable, kind="stable")
        # Split it where the next block begins.
        has_next_block = np.diff(blocks[order]) != 0
        starts_of_blocks = np.flatnonzero(has_next_block) + 1
        parts = []
        for places in np.split(order, starts_of_blocks):
            group = self._group_list[blocks[places[0]]]
            parts.append(RowsOfGroup(group, positions_in_blocks[places], places))
        return parts

    def locate_all(self) -> list[RowsOfGroup]:
        """Return all samples, row group by row group. The row groups are ascending."""
        parts = []
        start = 0
        for group, end in zip(self._group_list, self._end_list, strict=True):
            positions = np.arange(end - start, dtype=np.int64)
            parts.append(RowsOfGroup(group, positions, positions + start))
            start = end
        return parts

    def groups_of(self, positions: npt.NDArray[Any]) -> list[int]:
        """Return the row groups of samples, each once, in the order of their first samples."""
        groups = self.groups[self._blocks.find(positions)].tolist()
        return list(dict.fromkeys(groups))

    def locate_in_joined_groups(
        self, positions: npt.NDArray[Any], max_rows_per_sample: int
    ) -> tuple[list[int], _Integers] | None:
        """Locate samples in an array that holds all rows of their row groups, one after the other.

        Args:
            positions: positions of the samples, shape ``(n,)``.
            max_rows_per_sample: the array may have this many rows for each sample.

        Returns:
            The row groups, ascending, and the index of each sample in the array, shape ``(n,)``.
            None if there is only one row group, or if the array would have too many rows.
        """
        blocks = self._blocks.find(positions)
        used_blocks = np.flatnonzero(np.bincount(blocks))
        lengths = self.lengths[used_blocks]
        n_rows = int(lengths.sum())
        if len(used_blocks) == 1 or n_rows > max_rows_per_sample * len(positions):
            return None
        # The array leaves out the blocks without samples. So each used block begins in it earlier
        # than among all samples, by what is left out before it.
        starts_in_array = np.cumsum(lengths) - lengths
        shift_of_block = np.zeros(len(self._blocks), np.int64)
        shift_of_block[used_blocks] = starts_in_array - self._blocks.starts[used_blocks]
        return self.groups[used_blocks].tolist(), positions + shift_of_block[blocks]
