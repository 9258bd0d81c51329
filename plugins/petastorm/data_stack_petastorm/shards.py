"""The order of the shards of a reader: which rows a shard has depends on no seed."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.dataset.randomness.permutation import KeyedPermutation
from data_stack.dataset.randomness.seeds import derive_seed
from data_stack.exception import ConfigError
from data_stack.loader import Order
from data_stack.loader.plan import Plan, Uneven
from data_stack.util.stretches import Stretches


@dataclass(frozen=True)
class Sharding:
    """How a loader divides its samples among shards.

    Attributes:
        n_shards: at least 1.
        batch_size: of the loader of each shard.
        uneven: of these loaders, see :class:`~data_stack.loader.plan.Plan`.
    """

    n_shards: int
    batch_size: int
    uneven: Uneven

    def lengths(self, n_samples: int) -> tuple[int, npt.NDArray[np.int64]]:
        """Of each shard, how many of ``n_samples`` come in whole steps, and how many in the last step, shape ``(n_shards,)``."""
        plan = Plan(n_samples, self.batch_size, world=self.n_shards, uneven=self.uneven)
        n_steps, n_rest = divmod(n_samples, plan.samples_per_step)
        ends = [replace(plan, rank=rank).part(n_steps).stop for rank in range(self.n_shards)]
        in_last_step = np.minimum(np.array(ends, dtype=np.int64) - n_steps * plan.samples_per_step, n_rest)
        return n_steps * self.batch_size, np.diff(in_last_step, prepend=0)


class Shards(Order):
    """Blocks dealt out to shards by a rule without a seed, then shuffled within each shard by the seed.

    So shards whose seeds differ have each sample once together. Each shard has consecutive blocks of the epoch's sequence of
    blocks, which the number of the epoch alone decides, and shares at most two blocks with its neighbours.

    Args:
        lengths: samples of each block, shape ``(n_blocks,)``.
        sharding: among which shards, and how.
        deals_anew: whether each epoch deals out other blocks; False: in the order of the dataset, in all epochs.
        order_of: makes the order of the samples of one shard of the lengths of its blocks.
    """

    shares_seed = False

    def __init__(
        self,
        lengths: npt.NDArray[np.int64],
        sharding: Sharding,
        order_of: Callable[[npt.NDArray[np.int64]], Order],
        *,
        deals_anew: bool,
    ) -> None:
        self._lengths, self._sharding, self._order_of, self._deals_anew = lengths, sharding, order_of, deals_anew
        self._dealt: _Dealt | None = None  # of the last epoch

    def indices(self, positions: IndexArrayOfInts, n_samples: int, seed: int, epoch: int) -> IndexArrayOfInts:
        dealt = self._deal(n_samples, epoch)
        shards, places = dealt.locate(positions)
        found = np.empty(len(positions), dtype=np.int64)
        for shard in np.unique(shards).tolist():
            which = shards == shard
            found[which] = dealt.samples(shard, places[which], seed)
        return found

    def upcoming(self, position: int, n_samples: int, seed: int, epoch: int) -> tuple[IndexArrayOfInts | None, int]:
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
            raise ConfigError(f"the row groups have {int(self._lengths.sum())} samples together, the reader has {n_samples}")
        dealt = self._dealt  # one attribute: threads need no lock
        if dealt is None or dealt.epoch != epoch:
            blocks: npt.NDArray[Any] = np.arange(len(self._lengths))
            if self._deals_anew:
                blocks = KeyedPermutation(len(blocks), derive_seed("shards", epoch)).take(blocks)
            dealt = self._dealt = _Dealt(self._lengths, blocks, self._sharding, self._order_of, epoch)
        return dealt

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_dealt": None}


class _Dealt:
    """The shards of one epoch: stretches of its sequence of blocks, and last the samples that no shard has."""

    def __init__(
        self,
        lengths: npt.NDArray[np.int64],
        blocks: npt.NDArray[Any],
        sharding: Sharding,
        order_of: Callable[[npt.NDArray[np.int64]], Order],
        epoch: int,
    ) -> None:
        self.epoch = epoch
        self._blocks, self._order_of = Stretches(lengths[blocks]), order_of
        self._shifts = (np.cumsum(lengths) - lengths)[blocks] - self._blocks.starts
        n_samples, self._batch_size = int(lengths.sum()), sharding.batch_size
        self._n_in_steps, in_last_step = sharding.lengths(n_samples)
        self._n_in_all_steps, self._n_shards = self._n_in_steps * sharding.n_shards, sharding.n_shards
        self._last_step = Stretches(np.append(in_last_step, n_samples - self._n_in_all_steps - in_last_step.sum()))
        self._shards = Stretches(np.append(self._n_in_steps + in_last_step, self._last_step.ends[-1] - in_last_step.sum()))
        self._order_of_shard = functools.lru_cache(maxsize=None)(self._make_order)

    def locate(self, positions: IndexArrayOfInts) -> tuple[IndexArrayOfInts, IndexArrayOfInts]:
        """The shard of each position of the loaders' common order, and its place among the samples of the shard."""
        batches, places = np.divmod(positions, self._batch_size)
        turns, shards = np.divmod(batches, self._n_shards)
        places = places + turns * self._batch_size
        late = positions - self._n_in_all_steps
        if (is_late := late >= 0).any():
            of_late = self._last_step.of(np.maximum(late, 0))
            shards = np.where(is_late, of_late, shards)
            in_steps = np.where(of_late < self._n_shards, self._n_in_steps, 0)
            places = np.where(is_late, in_steps + late - self._last_step.starts[of_late], places)
        return shards, places

    def samples(self, shard: int, places: IndexArrayOfInts, seed: int) -> IndexArrayOfInts:
        """The samples of the dataset at some places of a shard."""
        length = int(self._shards.ends[shard] - self._shards.starts[shard])
        return self._of_dataset(shard, self._order_of_shard(shard).indices(places, length, *self._key(shard, seed)))

    def upcoming(self, shard: int, place: int, seed: int) -> tuple[IndexArrayOfInts | None, int]:
        """As :meth:`Order.upcoming`, of the places of a shard."""
        length = int(self._shards.ends[shard] - self._shards.starts[shard])
        ahead, until = self._order_of_shard(shard).upcoming(place, length, *self._key(shard, seed))
        return None if ahead is None else self._of_dataset(shard, ahead), until

    def _key(self, shard: int, seed: int) -> tuple[int, int]:
        return derive_seed("shard", seed, shard), self.epoch

    def _of_dataset(self, shard: int, places: IndexArrayOfInts) -> IndexArrayOfInts:
        positions = places + self._shards.starts[shard]
        samples: IndexArrayOfInts = positions + self._shifts[self._blocks.of(positions)]
        return samples

    def _make_order(self, shard: int) -> Order:
        start, end = self._shards.starts[shard], self._shards.ends[shard]
        borders = self._blocks.ends[(self._blocks.ends > start) & (self._blocks.ends < end)]
        return self._order_of(np.diff(borders, prepend=start, append=end))
