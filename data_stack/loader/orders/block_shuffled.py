"""A random order that reads blocks of neighbours together."""

from __future__ import annotations

import functools
import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator import DatasetIteratorIF, access_to
from data_stack.dataset.positions import IndexArrayOfInts, check_integer
from data_stack.dataset.randomness import derive_seed
from data_stack.dataset.recipes.array_values import array_digest
from data_stack.exception import ConfigError
from data_stack.loader.orders.drawn_blocks import DrawnBlocks
from data_stack.loader.orders.order import Order, block_lengths

#: While the last blocks of a window arrive from a remote store, those of the next one must be on
#: their way.
_N_REMOTE_WINDOWS_AHEAD = 2


class BlockShuffled(Order):
    """Shuffles the blocks, cuts their order into windows, and shuffles the samples in each window.

    It is for sources that read neighbours faster than scattered samples: row groups, blocks of a
    remote store, shards. A window has ``window`` blocks. No more blocks are in use at any time, so
    a reader that caches one more reads each block once. In return, samples are only mixed within
    ``window`` random blocks: two successive samples belong to the same block with a probability of
    1/``window`` (in a full shuffle: 1/number of blocks). A window of all blocks is a full shuffle.

    It keeps 16 bytes per block during an epoch, and 8 more if each block has its own length; and
    the order of the last window, 4 bytes a sample, if that has up to a million samples.

    Args:
        block_lengths: the number of samples of every block but the last, or of each block, in the
            iterator's order, shape ``(n_blocks,)``; None for the blocks that the stack reports
            (:func:`block_lengths`), such as row groups of Parquet.
        window: the number of blocks that are mixed, at least 1.
        blocks: False keeps the order of the blocks: each window consists of neighbours.
        samples: False keeps the order of the samples in each block, without windows.

    Raises:
        ConfigError: a length is negative, ``window`` not positive, or both ``blocks`` and
            ``samples`` are False.
    """

    #: The number of blocks that are mixed.
    _window: int
    #: Whether the blocks are shuffled.
    _shuffles_blocks: bool
    #: Whether the samples in a window are shuffled.
    _shuffles_samples: bool
    #: The number of samples of every block but the last; None if they differ, or are unknown.
    _block_length: int | None
    #: The number of samples of each block, shape ``(n_blocks,)``; None if all have one length.
    _lengths: npt.NDArray[np.int64] | None
    #: The number of windows to prefetch.
    _n_windows_ahead: int

    def __init__(
        self,
        *,
        block_lengths: int | npt.ArrayLike | None = None,
        window: int = 16,
        blocks: bool = True,
        samples: bool = True,
    ) -> None:
        if not (blocks or samples):
            raise ConfigError(
                "blocks=False and samples=False leave the order unchanged; use InOrder(), or "
                "shuffle=False"
            )
        self._window = check_integer("the window of a block-wise shuffle", window, at_least=1)
        self._shuffles_blocks = bool(blocks)
        self._shuffles_samples = bool(samples)
        self._block_length = None
        self._lengths = None
        self._n_windows_ahead = 1
        if block_lengths is None:
            return
        if np.ndim(block_lengths) == 0:
            self._block_length = check_integer(
                "the block length of a block-wise shuffle", block_lengths, at_least=1
            )
        else:
            self._lengths = _check_lengths(block_lengths)

    def for_iterator(self, iterator: DatasetIteratorIF) -> Order:
        if self._block_length is not None or self._lengths is not None:
            return self
        lengths = block_lengths(iterator)
        if lengths is None:
            raise ConfigError(
                f"{iterator!r:.120} reports no blocks: pass their lengths, "
                "BlockShuffled(block_lengths=1000) for blocks of 1000 samples, or shuffle below "
                "this layer"
            )
        order = BlockShuffled(
            block_lengths=lengths,
            window=self._window,
            blocks=self._shuffles_blocks,
            samples=self._shuffles_samples,
        )
        if access_to(iterator).prefers_blocks:
            order._n_windows_ahead = _N_REMOTE_WINDOWS_AHEAD
        return order

    def indices(
        self, positions: IndexArrayOfInts, n_samples: int, seed: int, epoch: int
    ) -> IndexArrayOfInts:
        return _draw_blocks(self, n_samples, seed, epoch).indices(positions)

    def upcoming(
        self, position: int, n_samples: int, seed: int, epoch: int
    ) -> tuple[IndexArrayOfInts | None, int]:
        if position >= n_samples:
            return None, sys.maxsize
        return _draw_blocks(self, n_samples, seed, epoch).upcoming(position)

    def content(self) -> dict[str, Any]:
        blocks: Any = self._block_length
        if self._lengths is not None:
            blocks = array_digest(self._lengths)
        content = {"order": "block-wise shuffled", "block_lengths": blocks, "window": self._window}
        # What has its default is not named, so that states of earlier versions match.
        if not self._shuffles_blocks:
            content["blocks"] = False
        if not self._shuffles_samples:
            content["window"] = 1
            content["samples"] = False
        return content

    def lengths(self, n_samples: int) -> npt.NDArray[np.int64]:
        """Return the number of samples of each block, shape ``(n_blocks,)``.

        Raises:
            ConfigError: the lengths do not add up to ``n_samples``.
        """
        if self._lengths is not None:
            sum_of_lengths = int(self._lengths.sum())
            if sum_of_lengths != n_samples:
                raise ConfigError(
                    f"the blocks of a block-wise shuffle have {sum_of_lengths} samples together, "
                    f"but the iterator has {n_samples}: pass the block lengths of this iterator"
                )
            return self._lengths

        if self._block_length is None:
            raise ConfigError(
                "this block-wise shuffle has no blocks: use it in a Loader, or pass block_lengths="
            )
        n_full_blocks, n_remaining = divmod(n_samples, self._block_length)
        lengths = np.full(n_full_blocks, self._block_length, dtype=np.int64)
        if n_remaining:
            lengths = np.append(lengths, n_remaining)
        return lengths


def _check_lengths(block_lengths: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Return a copy of the length of each block.

    Raises:
        ConfigError: a length is no integer, or negative.
    """
    lengths = np.array(block_lengths)
    is_of_integers = lengths.size == 0 or lengths.dtype.kind in "iu"
    if lengths.ndim != 1 or not is_of_integers or (lengths < 0).any():
        raise ConfigError(
            "block_lengths must be a positive integer, or a non-negative integer per block, "
            f"got {block_lengths!r:.80}"
        )
    return lengths.astype(np.int64)


@functools.lru_cache(maxsize=4)
def _draw_blocks(order: BlockShuffled, n_samples: int, seed: int, epoch: int) -> DrawnBlocks:
    """Return one epoch of an order; the last epochs are kept, as drawing takes time."""
    blocks_seed = None
    if order._shuffles_blocks:
        blocks_seed = derive_seed("blocks", seed, epoch)
    samples_seed = None
    window = 1
    if order._shuffles_samples:
        samples_seed = derive_seed("in blocks", seed, epoch)
        window = order._window
    return DrawnBlocks(
        order.lengths(n_samples),
        window,
        n_windows_ahead=order._n_windows_ahead,
        blocks_seed=blocks_seed,
        samples_seed=samples_seed,
    )
