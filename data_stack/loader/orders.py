"""Orders of the samples of an epoch: bijections of ``range(n)`` with random access."""

from __future__ import annotations

import functools
import sys
import warnings
from abc import ABC, abstractmethod
from typing import Any, ClassVar, SupportsIndex

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator import DatasetIteratorIF, access_to
from data_stack.dataset.positions import IndexArrayOfInts, check_integer
from data_stack.dataset.randomness import KeyedPermutation, derive_seed, hash_of
from data_stack.dataset.recipes.array_values import array_digest
from data_stack.exception import ConfigError
from data_stack.loader.drawn_blocks import DrawnBlocks


def block_lengths(iterator: DatasetIteratorIF) -> npt.NDArray[np.int64] | None:
    """The number of samples of each block that a stack reads together, shape ``(n_blocks,)``, without empty blocks.

    Sources report blocks by :meth:`~data_stack.dataset.iterator.SampleAccess.blocks`, as
    :class:`~data_stack.formats.parquet.ParquetDataset` does. Layers that change or select samples, but keep their order, keep the
    blocks below; ``combine`` has the blocks of all parts. None if the source reports no blocks, or a layer changes the order.
    """
    lengths = access_to(iterator).blocks()
    return None if lengths is None else lengths[lengths > 0]


class Order(ABC):
    """Maps positions of an epoch to samples: a pure function of the seed, the epoch and the position.

    Every sample has exactly one position. The sample at a position does not depend on the other positions of a call. An order is
    an immutable value that pickles.
    """

    shares_seed: ClassVar[bool] = True
    """Whether the ranks of a loader need the same seed so that together they read each sample once."""

    @abstractmethod
    def indices(
        self, positions: IndexArrayOfInts, n_samples: int, seed: int, epoch: int
    ) -> IndexArrayOfInts:
        """The samples at ``positions``.

        Args:
            positions: shape ``(n,)``, each in ``[0, n_samples)``.
            n_samples: of the epoch, at least 1.
            seed: any integer.
            epoch: at least 0.

        Returns:
            Indices of samples, shape ``(n,)``, each in ``[0, n_samples)``.

        Raises:
            ConfigError: the order was made for another number of samples.
        """
        raise NotImplementedError

    def upcoming(
        self, position: int, n_samples: int, seed: int, epoch: int
    ) -> tuple[IndexArrayOfInts | None, int]:
        """The samples that a source may prefetch at a position of an epoch: one of each block that begins soon.

        Args:
            position: of the next sample.
            n_samples: as for :meth:`indices`.
            seed: likewise.
            epoch: likewise.

        Returns:
            Indices of samples, shape ``(n,)``, or None without blocks; and the position at which the answer changes.
        """
        return None, sys.maxsize

    @abstractmethod
    def content(self) -> dict[str, Any]:
        """Plain JSON data that identifies the order in the state of a loader."""
        raise NotImplementedError

    def for_iterator(self, iterator: DatasetIteratorIF) -> Order:
        """The order for a stack: itself, or a copy with the blocks of the stack.

        Raises:
            ConfigError: the order needs blocks, and the stack reports none.
        """
        return self

    def __repr__(self) -> str:
        arguments = [
            f"{name}={value!r}" for name, value in self.content().items() if name != "order"
        ]
        return f"{type(self).__name__}({', '.join(arguments)})"


