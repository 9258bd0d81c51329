"""How a reader shuffles."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from data_stack.exception import ConfigError
from data_stack.loader import BlockShuffled, InOrder, Order


class Shuffling(NamedTuple):
    """What a reader shuffles: row groups, the rows of each, or the rows of several together.

    Attributes:
        row_groups: whether to shuffle the row groups.
        rows: whether to shuffle the rows of each row group.
        n_mixed: number of row groups whose rows are shuffled together; 1: each on its own.
    """

    row_groups: bool
    rows: bool
    n_mixed: int

    def with_capacity(self, capacity: Any, lengths: npt.NDArray[np.int64]) -> Shuffling:
        """Return a shuffling of at least ``capacity`` rows together, as in Petastorm's buffer.

        Args:
            capacity: minimum number of rows to shuffle together, rounded up to whole row groups; 0
                and 1 change nothing.
            lengths: number of rows of each row group, shape ``(n_row_groups,)``.

        Raises:
            ConfigError: ``capacity`` is not a number of rows.
        """
        if not isinstance(capacity, (int, np.integer)) or capacity < 0:
            raise ConfigError(
                "shuffling_queue_capacity must be a number of rows, at least 0, "
                f"got {capacity!r:.40}"
            )
        if capacity <= 1 or len(lengths) == 0:
            return self
        n_row_groups = math.ceil(capacity / float(lengths.mean()))
        return self._replace(rows=True, n_mixed=max(self.n_mixed, n_row_groups))

    def make_order(self, lengths: npt.NDArray[np.int64]) -> Order:
        """Return the order of the rows.

        Args:
            lengths: number of rows of each row group, shape ``(n_row_groups,)``.
        """
        if self.rows or self.n_mixed > 1:
            return BlockShuffled(block_lengths=lengths, window=self.n_mixed, blocks=self.row_groups)
        if self.row_groups:
            return BlockShuffled(block_lengths=lengths, window=1, samples=False)
        return InOrder(lengths)
