"""The part of an iterator's samples that one of several ranks has."""

from __future__ import annotations

import sys
from typing import Literal

import numpy as np

from data_stack.dataset.iterator.adapted import as_iterator
from data_stack.dataset.iterator.contract import DatasetIteratorIF
from data_stack.dataset.iterator.layer import layer
from data_stack.dataset.iterator.layers.view import DatasetIteratorView
from data_stack.dataset.positions import Positions, check_integer, narrow
from data_stack.exception import ConfigError

_Uneven = Literal["keep", "pad", "drop"]


@layer("sharded")
class ShardedDatasetIterator(DatasetIteratorView):
    """The samples of one of ``world`` ranks.

    Of n samples, rank r has the positions ``r, r + world, r + 2 * world, …``, or with
    ``contiguous`` a run of neighbours. No array of positions is kept, except for positions that are
    padded. Where ``world`` does not divide n, ``uneven`` says what becomes of the remaining
    samples:

    - ``"keep"``: every sample is in exactly one part, and parts differ by one sample at most, the
      first ones being larger.
    - ``"pad"``: all parts have ``ceil(n / world)`` samples. The missing ones are taken from the
      start of the iterator, again and again if there are fewer samples than ranks. The parts of an
      empty iterator are empty.
    - ``"drop"``: all parts have ``n // world`` samples, and the last ``n % world`` samples are in
      none.

    Args:
        dataset_iterator: the samples; it is not closed. Nothing is read.
        rank: from 0 to ``world - 1``.
        world: number of ranks.
        contiguous: whether a rank has a run of neighbours, not every ``world``-th sample.
        uneven: "keep", "pad" or "drop". Ranks that train in step need equally many samples: "pad"
            or "drop".

    Raises:
        ConfigError: ``world`` is not positive, ``rank`` is not from 0 to ``world - 1``, or
            ``uneven`` is none of the three.
    """

    def __init__(
        self,
        dataset_iterator: DatasetIteratorIF,
        rank: int,
        world: int,
        *,
        contiguous: bool = False,
        uneven: _Uneven = "keep",
    ) -> None:
        n_ranks = check_integer(
            "the world of a sharded iterator", world, at_least=1, at_most=sys.maxsize
        )
        checked_rank = check_integer(
            f"the rank in a world of {n_ranks}", rank, at_least=0, at_most=n_ranks - 1
        )
        if uneven not in ("keep", "pad", "drop"):
            raise ConfigError(f"uneven must be 'keep', 'pad' or 'drop', got {uneven!r}")
        n_samples = len(as_iterator(dataset_iterator))
        if uneven == "pad":
            positions = _pad_part(n_samples, checked_rank, n_ranks, is_run=contiguous)
        elif uneven == "drop":
            n_in_parts = n_samples - n_samples % n_ranks
            positions = _take_part(n_in_parts, checked_rank, n_ranks, is_run=contiguous)
        else:
            positions = _take_part(n_samples, checked_rank, n_ranks, is_run=contiguous)
        super().__init__(dataset_iterator, positions)
        self._made_with = {
            "rank": checked_rank,
            "world": n_ranks,
            "contiguous": bool(contiguous),
            "uneven": uneven,
        }


def _take_part(n_samples: int, rank: int, world: int, *, is_run: bool) -> range:
    """Return the positions of a part, where every sample is in exactly one part."""
    if not is_run:
        return range(rank, n_samples, world)
    min_length, n_longer_parts = divmod(n_samples, world)
    start = rank * min_length + min(rank, n_longer_parts)
    length = min_length
    if rank < n_longer_parts:
        length += 1
    return range(start, start + length)


def _pad_part(n_samples: int, rank: int, world: int, *, is_run: bool) -> Positions:
    """Return the positions of a part, where all parts have ``ceil(n_samples / world)`` samples.

    Positions after the last sample start again at the first one.
    """
    if n_samples % world == 0:
        return _take_part(n_samples, rank, world, is_run=is_run)
    length = n_samples // world + 1
    if is_run:
        start = rank * length
        step = 1
    else:
        start = rank
        step = world
    last = start + (length - 1) * step
    if last < n_samples:
        return range(start, last + 1, step)
    # Up to n_samples + world, which does not fit into an int64 if both are near sys.maxsize.
    offsets = np.arange(length, dtype=np.uint64) * np.uint64(step)
    positions = (np.uint64(start) + offsets) % np.uint64(n_samples)
    return narrow(positions, n_samples)
