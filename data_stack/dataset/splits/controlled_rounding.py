"""Rounds a table of shares such that its rows and its columns add up.

Source: Cox, A constructive procedure for unbiased controlled rounding (JASA 82, 1987).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from data_stack.dataset.splits.shares import Shares


def round_controlled(counts: Sequence[int], shares: Shares) -> list[list[int]]:
    """Divide the members of each class among parts.

    The table has a row for each class, a column for each part, and in each cell the share that the
    part has of the class. Every cell is rounded up or down, such that each row keeps its sum, and
    the sum of each column is rounded up or down too. Such a rounding always exists.

    The cells become whole one after the other. A cycle through cells that are not whole yet goes
    alternately along a row and along a column. If each second cell of the cycle gains what the
    cells between lose, no sum changes, and by the right amount one of the cells becomes whole. As
    long as all sums are whole, a cell that is not whole lies on such a cycle. The sums of rows are
    whole. A last row, which is not returned, makes the sums of columns whole.

    Args:
        counts: members of each class.
        shares: the sizes wanted.

    Returns:
        For each class the number of its members in each part.
    """
    total = shares.total
    n_parts = len(shares.weights)
    table = []
    open_rows: list[_Row] = []
    fraction_sums = [0] * n_parts
    for count in counts:
        row = _share_out(count, shares)
        table.append(row.sizes)
        for part, fraction in row.fractions.items():
            fraction_sums[part] += fraction
        _round_row(row, open_rows, total)

    # The last row has what each column lacks to a whole sum.
    missing_fractions = {}
    for part, fraction_sum in enumerate(fraction_sums):
        if fraction_sum % total:
            missing_fractions[part] = -fraction_sum % total
    last_row = _Row(missing_fractions, [0] * n_parts)
    _round_row(last_row, open_rows, total)
    return table


@dataclass(frozen=True, eq=False)
class _Row:
    """One class.

    Attributes:
        fractions: for each part whose cell is not whole yet, what the cell has beyond ``sizes``. A
            fraction f stands for f / total of a member, where total is that of the shares; it is
            above 0 and below total.
        sizes: the whole members in each part.
    """

    fractions: dict[int, int]
    sizes: list[int]


class _Cell(NamedTuple):
    """A cell of the table that is not whole yet.

    It is a tuple because many are made, and a dataclass takes half as long again to make.
    """

    row: _Row
    part: int

    def add(self, amount: int, total: int) -> None:
        """Add to the fraction; a whole one becomes members."""
        fractions = self.row.fractions
        fraction = fractions[self.part] + amount
        if 0 < fraction < total:
            fractions[self.part] = fraction
        else:
            self.row.sizes[self.part] += fraction // total
            del fractions[self.part]


def _share_out(count: int, shares: Shares) -> _Row:
    """Return the shares of the members of a class, not rounded yet."""
    total = shares.total
    fractions = {}
    sizes = []
    for part, weight in enumerate(shares.weights):
        sizes.append(count * weight // total)
        fraction = count * weight % total
        if fraction:
            fractions[part] = fraction
    return _Row(fractions, sizes)


def _round_row(row: _Row, open_rows: list[_Row], total: int) -> None:
    """Add a row to those with cells that are not whole yet, and shift until no cycle is left.

    Args:
        row: the row, which is changed.
        open_rows: the rows before with such cells, without a cycle; they are changed, too. As they
            have no cycle, there are never more of them than parts.
        total: the total of the shares.
    """
    cycle = _find_cycle(row, open_rows)
    while cycle is not None:
        _shift(cycle, total)
        open_rows[:] = [open_row for open_row in open_rows if open_row.fractions]
        cycle = _find_cycle(row, open_rows)
    if row.fractions:
        open_rows.append(row)


def _shift(cycle: list[_Cell], total: int) -> None:
    """Add to every other cell of a cycle what the cells between lose, until a cell is whole.

    Of the two directions, the one that needs the smaller amount is taken.
    """
    growing = cycle[::2]
    shrinking = cycle[1::2]
    amount = _amount_until_whole(growing, shrinking, total)
    amount_back = _amount_until_whole(shrinking, growing, total)
    if amount_back < amount:
        growing, shrinking = shrinking, growing
        amount = amount_back
    for cell in growing:
        cell.add(amount, total)
    for cell in shrinking:
        cell.add(-amount, total)


def _amount_until_whole(growing: list[_Cell], shrinking: list[_Cell], total: int) -> int:
    """Return the smallest amount by which a cell becomes whole."""
    until_full = total - max([row.fractions[part] for row, part in growing])
    until_empty = min([row.fractions[part] for row, part in shrinking])
    return min(until_full, until_empty)


def _find_cycle(row: _Row, others: Sequence[_Row]) -> list[_Cell] | None:
    """Find cells from ``row`` back to it, alternately along a row and along a part.

    Returns:
        The cells in order; None if there is no cycle.
    """
    for start in row.fractions:
        steps = _steps_from(start, others)
        for end in row.fractions:
            if end != start and end in steps:
                return _trace_back(row, start, end, steps)
    return None


class _Step(NamedTuple):
    """How a part was reached: along a row, from another part."""

    row: _Row
    part_before: int


def _steps_from(start: int, rows: Sequence[_Row]) -> dict[int, _Step | None]:
    """Return the last step on a shortest way from ``start`` to each part that can be reached."""
    steps: dict[int, _Step | None] = {start: None}
    reached_parts = [start]
    # The loop comes to the parts that it appends, too: this is a breadth-first search.
    for part in reached_parts:
        for row in rows:
            if part not in row.fractions:
                continue
            for reached_part in row.fractions:
                if reached_part not in steps:
                    steps[reached_part] = _Step(row, part)
                    reached_parts.append(reached_part)
    return steps


def _trace_back(row: _Row, start: int, end: int, steps: dict[int, _Step | None]) -> list[_Cell]:
    """Return the cells of a cycle: from ``end`` step by step back to ``start``, both in ``row``."""
    cycle = [_Cell(row, end)]
    part = end
    step = steps[end]
    while step is not None:
        cycle.append(_Cell(step.row, part))
        cycle.append(_Cell(step.row, step.part_before))
        part = step.part_before
        step = steps[part]
    cycle.append(_Cell(row, start))
    return cycle
