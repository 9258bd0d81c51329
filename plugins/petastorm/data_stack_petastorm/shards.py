"""The order of the shards of a reader, whose rows do not depend on the seed."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.dataset.randomness import KeyedPermutation, derive_seed
from data_stack.exception import ConfigError
from data_stack.loader import Order
from data_stack.loader.plan import Plan, Uneven
from data_stack.util.intervals import Intervals


@dataclass(frozen=True)
class Sharding:
    """How a loader divides samples among shards.

    Attributes:
        n_shards: at least 1.
        batch_size: batch size of each shard's loader.
        uneven: as for :class:`~data_stack.loader.plan.Plan`.
    """

    n_shards: int
    batch_size: int
    uneven: Uneven

    def lengths(self, n_samples: int) -> tuple[int, npt.NDArray[np.int64]]:
        """Return each shard's number of samples in whole steps, and those in the last step, shape ``(n_shards,)``."""
        plan = Plan(n_samples, self.batch_size, world=self.n_shards, uneven=self.uneven)
        n_steps, n_rest = divmod(n_samples, plan.samples_per_step)
        ends = [replace(plan, rank=rank).part(n_steps).stop for rank in range(self.n_shards)]
        in_last_step = np.minimum(
            np.array(ends, dtype=np.int64) - n_steps * plan.samples_per_step, n_rest
        )
        return n_steps * self.batch_size, np.diff(in_last_step, prepend=0)


class Shards(Order):
    """Assigns blocks to shards without a seed, then shuffles within each shard by the seed.

    So shards with different seeds together have each sample once. Each shard has consecutive blocks of the epoch's sequence of
    blocks, which depends only on the epoch, and shares at most two blocks with its neighbours.

    Args:
        lengths: number of samples of each block, shape ``(n_blocks,)``.
        sharding: how to divide the samples.
        reshuffles: whether each epoch assigns other blocks; False: always in the order of the dataset.
        order_of: makes the order of a shard's samples from the lengths of its blocks.
    """

    shares_seed = False

    def __init__(
        self,
        lengths: npt.NDArray[np.int64],
        sharding: Sharding,
        order_of: Callable[[npt.NDArray[np.int64]], Order],
        *,
        reshuffles: bool,
    ) -> None:
        self._lengths, self._sharding, self._order_of, self._reshuffles = (
            lengths,
            sharding,
            order_of,
            reshuffles,
        )
        self._dealt: _Dealt | None = None  # that of the last epoch

    def indices(
        self, positions: IndexArrayOfInts, n_samples: int, seed: int, epoch: int
    ) -> IndexArrayOfInts:
        dealt = self._deal(n_samples, epoch)
        shards, places = dealt.locate(positions)
        found = np.empty(len(positions), dtype=np.int64)
        for shard in np.unique(shards).tolist():
            which = shards == shard
            found[which] = dealt.samples(shard, places[which], seed)
        return found

    def upcoming(
        self, position: int, n_samples: int, seed: int, epoch: int
    ) -> tuple[IndexArrayOfInts | None, int]:
        if position >= n_samples:
            return None, sys.maxsize
        dealt = self._deal(n_samples, epoch)
        (shard,), (place,) = (each.tolist() for each in dealt.locate(np.array([position])))
        ahead, until = dealt.upcoming(shard, place, seed)
        before = place - self._sharding.batch_size
        if before >= 0 and dealt.upcoming(shard, before, seed)[1] == until:
            ahead = None  # prefetched for the batch before
        return ahead, position + 1

    def content(self) -> dict[str, Any]:
        sharding = self._sharding
        return {
            "order": "shards",
            "of": self._order_of(self._lengths).content(),
            "n_shards": sharding.n_shards,
            "batch_size": sharding.batch_size,
            "uneven": sharding.uneven,
        }

    def _deal(self, n_samples: int, epoch: int) -> _Dealt:
        if int(self._lengths.sum()) != n_samples:
            raise ConfigError(
                f"the row groups have {int(self._lengths.sum())} samples in total, expected {n_samples}"
            )
        dealt = self._dealt  # one attribute: threads need no lock
        if dealt is None or dealt.epoch != epoch:
            blocks: npt.NDArray[Any] = np.arange(len(self._lengths))
            if self._reshuffles:
                blocks = KeyedPermutation(len(blocks), derive_seed("shards", epoch)).take(blocks)
            dealt = self._dealt = _Dealt(
                self._lengths, blocks, self._sharding, self._order_of, epoch
            )
        return dealt

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_dealt": None}