class InOrder(Order):
    """The order of the iterator, in every epoch.

    Args:
        block_lengths: samples of each block that the source reads together, so that the loader prefetches the next one, shape
            ``(n_blocks,)``; None for the blocks that the stack reports.
    """

    _n_ahead = 1

    def __init__(self, block_lengths: npt.NDArray[np.int64] | None = None) -> None:
        self._block_ends = (
            None if block_lengths is None or not len(block_lengths) else np.cumsum(block_lengths)
        )

    def for_iterator(self, iterator: DatasetIteratorIF) -> Order:
        made = InOrder(
            block_lengths(iterator)
            if self._block_ends is None
            else np.diff(self._block_ends, prepend=0)
        )
        made._n_ahead = 16 if access_to(iterator).prefers_blocks else 1  # a request for each
        return made

    def upcoming(
        self, position: int, n_samples: int, seed: int, epoch: int
    ) -> tuple[IndexArrayOfInts | None, int]:
        if self._block_ends is None or position >= self._block_ends[-1]:
            return None, sys.maxsize
        block = int(self._block_ends.searchsorted(position, side="right"))
        until = int(self._block_ends[block])
        starts = self._block_ends[block : block + self._n_ahead]
        return starts[starts < n_samples], until

    def indices(
        self, positions: IndexArrayOfInts, n_samples: int, seed: int, epoch: int
    ) -> IndexArrayOfInts:
        return positions

    def content(self) -> dict[str, Any]:
        return {"order": "in order"}


class Shuffled(Order):
    """All samples in a random order, that of ``iterator.shuffle(seed, epoch=epoch)``.

    The order is a :class:`~data_stack.dataset.randomness.KeyedPermutation`: the same on every machine, and without an
    array of positions for more than 65,536 samples.
    """

    def indices(
        self, positions: IndexArrayOfInts, n_samples: int, seed: int, epoch: int
    ) -> IndexArrayOfInts:
        return epoch_permutation(n_samples, seed, epoch).take(positions)

    def content(self) -> dict[str, Any]:
        return {"order": "shuffled"}


def warn_of_scattered_reads(order: Order, iterator: DatasetIteratorIF, stacklevel: int) -> None:
    """Warn if an order reads a remote store sample by sample; ``stacklevel`` is counted from the caller."""
    access = access_to(iterator)
    is_random = isinstance(order, Shuffled) or (
        isinstance(order, InOrder) and access.blocks() is None
    )
    if is_random and access.prefers_blocks:
        warnings.warn(
            f"samples of {iterator!r:.120} lie in a remote store and are read in random order, maybe by a request each: "
            f"shuffle in the loader only, by Loader(…, shuffle=BlockShuffled()), which reads each block once; or keep a copy on "
            f"this machine by iterator.cache(storage=…)",
            stacklevel=stacklevel + 1,
        )


# Small permutations are stored, 4 bytes a position, and take time to make.
@functools.lru_cache(maxsize=16)
def epoch_permutation(n_samples: int, seed: int, epoch: int) -> KeyedPermutation:
    """The order of :class:`Shuffled`."""
    return KeyedPermutation(n_samples, derive_seed("shuffled", seed, epoch))


