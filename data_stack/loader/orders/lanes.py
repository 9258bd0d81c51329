"""An order that gives each rank its own blocks of another order."""

from __future__ import annotations

import sys
from typing import Any, SupportsIndex

import numpy as np

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.positions import IndexArrayOfInts, check_integer
from data_stack.exception import ConfigError
from data_stack.loader.orders.order import Order


class Lanes(Order):
    """Divides another order so that each of several ranks reads its own blocks.

    ::

        order = Lanes(BlockShuffled(window=8), lanes=world, batch_size=256)
        Loader(dataset, 256, shuffle=order, shard=(rank, world))

    The positions of the other order are cut into ``lanes`` equal intervals. Batch 0 comes from the
    first interval, batch 1 from the second, and so on in turn, so that rank r of ``lanes`` ranks
    reads interval r: its share of the row groups, another share in each epoch. Neighbouring
    intervals only share the blocks at their border. All ranks have the same number of steps.
    Another number of ranks can load a state, with each sample once; these ranks then share blocks.

    Worker processes cache row groups separately, too: pass the number of all worker processes as
    ``lanes``.

    Args:
        order: a block-wise order such as :class:`BlockShuffled`.
        lanes: the number of intervals, at least 1.
        batch_size: the batch size of the loader.
    """

    #: The other order.
    _order: Order
    #: The number of intervals.
    _n_lanes: int
    #: The batch size of the loader.
    _batch_size: int

    def __init__(self, order: Order, *, lanes: SupportsIndex, batch_size: SupportsIndex) -> None:
        if not isinstance(order, Order):
            raise ConfigError(f"Lanes needs an order such as BlockShuffled(), got {order!r:.80}")
        self._order = order
        self._n_lanes = check_integer("lanes", lanes, at_least=1)
        self._batch_size = check_integer("the batch size of lanes", batch_size, at_least=1)

    def indices(
        self, positions: IndexArrayOfInts, n_samples: int, seed: int, epoch: int
    ) -> IndexArrayOfInts:
        other_positions = self._positions_in_order(positions, n_samples)
        return self._order.indices(other_positions, n_samples, seed, epoch)

    def upcoming(
        self, position: int, n_samples: int, seed: int, epoch: int
    ) -> tuple[IndexArrayOfInts | None, int]:
        if position >= n_samples:
            return None, sys.maxsize
        other_position = int(self._positions_in_order(np.array([position]), n_samples)[0])
        samples, blocks_end = self._order.upcoming(other_position, n_samples, seed, epoch)

        # The batch before in the same lane may have prefetched the same blocks.
        position_before = other_position - self._batch_size
        if position_before >= 0:
            _, blocks_end_before = self._order.upcoming(position_before, n_samples, seed, epoch)
            if blocks_end_before == blocks_end:
                samples = None
        return samples, position + 1

    def content(self) -> dict[str, Any]:
        return {
            "order": "lanes",
            "of": self._order.content(),
            "lanes": self._n_lanes,
            "batch_size": self._batch_size,
        }

    def for_iterator(self, iterator: DatasetIteratorIF) -> Order:
        order = self._order.for_iterator(iterator)
        return Lanes(order, lanes=self._n_lanes, batch_size=self._batch_size)

    def _positions_in_order(self, positions: IndexArrayOfInts, n_samples: int) -> IndexArrayOfInts:
        """Return the positions in the other order."""
        # Each lane begins with whole batches, which come from the lanes in turn.
        lane_length = n_samples // self._n_lanes
        n_in_turn = lane_length // self._batch_size * self._batch_size  # samples of each lane
        batches, places_in_batch = np.divmod(positions, self._batch_size)
        turns, lanes = np.divmod(batches, self._n_lanes)
        in_turn: IndexArrayOfInts
        in_turn = lanes * lane_length + turns * self._batch_size + places_in_batch
        rests_start = n_in_turn * self._n_lanes
        is_in_turn = positions < rests_start
        if is_in_turn.all():
            return in_turn

        # The rest of each lane, shorter than a batch, comes afterwards, one lane after the other.
        rest_length = lane_length - n_in_turn
        in_rests = positions
        if rest_length > 0:
            lanes_of_rests, places_in_rest = np.divmod(positions - rests_start, rest_length)
            in_rests = lanes_of_rests * lane_length + n_in_turn + places_in_rest

        # The samples that the lanes do not divide come last, as in the other order.
        is_in_lanes = positions < lane_length * self._n_lanes
        in_rests_or_last = np.where(is_in_lanes, in_rests, positions)
        return np.where(is_in_turn, in_turn, in_rests_or_last)
