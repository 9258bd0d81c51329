"""All positions of an iterator in an order that a key decides, without an array of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.positions import ComputedPositions, IndexArrayOfInts
from data_stack.dataset.randomness.keyed import Network, permute_array

# Orders of up to this many positions are kept as arrays from their first use on.
_MAX_WRITTEN_OUT = 1 << 16


class KeyedPermutation(ComputedPositions):
    """All positions of ``range(n)`` once, in an order that a key decides: any of them in constant time, and no array is kept.

    :func:`data_stack.dataset.randomness.keyed.permute` says how.
    The same ``(n, key)`` has the same order on every machine and in every
    version. Up to 65,536 positions the order is written out at its first use, in 4 bytes a position, which changes nothing but
    the speed. It pickles as ``(n, key)``.

    Args:
        n: number of positions, less than 2**63.
        key: 64 bits, as :func:`data_stack.dataset.randomness.seeds.derive_seed` returns them.
    """

    def __init__(self, n: int, key: int) -> None:
        self._n, self._key = int(n), int(key)
        self._network = Network(self._n, self._key) if n > _MAX_WRITTEN_OUT else None
        self._written: tuple[npt.NDArray[np.int32], Any] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._n, self._key)

    def __len__(self) -> int:
        return self._n

    def at(self, index: int) -> int:
        """The position at ``0 <= index < n``."""
        if self._network is not None:
            return self._network.at(index)
        position: int = (self._written or self._write_out())[1][index]
        return position

    def take(self, indices: IndexArrayOfInts) -> IndexArrayOfInts:
        """The positions at ``indices``, shape ``(n,)``, each index in ``[0, n)``."""
        if self._network is not None:
            return permute_array(self._n, self._key, indices).view(np.int64)
        return (self._written or self._write_out())[0].take(indices.astype(np.intp, copy=False))

    def _write_out(self) -> tuple[npt.NDArray[np.int32], Any]:
        """The whole order, also as a memoryview, in which a Python int is found in half the time that an array takes."""
        order = permute_array(self._n, self._key, np.arange(self._n)).astype(np.int32)
        order.setflags(write=False)
        self._written = order, memoryview(order)  # type: ignore[arg-type]  # an array is a buffer
        return self._written
