"""The order of a reader's shards: the seed does not change which rows a shard has."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.dataset.randomness import KeyedPermutation, derive_seed
from data_stack.exception import ConfigError, LoaderStateError
from data_stack.loader import Order
from data_stack.loader.plan import Plan, Uneven
from data_stack.util.intervals import Intervals

OrderMaker = Callable[[npt.NDArray[np.int64]], Order]
"""Makes the order of samples from the lengths of their blocks, shape ``(n_blocks,)``."""


@dataclass(frozen=True)
class ShardSizes:
    """The number of samples of each shard in an epoch.

    Attributes:
        in_full_steps: number of samples of every shard in the steps with whole batches.
        in_last_step: number of samples of each shard in the shorter last step, shape
            ``(n_shards,)``.
    """

    in_full_steps: int
    in_last_step: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Sharding:
    """How a loader divides samples among shards.

    Attributes:
        n_shards: number of shards, at least 1.
        batch_size: batch size of each shard's loader.
        uneven: what happens to samples that the shards do not divide, as for
            :class:`~data_stack.loader.plan.Plan`.
    """

    n_shards: int
    batch_size: int
    uneven: Uneven

    @staticmethod
    def of_state(state: Any) -> Sharding:
        """Return the sharding that a loader's state describes; one shard if it describes none.

        Args:
            state: what ``state_dict()`` of a loader returned. The loader that loads it checks it.

        Raises:
            LoaderStateError: the description is incomplete or damaged.
        """
        single_shard = Sharding(1, 1, "pad")
        if not isinstance(state, Mapping):
            return single_shard
        order = state.get("order")
        if not isinstance(order, Mapping) or order.get("order") != "shards":
            return single_shard
        try:
            n_shards = int(order["n_shards"])
            batch_size = int(order["batch_size"])
            uneven = order["uneven"]
        except (KeyError, TypeError, ValueError) as error:
            raise LoaderStateError(f"invalid shards in the state of a loader: {error!r}") from error
        if n_shards < 1 or batch_size < 1 or uneven not in ("pad", "drop", "keep"):
            raise LoaderStateError(
                f"invalid shards in the state of a loader: {n_shards} shards, batches of "
                f"{batch_size}, uneven={uneven!r:.40}"
            )
        return Sharding(n_shards, batch_size, uneven)

    def sizes(self, n_samples: int) -> ShardSizes:
        """Return the number of samples of each shard.

        Samples that "pad" repeats count once, and samples that "drop" skips not at all.
        """
        plan = Plan(n_samples, self.batch_size, world=self.n_shards, uneven=self.uneven)
        n_full_steps, n_remaining = divmod(n_samples, plan.samples_per_step)
        start_of_last_step = n_full_steps * plan.samples_per_step
        ends = np.zeros(self.n_shards, dtype=np.int64)
        for rank in range(self.n_shards):
            part_of_last_step = replace(plan, rank=rank).part(n_full_steps)
            ends[rank] = part_of_last_step.stop - start_of_last_step
        # With "pad", the last parts end after the last sample.
        ends = np.minimum(ends, n_remaining)
        return ShardSizes(n_full_steps * self.batch_size, np.diff(ends, prepend=0))


class Shards(Order):
    """Assigns blocks to shards without a seed, then shuffles within each shard by the seed.

    So shards with different seeds together have each sample once. In each epoch, the blocks stand
    in a sequence that depends only on the number of the epoch. A shard has consecutive blocks of
    this sequence. It may share its first block and its last one with its neighbours.

    Args:
        lengths: number of samples of each block, shape ``(n_blocks,)``.
        sharding: how to divide the samples.
        make_order: makes the order of a shard's samples from the lengths of its blocks.
        reshuffles: whether each epoch has another sequence of the blocks; False: the sequence is
            always that of the dataset.
    """

    shares_seed = False

    _lengths: npt.NDArray[np.int64]
    _sharding: Sharding
    _make_order: OrderMaker
    _reshuffles: bool
    #: The shards of the last epoch that was asked for. Threads need no lock for one attribute.
    _last_epoch: _ShardedEpoch | None

    def __init__(
        self,
        lengths: npt.NDArray[np.int64],
        sharding: Sharding,
        make_order: OrderMaker,
        *,
        reshuffles: bool,
    ) -> None:
        self._lengths = lengths
        self._sharding = sharding
        self._make_order = make_order
        self._reshuffles = reshuffles
        self._last_epoch = None

    def indices(
        self, positions: IndexArrayOfInts, n_samples: int, seed: int, epoch: int
    ) -> IndexArrayOfInts:
        sharded_epoch = self._shard_epoch(n_samples, epoch)
        shards, places = sharded_epoch.locate(positions)
        indices = np.empty(len(positions), dtype=np.int64)
        for shard in np.unique(shards).tolist():
            is_of_shard = shards == shard
            indices[is_of_shard] = sharded_epoch.samples(shard, places[is_of_shard], seed)
        return indices

    def upcoming(
        self, position: int, n_samples: int, seed: int, epoch: int
    ) -> tuple[IndexArrayOfInts | None, int]:
        if position >= n_samples:
            return None, sys.maxsize
        sharded_epoch = self._shard_epoch(n_samples, epoch)
        shards, places = sharded_epoch.locate(np.array([position]))
        shard = int(shards[0])
        place = int(places[0])
        samples, needed_until = sharded_epoch.upcoming(shard, place, seed)

        # The shard's previous batch may have needed the same blocks. Their samples were prefetched
        # then.
        place_of_previous_batch = place - self._sharding.batch_size
        if place_of_previous_batch >= 0:
            _, previous_needed_until = sharded_epoch.upcoming(shard, place_of_previous_batch, seed)
            if previous_needed_until == needed_until:
                samples = None

        # Ask again at the next position: it may be that of another shard, which needs other blocks.
        return samples, position + 1

    def content(self) -> dict[str, Any]:
        return {
            "order": "shards",
            "of": self._make_order(self._lengths).content(),
            "n_shards": self._sharding.n_shards,
            "batch_size": self._sharding.batch_size,
            "uneven": self._sharding.uneven,
        }

    def _shard_epoch(self, n_samples: int, epoch: int) -> _ShardedEpoch:
        """Return the shards of an epoch.

        Raises:
            ConfigError: the blocks do not have ``n_samples`` samples in total.
        """
        n_samples_of_blocks = int(self._lengths.sum())
        if n_samples_of_blocks != n_samples:
            raise ConfigError(
                f"the row groups have {n_samples_of_blocks} samples in total, expected {n_samples}"
            )
        sharded_epoch = self._last_epoch
        if sharded_epoch is not None and sharded_epoch.epoch == epoch:
            return sharded_epoch
        blocks: npt.NDArray[Any] = np.arange(len(self._lengths))
        if self._reshuffles:
            permutation = KeyedPermutation(len(blocks), derive_seed("shards", epoch))
            blocks = permutation.take(blocks)
        sharded_epoch = _ShardedEpoch(
            self._lengths, blocks, self._sharding, self._make_order, epoch
        )
        self._last_epoch = sharded_epoch
        return sharded_epoch

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a pickle, without the last epoch: a worker computes it again."""
        state = dict(self.__dict__)
        state["_last_epoch"] = None
        return state


