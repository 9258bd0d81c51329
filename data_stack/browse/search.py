"""Searches a table for rows, in steps so that a page never waits for all samples."""

from __future__ import annotations

import bisect
import threading
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from data_stack.browse.conditions import Condition, Mask
from data_stack.browse.table import Table


class _SearchedBlock(NamedTuple):
    """Which rows of a block were found.

    Attributes:
        start: the position of the first row of the block in the table.
        n_rows: number of rows of the block.
        bits: one bit for each row, set if the row was found; eight in a byte.
    """

    start: int
    n_rows: int
    bits: bytes

    def positions(self) -> npt.NDArray[np.intp]:
        """Return the positions of the found rows in the table."""
        packed = np.frombuffer(self.bits, dtype=np.uint8)
        return self.start + np.flatnonzero(np.unpackbits(packed, count=self.n_rows))


class Search:
    """Finds the rows that fulfil conditions, block by block, on demand.

    A search keeps one bit of each row.

    Args:
        table: the rows.
        conditions: a row must fulfil all of them. Without conditions all rows are found.

    Attributes:
        n_scanned: number of rows searched so far.
    """

    n_scanned: int

    _table: Table
    _conditions: Sequence[Condition]

    #: The columns that the conditions test.
    _columns: list[int]

    #: The blocks to search, as start and stop.
    _blocks: Iterator[tuple[int, int]]

    _searched_blocks: list[_SearchedBlock]

    #: How many rows were found before each searched block; the last item, before the next block.
    _n_found_before: list[int]

    #: Held while blocks are searched.
    _lock: threading.Lock

    def __init__(self, table: Table, conditions: Sequence[Condition]) -> None:
        tested_columns: set[int] = set()
        for condition in conditions:
            tested_columns.update(condition.columns(table))
        self.n_scanned = 0 if conditions else table.n_samples
        self._table = table
        self._conditions = conditions
        self._columns = sorted(tested_columns)
        self._blocks = table.blocks()
        self._searched_blocks = []
        self._n_found_before = [0]
        self._lock = threading.Lock()

    @property
    def n_found(self) -> int:
        """Rows found so far."""
        if not self._conditions:
            return self._table.n_samples
        return self._n_found_before[-1]

    @property
    def is_complete(self) -> bool:
        """Whether all rows were searched."""
        return self.n_scanned == self._table.n_samples

    def advance(self, seconds: float, n_wanted: int | None = None) -> None:
        """Search at least one more block, if there is one.

        Args:
            seconds: stops after about this time.
            n_wanted: stops when this many rows are found; None: stops after the time only.
        """
        if not self._conditions:
            return
        deadline = time.perf_counter() + seconds
        with self._lock:
            for start, stop in self._blocks:
                self._search_block(start, stop)
                has_enough = n_wanted is not None and self.n_found >= n_wanted
                if has_enough or time.perf_counter() > deadline:
                    break

    def positions(self, start: int, count: int) -> list[int]:
        """Return the positions of up to ``count`` found rows, from the ``start``-th on."""
        if not self._conditions:
            stop = min(start + count, self.n_found)
            return list(range(min(start, self.n_found), stop))

        positions: list[int] = []
        first_block = bisect.bisect_right(self._n_found_before, start) - 1
        for number in range(first_block, len(self._searched_blocks)):
            if len(positions) >= count:
                break
            n_to_skip = max(0, start - self._n_found_before[number])
            positions += self._searched_blocks[number].positions()[n_to_skip:].tolist()
        return positions[:count]

    def _search_block(self, start: int, stop: int) -> None:
        values_by_column = self._table.read(self._columns, start, stop)
        masks = [condition.mask(self._table, values_by_column) for condition in self._conditions]
        mask: Mask = np.logical_and.reduce(masks)
        block = _SearchedBlock(start, stop - start, np.packbits(mask).tobytes())
        self._searched_blocks.append(block)
        self._n_found_before.append(self.n_found + int(np.count_nonzero(mask)))
        self.n_scanned = stop
