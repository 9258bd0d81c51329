"""One epoch of a block-wise shuffle: which sample is at which position, and which blocks come next."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.hashing import hash_array, hash_of
from data_stack.dataset.permutation import KeyedPermutation, permute_array
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.util.intervals import Intervals

#: The order of a window is written out, in 4 bytes a sample, up to this number of samples.
_MAX_WRITTEN = 1 << 20


class DrawnBlocks:
    """The order of one epoch: its sequence of blocks, and the bounds of its windows.

    Args:
        lengths: number of samples of each block, shape ``(n_blocks,)``.
        window: number of blocks that are mixed, at least 1.
        n_ahead: number of windows that are told ahead.
        blocks_seed: of the order of the blocks; None keeps it.
        samples_seed: of the order of the samples in each window; None keeps it.
    """

    def __init__(
        self,
        lengths: npt.NDArray[np.int64],
        window: int,
        *,
        n_ahead: int,
        blocks_seed: int | None,
        samples_seed: int | None,
    ) -> None:
        blocks: npt.NDArray[Any] = np.arange(len(lengths))
        if blocks_seed is not None:
            blocks = KeyedPermutation(len(lengths), blocks_seed).take(blocks)
        self._blocks = Intervals(lengths[blocks])  # in the order of the epoch
        # position p of the epoch is sample p + shift of the iterator, by the shift of its block
        self._shifts = (np.cumsum(lengths) - lengths)[blocks] - self._blocks.starts
        self._window = min(window, max(1, len(lengths)))
        last_blocks = (
            np.minimum(
                np.arange(self._window, len(lengths) + self._window, self._window), len(lengths)
            )
            - 1
        )
        self._windows = Intervals(np.diff(self._blocks.ends[last_blocks], prepend=0))
        self._key, self._n_ahead = samples_seed, n_ahead
        self._last: tuple[int, IndexArrayOfInts] | None = None

    def indices(self, positions: IndexArrayOfInts) -> IndexArrayOfInts:
        mixed = positions
        if self._key is not None and len(positions):  # permute them within their windows
            first, last = self._windows.find(np.array([positions.min(), positions.max()])).tolist()
            if first == last:  # as a rule
                start, size = (
                    int(self._windows.starts[first]),
                    int(self._windows.ends[first] - self._windows.starts[first]),
                )
                if size <= _MAX_WRITTEN:
                    return self._samples_of(first).take(positions - start)
                mixed = start + _permutation(size, hash_of(self._key, first)).take(
                    positions - start
                )
            else:
                windows = self._windows.find(positions)
                starts = self._windows.starts[windows]
                sizes = (self._windows.ends[windows] - starts).astype(np.uint64)
                mixed = starts + permute_array(
                    sizes, hash_array(self._key, windows), positions - starts
                ).view(np.int64)
        indices: IndexArrayOfInts = mixed + self._shifts[self._blocks.find(mixed)]
        return indices

    def _samples_of(self, window: int) -> IndexArrayOfInts:
        """The samples of a window in their order; those of the last window are kept."""
        last = self._last  # one attribute: threads need no lock
        if last is None or last[0] != window:
            start, end = int(self._windows.starts[window]), int(self._windows.ends[window])
            blocks = slice(window * self._window, (window + 1) * self._window)
            dtype = np.int32 if self._blocks.ends[-1] < 1 << 31 else np.int64
            shifts = np.repeat(
                self._shifts[blocks].astype(dtype),
                (self._blocks.ends - self._blocks.starts)[blocks],
            )
            order = KeyedPermutation(end - start, hash_of(self._key or 0, window)).take(
                np.arange(end - start)
            )
            self._last = last = window, (np.arange(start, end, dtype=dtype) + shifts).take(order)
        return last[1]

    def upcoming(self, position: int) -> tuple[IndexArrayOfInts, int]:
        """A sample of each block of the windows after that of a position, and where the window of the position ends."""
        window = int(self._windows.ends.searchsorted(position, side="right"))
        places = slice((window + 1) * self._window, (window + 1 + self._n_ahead) * self._window)
        starts = self._blocks.starts[places]
        samples: IndexArrayOfInts = (starts + self._shifts[places])[
            starts < self._blocks.ends[places]
        ]
        return samples, int(self._windows.ends[window])


_permutation = functools.lru_cache(maxsize=4)(KeyedPermutation)
