"""All samples in a random order."""

from __future__ import annotations

import functools
from typing import Any

from data_stack.dataset.permutation import KeyedPermutation
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.dataset.randomness import derive_seed
from data_stack.loader.orders.order import Order


class Shuffled(Order):
    """All samples in a random order, that of ``iterator.shuffle(seed, epoch=epoch)``.

    The order is a :class:`~data_stack.dataset.permutation.KeyedPermutation`: the same on every
    machine, and without an array of positions for more than 65,536 samples. For fewer samples it
    keeps 4 bytes a sample.
    """

    def indices(
        self, positions: IndexArrayOfInts, n_samples: int, seed: int, epoch: int
    ) -> IndexArrayOfInts:
        return epoch_permutation(n_samples, seed, epoch).take(positions)

    def content(self) -> dict[str, Any]:
        return {"order": "shuffled"}


# Small permutations are stored, 4 bytes a position, and take time to make.
@functools.lru_cache(maxsize=16)
def epoch_permutation(n_samples: int, seed: int, epoch: int) -> KeyedPermutation:
    """Return the permutation of :class:`Shuffled`."""
    return KeyedPermutation(n_samples, derive_seed("shuffled", seed, epoch))
