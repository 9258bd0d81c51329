"""One epoch of a block-wise shuffle."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.hashing import hash_array, hash_of
from data_stack.dataset.permutation import KeyedPermutation, permute_array
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.util.intervals import Intervals

#: The order of a window is stored, in 4 bytes a sample, up to this number of samples.
_MAX_STORED_SAMPLES = 1 << 20

_MAX_IN_INT32 = 1 << 31


@dataclass(frozen=True, slots=True)
class _StoredWindow:
    """The order of a window.

    Attributes:
        number: the number of the window.
        samples: its samples in their order, shape ``(samples of the window,)``.
    """

    number: int
    samples: IndexArrayOfInts


class DrawnBlocks:
    """The order of one epoch: its sequence of blocks, and the bounds of its windows.

    Args:
        lengths: the number of samples of each block, shape ``(n_blocks,)``.
        window: the number of blocks that are mixed, at least 1.
        n_windows_ahead: the number of windows to prefetch.
        blocks_seed: the seed of the order of the blocks; None keeps it.
        samples_seed: the seed of the order of the samples in each window; None keeps it.
    """

    #: The blocks in the order of the epoch, as intervals of positions.
    _blocks: Intervals
    #: What to add to a position in each of these blocks to get its sample, shape ``(n_blocks,)``.
    _shifts: npt.NDArray[np.int64]
    #: The windows, as intervals of positions.
    _windows: Intervals
    #: The number of blocks in a window.
    _n_blocks_of_window: int
    #: The number of windows to prefetch.
    _n_windows_ahead: int
    #: The seed of the order of the samples in each window; None keeps it.
    _samples_seed: int | None
    #: The window that was computed last. It is replaced as a whole, so threads need no lock.
    _stored_window: _StoredWindow | None

    def __init__(
        self,
        lengths: npt.NDArray[np.int64],
        window: int,
        *,
        n_windows_ahead: int,
        blocks_seed: int | None,
        samples_seed: int | None,
    ) -> None:
        # Put the blocks in the order of the epoch.
        n_blocks = len(lengths)
        block_order: npt.NDArray[Any] = np.arange(n_blocks)
        if blocks_seed is not None:
            block_order = KeyedPermutation(n_blocks, blocks_seed).take(block_order)
        self._blocks = Intervals(lengths[block_order])

        # A block keeps the order of its samples, so one shift leads from its positions to them.
        first_samples = np.cumsum(lengths) - lengths
        self._shifts = first_samples[block_order] - self._blocks.starts

        # Group each `window` blocks; the last window may have fewer.
        self._n_blocks_of_window = min(window, max(1, n_blocks))
        first_blocks = np.arange(0, n_blocks, self._n_blocks_of_window)
        end_blocks = np.minimum(first_blocks + self._n_blocks_of_window, n_blocks)
        window_ends = self._blocks.ends[end_blocks - 1]
        self._windows = Intervals(np.diff(window_ends, prepend=0))

        self._n_windows_ahead = n_windows_ahead
        self._samples_seed = samples_seed
        self._stored_window = None

    def indices(self, positions: IndexArrayOfInts) -> IndexArrayOfInts:
        """Return the samples at positions, shape ``(n,)``."""
        seed = self._samples_seed
        if seed is None or len(positions) == 0:
            return self._samples_at(positions)

        outermost_positions = np.array([positions.min(), positions.max()])
        first_window, last_window = self._windows.find(outermost_positions).tolist()
        if first_window != last_window:
            return self._samples_at(self._mix_in_windows(positions, seed))

        # As a rule, all positions are in one window. Its order is drawn once, and stored.
        start = int(self._windows.starts[first_window])
        size = int(self._windows.ends[first_window]) - start
        if size <= _MAX_STORED_SAMPLES:
            return self._stored_samples(first_window, seed).take(positions - start)

        # The order of a larger window would take too much memory: it is computed for these
        # positions only.
        permutation = _permutation_of_window(size, hash_of(seed, first_window))
        return self._samples_at(start + permutation.take(positions - start))

    def upcoming(self, position: int) -> tuple[IndexArrayOfInts, int]:
        """Return a sample of each block of the windows after that of a position.

        Returns:
            The samples, shape ``(n,)``, and where the window of the position ends.
        """
        window = int(self._windows.ends.searchsorted(position, side="right"))
        first_block = (window + 1) * self._n_blocks_of_window
        end_block = first_block + self._n_windows_ahead * self._n_blocks_of_window
        starts = self._blocks.starts[first_block:end_block]
        ends = self._blocks.ends[first_block:end_block]
        first_samples = starts + self._shifts[first_block:end_block]
        samples: IndexArrayOfInts = first_samples[starts < ends]  # some blocks are empty
        return samples, int(self._windows.ends[window])

    def _samples_at(self, positions: IndexArrayOfInts) -> IndexArrayOfInts:
        """Return the samples at positions of an order in which windows are not mixed."""
        samples: IndexArrayOfInts = positions + self._shifts[self._blocks.find(positions)]
        return samples

    def _mix_in_windows(self, positions: IndexArrayOfInts, seed: int) -> IndexArrayOfInts:
        """Permute positions of several windows, each within its window."""
        windows = self._windows.find(positions)
        starts = self._windows.starts[windows]
        sizes = (self._windows.ends[windows] - starts).astype(np.uint64)
        keys = hash_array(seed, windows)
        places = permute_array(sizes, keys, positions - starts).view(np.int64)
        mixed: IndexArrayOfInts = starts + places
        return mixed

    def _stored_samples(self, window: int, seed: int) -> IndexArrayOfInts:
        """Return the samples of a window in their order, and store them until the next window."""
        stored_window = self._stored_window
        if stored_window is None or stored_window.number != window:
            stored_window = _StoredWindow(window, self._compute_samples(window, seed))
            self._stored_window = stored_window
        return stored_window.samples

    def _compute_samples(self, window: int, seed: int) -> IndexArrayOfInts:
        """Return the samples of a window in their order, shape ``(samples of the window,)``."""
        n_samples = self._blocks.ends[-1]
        dtype = np.int32 if n_samples < _MAX_IN_INT32 else np.int64
        start = int(self._windows.starts[window])
        end = int(self._windows.ends[window])

        # List the samples of the window's blocks, one block after the other.
        first_block = window * self._n_blocks_of_window
        blocks = slice(first_block, first_block + self._n_blocks_of_window)
        lengths = self._blocks.ends[blocks] - self._blocks.starts[blocks]
        shifts = np.repeat(self._shifts[blocks].astype(dtype), lengths)
        samples = np.arange(start, end, dtype=dtype) + shifts

        # Mix them.
        permutation = KeyedPermutation(end - start, hash_of(seed, window))
        mixed_samples: IndexArrayOfInts = samples.take(permutation.take(np.arange(end - start)))
        return mixed_samples


@functools.lru_cache(maxsize=4)
def _permutation_of_window(size: int, key: int) -> KeyedPermutation:
    """Return the permutation of a large window; those of the last windows are kept."""
    return KeyedPermutation(size, key)