class _ShardedEpoch:
    """The samples of each shard in one epoch.

    The blocks of the epoch stand in a sequence, and so do their samples. The sequence of samples is
    cut into consecutive intervals: one for each shard, in the order of the shards, and a last one
    for the samples that ``uneven="drop"`` skips. This last interval is treated as one more shard.

    A *position* counts the samples of all shards, as their loaders return them. A *place* counts
    the samples of one shard.

    Args:
        lengths: number of samples of each block, shape ``(n_blocks,)``.
        blocks: the numbers of the blocks, in the epoch's sequence.
        sharding: how to divide the samples.
        make_order: makes the order of a shard's samples from the lengths of its blocks.
        epoch: the epoch.
    """

    epoch: int
    _batch_size: int
    _n_shards: int
    _make_order: OrderMaker
    #: The blocks in the epoch's sequence, as intervals of places in that sequence.
    _blocks: Intervals
    #: For each block of the sequence, what is added to the number of one of its samples in the
    #: sequence to get the number of this sample in the dataset, shape ``(n_blocks,)``.
    _shifts: npt.NDArray[np.int64]
    #: Number of samples of one shard in all full steps.
    _n_in_full_steps: int
    #: Number of samples of all shards together in all full steps.
    _n_in_all_full_steps: int
    #: The samples of the last step, as an interval for each shard and one for no shard.
    _last_step: Intervals
    #: All samples, as an interval of the sequence for each shard and one for no shard.
    _shards: Intervals
    #: The orders of the shards that were needed so far.
    _order_of_shard: dict[int, Order]

    def __init__(
        self,
        lengths: npt.NDArray[np.int64],
        blocks: npt.NDArray[Any],
        sharding: Sharding,
        make_order: OrderMaker,
        epoch: int,
    ) -> None:
        self.epoch = epoch
        self._batch_size = sharding.batch_size
        self._n_shards = sharding.n_shards
        self._make_order = make_order

        self._blocks = Intervals(lengths[blocks])
        starts_in_dataset = np.cumsum(lengths) - lengths
        self._shifts = starts_in_dataset[blocks] - self._blocks.starts

        n_samples = int(lengths.sum())
        sizes = sharding.sizes(n_samples)
        self._n_in_full_steps = sizes.in_full_steps
        self._n_in_all_full_steps = sizes.in_full_steps * sharding.n_shards
        n_of_no_shard = n_samples - self._n_in_all_full_steps - sizes.in_last_step.sum()
        self._last_step = Intervals(np.append(sizes.in_last_step, n_of_no_shard))
        n_of_shards = sizes.in_full_steps + sizes.in_last_step
        self._shards = Intervals(np.append(n_of_shards, n_of_no_shard))
        self._order_of_shard = {}

    def locate(self, positions: IndexArrayOfInts) -> tuple[IndexArrayOfInts, IndexArrayOfInts]:
        """Return the shard of each position, and its place in the shard.

        Args:
            positions: positions in the order in which all loaders together return samples, shape
                ``(n,)``.

        Returns:
            The shards, and the places in the shards, each of shape ``(n,)``.
        """
        # In full steps, the shards take turns: a batch each.
        batches, places_in_batch = np.divmod(positions, self._batch_size)
        steps, shards = np.divmod(batches, self._n_shards)
        places = places_in_batch + steps * self._batch_size

        positions_in_last_step = positions - self._n_in_all_full_steps
        is_in_last_step = positions_in_last_step >= 0
        if not is_in_last_step.any():
            return shards, places

        # In the shorter last step, each shard has an interval of the positions; the samples of no
        # shard come after these.
        last_shards = self._last_step.find(np.maximum(positions_in_last_step, 0))
        n_before = np.where(last_shards < self._n_shards, self._n_in_full_steps, 0)
        last_places = n_before + positions_in_last_step - self._last_step.starts[last_shards]
        shards = np.where(is_in_last_step, last_shards, shards)
        places = np.where(is_in_last_step, last_places, places)
        return shards, places

    def samples(self, shard: int, places: IndexArrayOfInts, seed: int) -> IndexArrayOfInts:
        """Return the samples at these places of a shard, in the shard's order."""
        order = self._order_of(shard)
        shard_seed = derive_seed("shard", seed, shard)
        places_in_shard = order.indices(places, self._length_of(shard), shard_seed, self.epoch)
        return self._samples_of_dataset(shard, places_in_shard)

    def upcoming(self, shard: int, place: int, seed: int) -> tuple[IndexArrayOfInts | None, int]:
        """Return the samples to prefetch from a place of a shard on, as :meth:`Order.upcoming`."""
        order = self._order_of(shard)
        shard_seed = derive_seed("shard", seed, shard)
        places_in_shard, needed_until = order.upcoming(
            place, self._length_of(shard), shard_seed, self.epoch
        )
        if places_in_shard is None:
            return None, needed_until
        return self._samples_of_dataset(shard, places_in_shard), needed_until

    def _length_of(self, shard: int) -> int:
        return int(self._shards.ends[shard] - self._shards.starts[shard])

    def _samples_of_dataset(self, shard: int, places: IndexArrayOfInts) -> IndexArrayOfInts:
        """Return the samples at places of a shard's interval, which is not shuffled."""
        places_in_sequence = places + self._shards.starts[shard]
        blocks = self._blocks.find(places_in_sequence)
        samples: IndexArrayOfInts = places_in_sequence + self._shifts[blocks]
        return samples

    def _order_of(self, shard: int) -> Order:
        if shard not in self._order_of_shard:
            self._order_of_shard[shard] = self._make_order(self._block_lengths_of(shard))
        return self._order_of_shard[shard]

    def _block_lengths_of(self, shard: int) -> npt.NDArray[np.int64]:
        """Return the number of samples of a shard in each of its blocks.

        The first block and the last may belong to its neighbours, too.
        """
        start = self._shards.starts[shard]
        end = self._shards.ends[shard]
        is_inside = (self._blocks.ends > start) & (self._blocks.ends < end)
        borders = self._blocks.ends[is_inside]
        lengths: npt.NDArray[np.int64] = np.diff(borders, prepend=start, append=end)
        return lengths
