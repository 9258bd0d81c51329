"""The order of the iterator."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator import DatasetIteratorIF, access_to
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.loader.orders.order import Order, block_lengths

#: The number of blocks to prefetch from a remote store, each by a request of its own.
_N_REMOTE_BLOCKS_AHEAD = 16


class InOrder(Order):
    """The order of the iterator, in every epoch.

    Args:
        block_lengths: the number of samples of each block that the source reads together, so that
            the loader prefetches the next one, shape ``(n_blocks,)``; None for the blocks that the
            stack reports.
    """

    #: The position after each block, shape ``(n_blocks,)``; None without blocks.
    _block_ends: npt.NDArray[np.int64] | None
    #: The number of blocks to prefetch.
    _n_blocks_ahead: int

    def __init__(self, block_lengths: npt.NDArray[np.int64] | None = None) -> None:
        self._block_ends = _ends_of_blocks(block_lengths)
        self._n_blocks_ahead = 1

    def for_iterator(self, iterator: DatasetIteratorIF) -> Order:
        # Blocks that the caller passed take precedence over those of the stack.
        order = InOrder()
        order._block_ends = self._block_ends
        if order._block_ends is None:
            order._block_ends = _ends_of_blocks(block_lengths(iterator))
        if access_to(iterator).prefers_blocks:
            order._n_blocks_ahead = _N_REMOTE_BLOCKS_AHEAD
        return order

    def upcoming(
        self, position: int, n_samples: int, seed: int, epoch: int
    ) -> tuple[IndexArrayOfInts | None, int]:
        if self._block_ends is None or position >= self._block_ends[-1]:
            return None, sys.maxsize
        block = int(self._block_ends.searchsorted(position, side="right"))
        # A block begins where the block before it ends.
        next_starts = self._block_ends[block : block + self._n_blocks_ahead]
        return next_starts[next_starts < n_samples], int(self._block_ends[block])

    def indices(
        self, positions: IndexArrayOfInts, n_samples: int, seed: int, epoch: int
    ) -> IndexArrayOfInts:
        return positions

    def content(self) -> dict[str, Any]:
        return {"order": "in order"}


def _ends_of_blocks(lengths: npt.NDArray[np.int64] | None) -> npt.NDArray[np.int64] | None:
    """Return the position after each block, shape ``(n_blocks,)``; None without blocks."""
    if lengths is None or len(lengths) == 0:
        return None
    return np.cumsum(lengths)