class _Dealt:
    """The shards of one epoch: stretches of its sequence of blocks; the last stretch belongs to no shard."""

    def __init__(
        self,
        lengths: npt.NDArray[np.int64],
        blocks: npt.NDArray[Any],
        sharding: Sharding,
        order_of: Callable[[npt.NDArray[np.int64]], Order],
        epoch: int,
    ) -> None:
        self.epoch = epoch
        self._blocks, self._order_of = Intervals(lengths[blocks]), order_of
        self._shifts = (np.cumsum(lengths) - lengths)[blocks] - self._blocks.starts
        n_samples, self._batch_size = int(lengths.sum()), sharding.batch_size
        self._n_in_steps, in_last_step = sharding.lengths(n_samples)
        self._n_in_all_steps, self._n_shards = (
            self._n_in_steps * sharding.n_shards,
            sharding.n_shards,
        )
        self._last_step = Intervals(
            np.append(in_last_step, n_samples - self._n_in_all_steps - in_last_step.sum())
        )
        self._shards = Intervals(
            np.append(
                self._n_in_steps + in_last_step, self._last_step.ends[-1] - in_last_step.sum()
            )
        )
        self._order_of_shard = functools.lru_cache(maxsize=None)(self._make_order)

    def locate(self, positions: IndexArrayOfInts) -> tuple[IndexArrayOfInts, IndexArrayOfInts]:
        """Return the shard of each position of the loaders' common order, and its place in that shard."""
        batches, places = np.divmod(positions, self._batch_size)
        turns, shards = np.divmod(batches, self._n_shards)
        places = places + turns * self._batch_size
        late = positions - self._n_in_all_steps
        if (is_late := late >= 0).any():
            of_late = self._last_step.find(np.maximum(late, 0))
            shards = np.where(is_late, of_late, shards)
            in_steps = np.where(of_late < self._n_shards, self._n_in_steps, 0)
            places = np.where(is_late, in_steps + late - self._last_step.starts[of_late], places)
        return shards, places

    def samples(self, shard: int, places: IndexArrayOfInts, seed: int) -> IndexArrayOfInts:
        """Return the samples at these places of a shard."""
        length = int(self._shards.ends[shard] - self._shards.starts[shard])
        return self._of_dataset(
            shard, self._order_of_shard(shard).indices(places, length, *self._key(shard, seed))
        )

    def upcoming(self, shard: int, place: int, seed: int) -> tuple[IndexArrayOfInts | None, int]:
        """As :meth:`Order.upcoming`, for the places of a shard."""
        length = int(self._shards.ends[shard] - self._shards.starts[shard])
        ahead, until = self._order_of_shard(shard).upcoming(place, length, *self._key(shard, seed))
        return None if ahead is None else self._of_dataset(shard, ahead), until

    def _key(self, shard: int, seed: int) -> tuple[int, int]:
        return derive_seed("shard", seed, shard), self.epoch

    def _of_dataset(self, shard: int, places: IndexArrayOfInts) -> IndexArrayOfInts:
        positions = places + self._shards.starts[shard]
        samples: IndexArrayOfInts = positions + self._shifts[self._blocks.find(positions)]
        return samples

    def _make_order(self, shard: int) -> Order:
        start, end = self._shards.starts[shard], self._shards.ends[shard]
        borders = self._blocks.ends[(self._blocks.ends > start) & (self._blocks.ends < end)]
        return self._order_of(np.diff(borders, prepend=start, append=end))
