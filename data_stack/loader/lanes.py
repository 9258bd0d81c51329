"""An order that lets each rank, or each worker process, read its own blocks."""

from __future__ import annotations

import sys
from typing import Any, SupportsIndex

import numpy as np

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.dataset.positions import IndexArrayOfInts, check_integer
from data_stack.exception import ConfigError
from data_stack.loader.orders import Order


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