class Bucketed(Order):
    """Shuffles all samples, and collects samples of similar length in chunks, window by window::

        lengths = [len(tokens) for tokens in texts.read_column("tokens")]
        Loader(texts, 32, shuffle=Bucketed(lengths, chunk=32), collate=Padded())

    The order of :class:`~data_stack.loader.orders.Shuffled` is cut into windows of ``window * chunk`` samples. Within each,
    samples are sorted by length (equal ones stay in their shuffled order) and cut into chunks of ``chunk`` samples, and these are
    shuffled. So each epoch mixes other samples in a window; short and long batches come in random order; and a padded batch
    has about the padding that the 1/``window`` quantiles of the lengths leave.

    If ``chunk`` does not divide the number of samples, one chunk is short and comes at the end of the epoch, so that batches and
    chunks stay in step. Its samples are drawn: if they were always the longest, ``drop_last`` would hide these in most epochs.

    With ``chunk = batch_size`` each batch of each rank is one chunk, with any number of ranks, except in the last step of an
    epoch, whose samples are divided evenly. With ``chunk = world * batch_size`` the batches of *all* ranks in a step have similar
    lengths, so that no rank waits for another.

    It keeps the lengths, in as few bytes as the longest needs, and one sorted window of 8 bytes a sample.

    Args:
        lengths: of each sample, integers in any unit, shape ``(n_samples,)``; only their order counts.
        chunk: number of samples that stay together, at least 1; usually the batch size.
        window: number of chunks that are sorted together, at least 1. A larger window leaves less padding, and mixes as well.

    Raises:
        ConfigError: lengths are not integers, or are negative; ``chunk`` or ``window`` is not positive. When the order is used:
            the number of samples differs from that of the lengths.
    """

    def __init__(
        self, lengths: npt.ArrayLike, *, chunk: SupportsIndex, window: SupportsIndex = 100
    ) -> None:
        given = np.asarray(lengths)
        if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
            raise ConfigError(
                f"lengths must be one integer per sample, got {given.dtype} of shape {given.shape}; "
                f"for a column of lists, pass [len(value) for value in iterator.read_column(key)]"
            )
        if given.size and int(given.min()) < 0:
            raise ConfigError(
                f"lengths must not be negative; that of sample {int(given.argmin())} is {int(given.min())}"
            )
        longest = int(given.max()) if given.size else 0
        self._lengths: npt.NDArray[np.unsignedinteger[Any]] = given.astype(
            np.min_scalar_type(longest)
        )  # a copy
        self._chunk = check_integer("the chunk of a bucketed order", chunk, at_least=1)
        self._window = check_integer("the window of a bucketed order", window, at_least=1)
        self._last: tuple[tuple[int, int, int], npt.NDArray[np.int64]] | None = None

    def indices(
        self, positions: IndexArrayOfInts, n_samples: int, seed: int, epoch: int
    ) -> IndexArrayOfInts:
        if n_samples != len(self._lengths):
            raise ConfigError(
                f"this bucketed order has the lengths of {len(self._lengths):,} samples, but the iterator has {n_samples:,}: "
                f"pass the lengths of this iterator"
            )
        windows, places = np.divmod(positions.astype(np.int64), self._chunk * self._window)
        found = np.empty(len(positions), dtype=np.int64)
        for window in np.unique(windows).tolist():
            which = windows == window
            last = self._last  # one attribute: threads need no lock
            if last is None or last[0] != (seed, epoch, window):
                self._last = last = (seed, epoch, window), self._sort_window(window, seed, epoch)
            found[which] = last[1][places[which]]
        return found

    def content(self) -> dict[str, Any]:
        return {
            "order": "bucketed",
            "lengths": self._digest,
            "chunk": self._chunk,
            "window": self._window,
        }

    @functools.cached_property
    def _digest(self) -> str:
        return array_digest(self._lengths.astype(np.int64))

    def __repr__(self) -> str:
        return (
            f"Bucketed({len(self._lengths):,} lengths, chunk={self._chunk}, window={self._window})"
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": None}

    def _sort_window(self, window: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
        """The samples of a window in their order, shape ``(samples of the window,)``."""
        n_samples, chunk = len(self._lengths), self._chunk
        start = window * self._window * chunk
        shuffled = Shuffled().indices(
            np.arange(start, min(start + self._window * chunk, n_samples)), n_samples, seed, epoch
        )
        by_length = shuffled[np.argsort(self._lengths[shuffled], kind="stable")].astype(np.int64)
        n_full, n_short = divmod(len(by_length), chunk)
        drawn = derive_seed("buckets", seed, epoch, window)
        place = (
            hash_of(drawn, 0) * (n_full + 1) >> 64
        ) * chunk  # cut the short chunk out before one of the full ones
        full, short = (
            np.delete(by_length, np.s_[place : place + n_short]),
            by_length[place : place + n_short],
        )
        order = KeyedPermutation(n_full, drawn).take(np.arange(n_full))
        return np.concatenate((full.reshape(n_full, chunk)[order].ravel(), short))


class BlockShuffled(Order):
    """Shuffles the blocks, then the samples within each ``window`` consecutive blocks of that order.

    For sources that read neighbours faster than scattered samples: row groups, blocks of a remote store, shards. At most
    ``window`` blocks are in use at any time, so a reader that caches one more reads each block once. In return, samples are only
    mixed within ``window`` random blocks: two successive samples belong to the same block with a probability of 1/``window``
    (in a full shuffle: 1/number of blocks). A window of all blocks is a full shuffle.

    It keeps 16 bytes per block during an epoch, and 8 more if each block has its own length; and the order of the last window, 4
    bytes a sample, if that has up to a million samples.

    Args:
        block_lengths: number of samples of every block but the last, or of each block, in the iterator's order, shape
            ``(n_blocks,)``; None for the blocks that the stack reports (:func:`block_lengths`), such as row groups of Parquet.
        window: number of blocks that are mixed, at least 1.
        blocks: False keeps the order of the blocks: each window consists of neighbours.
        samples: False keeps the order of the samples in each block, without windows.

    Raises:
        ConfigError: a length is negative, ``window`` not positive, or both ``blocks`` and ``samples`` are False.
    """

    _n_ahead = 1

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
            raise ConfigError(
                "blocks=False and samples=False leave the order unchanged; use InOrder(), or shuffle=False"
            )
        self._block_length: int | None = None
        self._lengths: npt.NDArray[np.int64] | None = None
        if block_lengths is None:
            return
        lengths = np.array(block_lengths)
        if lengths.ndim == 0:
            self._block_length = check_integer(
                "the block length of a block-wise shuffle", block_lengths, at_least=1
            )
            return
        if (
            lengths.ndim != 1
            or (lengths.size and lengths.dtype.kind not in "iu")
            or (lengths < 0).any()
        ):
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
        made = BlockShuffled(
            block_lengths=lengths,
            window=self._window,
            blocks=self._shuffles_blocks,
            samples=self._shuffles_samples,
        )
        # While the last blocks of a window arrive from a store, those of the next ones must be on their way.
        made._n_ahead = 2 if access_to(iterator).prefers_blocks else 1
        return made

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
        blocks = self._block_length if self._lengths is None else array_digest(self._lengths)
        content = {"order": "block-wise shuffled", "block_lengths": blocks, "window": self._window}
        if not self._shuffles_blocks:  # named only if it differs from the default
            content["blocks"] = False
        return content if self._shuffles_samples else {**content, "window": 1, "samples": False}

    def lengths(self, n_samples: int) -> npt.NDArray[np.int64]:
        """The number of samples of each block, shape ``(n_blocks,)``.

        Raises:
            ConfigError: the lengths do not add up to ``n_samples``.
        """
        if self._lengths is None:
            if self._block_length is None:
                raise ConfigError(
                    "this block-wise shuffle has no blocks: use it in a Loader, or pass block_lengths="
                )
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


@functools.lru_cache(maxsize=4)
def _draw_blocks(order: BlockShuffled, n_samples: int, seed: int, epoch: int) -> DrawnBlocks:
    return DrawnBlocks(
        order.lengths(n_samples),
        order._window if order._shuffles_samples else 1,
        n_ahead=order._n_ahead,
        blocks_seed=derive_seed("blocks", seed, epoch) if order._shuffles_blocks else None,
        samples_seed=derive_seed("in blocks", seed, epoch) if order._shuffles_samples else None,
    )


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

    def indices(
        self, positions: IndexArrayOfInts, n_samples: int, seed: int, epoch: int
    ) -> IndexArrayOfInts:
        return self._order.indices(self._positions(positions, n_samples), n_samples, seed, epoch)

    def upcoming(
        self, position: int, n_samples: int, seed: int, epoch: int
    ) -> tuple[IndexArrayOfInts | None, int]:
        if position >= n_samples:
            return None, sys.maxsize
        own = int(self._positions(np.array([position]), n_samples)[0])
        ahead, until = self._order.upcoming(own, n_samples, seed, epoch)
        before = own - self._batch_size
        if before >= 0 and self._order.upcoming(before, n_samples, seed, epoch)[1] == until:
            ahead = None  # prefetched for the batch before
        return ahead, position + 1

    def content(self) -> dict[str, Any]:
        return {
            "order": "lanes",
            "of": self._order.content(),
            "lanes": self._n_lanes,
            "batch_size": self._batch_size,
        }

    def for_iterator(self, iterator: DatasetIteratorIF) -> Order:
        return Lanes(
            self._order.for_iterator(iterator), lanes=self._n_lanes, batch_size=self._batch_size
        )

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
            found = np.where(
                is_late, np.where(rest >= 0, self._n_lanes * length + rest, of_lane), found
            )
        return found
