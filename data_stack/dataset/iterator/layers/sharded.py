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
    """The samples of rank ``rank`` of ``world``: all ranks together have every sample.

    Of n samples, rank r has the positions ``r, r + world, r + 2 * world, …``, or with ``contiguous`` a run of neighbours. No
    array is kept, but of positions that are padded. Where ``world`` does not divide n, ``uneven`` says what becomes of the rest:

    - ``"keep"``: every sample is in exactly one part, and parts differ by one sample at most, the first ones being larger.
    - ``"pad"``: all parts have ``ceil(n / world)`` samples. The missing ones are taken from the start of the iterator, again
      and again if there are fewer samples than ranks. The parts of an empty iterator are empty.
    - ``"drop"``: all parts have ``n // world`` samples, and the last ``n % world`` samples are in none.

    Args:
        dataset_iterator: the samples; it stays the caller's to close. Nothing is read.
        rank: from 0 to ``world - 1``.
        world: number of ranks.
        contiguous: runs of neighbours instead of every ``world``-th sample.
        uneven: "keep", "pad" or "drop". Ranks that train in step need equally many samples: "pad" or "drop".

    Raises:
        ConfigError: ``world`` is not positive, ``rank`` outside of it, or ``uneven`` none of the three.
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
        own = check_integer(
            f"the rank in a world of {n_ranks}", rank, at_least=0, at_most=n_ranks - 1
        )
        if uneven not in ("keep", "pad", "drop"):
            raise ConfigError(f"uneven must be 'keep', 'pad' or 'drop', got {uneven!r}")
        super().__init__(
            dataset_iterator,
            _part_of(len(as_iterator(dataset_iterator)), own, n_ranks, contiguous, uneven),
        )
        self._made_with = {
            "rank": own,
            "world": n_ranks,
            "contiguous": bool(contiguous),
            "uneven": uneven,
        }


def _part_of(n_samples: int, rank: int, world: int, contiguous: bool, uneven: _Uneven) -> Positions:
    per_rank, n_left = divmod(n_samples, world)
    if uneven == "drop":
        n_samples, n_left = n_samples - n_left, 0
    if (uneven == "keep" or n_left == 0) and contiguous:
        start = rank * per_rank + min(rank, n_left)
        return range(start, start + per_rank + (rank < n_left))
    if uneven == "keep" or n_left == 0:
        return range(rank, n_samples, world)
    start, step = (rank * (per_rank + 1), 1) if contiguous else (rank, world)
    last = start + per_rank * step
    if last < n_samples:
        return range(start, last + 1, step)
    # unsigned: start + index * step is below n_samples + world, which may be 2**63 and more
    positions = (
        np.uint64(start) + np.arange(per_rank + 1, dtype=np.uint64) * np.uint64(step)
    ) % np.uint64(n_samples)
    return narrow(positions, n_samples)
