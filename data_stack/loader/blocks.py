"""Orders that read whole blocks of a source."""

from __future__ import annotations

import sys
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.iterator.indices import check_integer
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.dataset.randomness.keyed import hash_array, permute_array
from data_stack.dataset.randomness.permutation import KeyedPermutation
from data_stack.dataset.randomness.seeds import derive_seed
from data_stack.dataset.recipes.recipe_values import array_digest
from data_stack.exception import ConfigError
from data_stack.loader.orders import Order, block_lengths
from data_stack.util.stretches import Stretches


class BlockShuffled(Order):
    """Shuffles the blocks, then the samples within each ``window`` consecutive blocks of that order.

    For sources that read neighbours faster than scattered samples: row groups, blocks of a remote store, shards. At most
    ``window`` blocks are in use at any time, so a reader that caches one more reads each block once. In return, samples are only
    mixed within ``window`` random blocks: two successive samples belong to the same block with a probability of 1/``window``
    (in a full shuffle: 1/number of blocks). A window of all blocks is a full shuffle.

    It keeps 16 bytes per block during an epoch, and 8 more if each block has its own length.

    Args:
        block_lengths: number of samples of every block but the last, or of each block, in the iterator's order, shape
            ``(n_blocks,)``; None for the blocks that the stack reports (:func:`block_lengths`), such as row groups of Parquet.
        window: number of blocks that are mixed, at least 1.
        blocks: False keeps the order of the blocks: each window consists of neighbours.
        samples: False keeps the order of the samples in each block, without windows.

    Raises:
        ConfigError: a length is negative, ``window`` not positive, or both ``blocks`` and ``samples`` are False.
    """

    def __init__(
        self,
        *,
        block_lengths: int | npt.ArrayLike | None = None,
        window: int = 16,
        blocks: bool = True,
        samples: bool = True,
    ) -> None:
        self._window = check_integer("the window of a block-wise shuffle", window, at_least=1)
        self._shuffles_blocks, self._shuffles_samples = bool(blocks), bool(samples)
        if not (blocks or samples):
            raise ConfigError("blocks=False and samples=False leave the order unchanged; use InOrder(), or shuffle=False")
        self._drawn: tuple[tuple[int, int, int], _DrawnBlocks] | None = None  # of the last epoch
        self._block_length: int | None = None
        self._lengths: npt.NDArray[np.int64] | None = None
        if block_lengths is None:
            return
        lengths = np.array(block_lengths)
        if lengths.ndim == 0:
            self._block_length = check_integer("the block length of a block-wise shuffle", block_lengths, at_least=1)
            return
        if lengths.ndim != 1 or (lengths.size and lengths.dtype.kind not in "iu") or (lengths < 0).any():
            raise ConfigError(
                f"block_lengths must be a positive integer, or a non-negative integer per block, got {block_lengths!r:.80}"
            )
        self._lengths = lengths.astype(np.int64)

    def for_iterator(self, iterator: DatasetIteratorIF) -> Order:
        if self._block_length is not None or self._lengths is not None:
            return self
        lengths = block_lengths(iterator)
        if lengths is None:
            raise ConfigError(
                f"{iterator!r:.120} reports no blocks: pass their lengths, BlockShuffled(block_lengths=1000) for blocks of "
                f"1000 samples, or shuffle below this layer"
            )
        return BlockShuffled(
            block_lengths=lengths, window=self._window, blocks=self._shuffles_blocks, samples=self._shuffles_samples
        )

    def indices(self, positions: IndexArrayOfInts, n_samples: int, seed: int, epoch: int) -> IndexArrayOfInts:
        return self._draw_blocks(n_samples, seed, epoch).indices(positions)

    def _draw_blocks(self, n_samples: int, seed: int, epoch: int) -> _DrawnBlocks:
        which = n_samples, seed, epoch
        drawn = self._drawn  # one attribute: threads need no lock
        if drawn is None or drawn[0] != which:
            drawn = self._drawn = which, _DrawnBlocks(self, n_samples, seed, epoch)
        return drawn[1]

    def upcoming(self, position: int, n_samples: int, seed: int, epoch: int) -> tuple[IndexArrayOfInts | None, int]:
        if position >= n_samples:
            return None, sys.maxsize
        return self._draw_blocks(n_samples, seed, epoch).upcoming(position)

    def content(self) -> dict[str, Any]:
        blocks = self._block_length if self._lengths is None else array_digest(self._lengths)
        content = {"order": "block-wise shuffled", "block_lengths": blocks, "window": self._window}
        if not self._shuffles_blocks:  # named only if it differs from the default
            content["blocks"] = False
        if not self._shuffles_samples:
            content = {**content, "window": 1, "samples": False}
        return content

    def lengths(self, n_samples: int) -> npt.NDArray[np.int64]:
        """The number of samples of each block, shape ``(n_blocks,)``.

        Raises:
            ConfigError: the lengths do not add up to ``n_samples``.
        """
        if self._lengths is None:
            if self._block_length is None:
                raise ConfigError("this block-wise shuffle has no blocks: use it in a Loader, or pass block_lengths=")
            length = self._block_length
            lengths = np.full(-(-n_samples // length), length, dtype=np.int64)
            lengths[-1:] -= len(lengths) * length - n_samples
            return lengths
        if int(self._lengths.sum()) != n_samples:
            raise ConfigError(
                f"the blocks of a block-wise shuffle have {int(self._lengths.sum())} samples together, but the iterator has "
                f"{n_samples}: pass the block lengths of this iterator"
            )
        return self._lengths

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_drawn": None}


class _DrawnBlocks:
    """The order of one epoch: its sequence of blocks, and the bounds of its windows."""

    def __init__(self, order: BlockShuffled, n_samples: int, seed: int, epoch: int) -> None:
        lengths = order.lengths(n_samples)
        blocks: npt.NDArray[Any] = np.arange(len(lengths))
        if order._shuffles_blocks:
            blocks = KeyedPermutation(len(lengths), derive_seed("blocks", seed, epoch)).take(blocks)
        self._blocks = Stretches(lengths[blocks])  # in the order of the epoch
        # position p of the epoch is sample p + shift of the iterator, by the shift of its block
        self._shifts = (np.cumsum(lengths) - lengths)[blocks] - self._blocks.starts
        self._window = min(order._window if order._shuffles_samples else 1, max(1, len(lengths)))
        last_blocks = np.minimum(np.arange(self._window, len(lengths) + self._window, self._window), len(lengths)) - 1
        self._windows = Stretches(np.diff(self._blocks.ends[last_blocks], prepend=0))
        self._key = derive_seed("in blocks", seed, epoch) if order._shuffles_samples else None

    def indices(self, positions: IndexArrayOfInts) -> IndexArrayOfInts:
        mixed = positions if self._key is None else self._mix(positions, self._key)
        indices: IndexArrayOfInts = mixed + self._shifts[self._blocks.of(mixed)]
        return indices

    def _mix(self, positions: IndexArrayOfInts, key: int) -> IndexArrayOfInts:
        """Permute positions within their windows."""
        windows = self._windows.of(positions)
        starts = self._windows.starts[windows]
        sizes = (self._windows.ends[windows] - starts).astype(np.uint64)
        return starts + permute_array(sizes, hash_array(key, windows), positions - starts).view(np.int64)

    def upcoming(self, position: int) -> tuple[IndexArrayOfInts, int]:
        """A sample of each block of the window after that of a position, and where the window of the position ends."""
        window = int(self._windows.ends.searchsorted(position, side="right"))
        places = slice((window + 1) * self._window, (window + 2) * self._window)
        starts = self._blocks.starts[places]
        samples: IndexArrayOfInts = (starts + self._shifts[places])[starts < self._blocks.ends[places]]
        return samples, int(self._windows.ends[window])


class Lanes(Order):
    """Divides another order so that each of several ranks reads its own blocks.

    ::

        order = Lanes(BlockShuffled(window=8), lanes=world, batch_size=256)
        Loader(dataset, 256, shuffle=order, shard=(rank, world))

    The positions of the other order are cut into ``lanes`` equal stretches. Batch 0 comes from the first stretch, batch 1 from
    the second, and so on in turn, so that rank r of ``lanes`` ranks reads stretch r: its share of the row groups, another share
    in each epoch. Neighbouring stretches only share the blocks at their border. All ranks have the same number of steps. Another
    number of ranks can load a state, with each sample once; these ranks then share blocks.

    Worker processes cache row groups separately, too: pass the number of all worker processes as ``lanes``.

    Args:
        order: a block-wise order such as :class:`BlockShuffled`.
        lanes: the number of stretches, at least 1.
        batch_size: of the loader.
    """

    def __init__(self, order: Order, *, lanes: SupportsIndex, batch_size: SupportsIndex) -> None:
        if not isinstance(order, Order):
            raise ConfigError(f"Lanes needs an order such as BlockShuffled(), got {order!r:.80}")
        self._order = order
        self._n_lanes = check_integer("lanes", lanes, at_least=1)
        self._batch_size = check_integer("the batch size of lanes", batch_size, at_least=1)

    def indices(self, positions: IndexArrayOfInts, n_samples: int, seed: int, epoch: int) -> IndexArrayOfInts:
        return self._order.indices(self._positions(positions, n_samples), n_samples, seed, epoch)

    def upcoming(self, position: int, n_samples: int, seed: int, epoch: int) -> tuple[IndexArrayOfInts | None, int]:
        if position >= n_samples:
            return None, sys.maxsize
        own = int(self._positions(np.array([position]), n_samples)[0])
        ahead, until = self._order.upcoming(own, n_samples, seed, epoch)
        before = own - self._batch_size
        if before >= 0 and self._order.upcoming(before, n_samples, seed, epoch)[1] == until:
            ahead = None  # prefetched for the batch before
        return ahead, position + 1

    def content(self) -> dict[str, Any]:
        return {"order": "lanes", "of": self._order.content(), "lanes": self._n_lanes, "batch_size": self._batch_size}

    def for_iterator(self, iterator: DatasetIteratorIF) -> Order:
        return Lanes(self._order.for_iterator(iterator), lanes=self._n_lanes, batch_size=self._batch_size)

    def _positions(self, positions: IndexArrayOfInts, n_samples: int) -> IndexArrayOfInts:
        """The positions in the other order."""
        length = n_samples // self._n_lanes  # of each stretch; the remainder comes last
        in_turns = length // self._batch_size * self._batch_size
        batches, places = np.divmod(positions, self._batch_size)
        turns, lanes = np.divmod(batches, self._n_lanes)
        found: IndexArrayOfInts = lanes * length + turns * self._batch_size + places
        late = positions - in_turns * self._n_lanes
        is_late = late >= 0
        if is_late.any():  # the ends of the stretches, one after the other
            each = max(1, length - in_turns)
            lanes = np.minimum(late // each, self._n_lanes)
            of_lane = lanes * length + in_turns + late % each
            rest = late - self._n_lanes * (length - in_turns)
            found = np.where(is_late, np.where(rest >= 0, self._n_lanes * length + rest, of_lane), found)
        return found
