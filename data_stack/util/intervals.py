"""Finds which of consecutive intervals contains a position."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

#: If more intervals than this end in one cell of the table, a binary search is faster.
_MAX_ENDS_IN_A_CELL: Final = 4


class Intervals:
    """Consecutive intervals of positions, from 0 on.

    Args:
        lengths: lengths of the intervals, not negative, shape ``(n,)``.

    Attributes:
        starts: first position of each interval, int64, shape ``(n,)``.
        ends: position after each interval, int64, shape ``(n,)``.
    """

    #: The length of all intervals but the last, which may be shorter; 0 if lengths differ.
    _common_length: int

    #: The interval of the first position of each cell; None if a binary search is faster.
    _table: npt.NDArray[np.intp] | None
    #: A cell of the table has ``2**_cell_bits`` positions.
    _cell_bits: int
    #: The largest number of intervals that end in one cell.
    _max_ends_in_a_cell: int

    def __init__(self, lengths: npt.NDArray[np.int64]) -> None:
        self.ends = np.cumsum(lengths)
        self.starts = self.ends - lengths
        self._common_length = _find_common_length(lengths)
        self._table = None
        self._cell_bits = 0
        self._max_ends_in_a_cell = 0
        has_positions = len(lengths) > 0 and self.ends[-1] > 0
        if has_positions and not self._common_length:
            self._make_table()

    def __len__(self) -> int:
        """Return the number of intervals."""
        return len(self.ends)

    def find(self, positions: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
        """Return the number of the interval that contains each position, shape ``(n,)``.

        Args:
            positions: integers, each inside an interval, shape ``(n,)``.
        """
        if self._common_length:  # ten times as fast as a search
            return positions // self._common_length
        if self._table is None:
            return self.ends.searchsorted(positions, side="right")
        # Six times as fast as a search. The table gives the right interval, or an earlier one: then
        # the position lies behind the end of that interval.
        numbers: npt.NDArray[np.intp] = self._table[positions >> self._cell_bits]
        for _ in range(self._max_ends_in_a_cell):
            numbers += positions >= self.ends[numbers]
        return numbers

    def _make_table(self) -> None:
        n_positions = int(self.ends[-1])
        mean_length = n_positions // len(self.ends)
        # A cell is between a quarter and half of a mean interval.
        self._cell_bits = max(0, mean_length.bit_length() - 2)
        cell_starts = np.arange(0, n_positions, 1 << self._cell_bits)
        table = self.ends.searchsorted(cell_starts, side="right")
        n_ends_by_cell = np.diff(table, append=len(self.ends) - 1)
        self._max_ends_in_a_cell = int(n_ends_by_cell.max())
        if self._max_ends_in_a_cell <= _MAX_ENDS_IN_A_CELL:
            self._table = table


def _find_common_length(lengths: npt.NDArray[np.int64]) -> int:
    """Return the length of all intervals but the last, which may be shorter; 0 if they differ."""
    if len(lengths) == 0:
        return 0
    first = int(lengths[0])
    is_common = first > 0 and bool((lengths[:-1] == first).all()) and lengths[-1] <= first
    return first if is_common else 0
