"""Positions of samples in compact form: a range, an index array, or a formula."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Union

import numpy as np
import numpy.typing as npt

IndexArrayOfInts = npt.NDArray[np.integer[Any]]

_MAX_IN_INT32 = 2**31


class ComputedPositions(ABC):
    """Positions that a formula computes, without an array.

    A subclass defines ``__len__`` and ``take``, and ``at`` if it can do that faster.
    """

    @abstractmethod
    def __len__(self) -> int:
        """Number of positions."""

    def at(self, index: int) -> int:
        """The position at ``0 <= index < len(self)``."""
        return int(self.take(np.array([index], dtype=np.intp))[0])

    @abstractmethod
    def take(self, indices: IndexArrayOfInts) -> IndexArrayOfInts:
        """The positions at ``indices``, shape ``(n,)``, each index in ``[0, len(self))``."""

    def __getitem__(self, index: int) -> int:
        """Like a list: negative indices count from the end."""
        n_positions = len(self)
        if 0 <= index < n_positions:
            return self.at(index)
        if -n_positions <= index < 0:
            return self.at(index + n_positions)
        raise IndexError(index)


Positions = Union[range, IndexArrayOfInts, ComputedPositions]
"""Positions in ``[0, n)`` of an iterator of n samples; arrays have shape ``(n,)`` and are not written to."""


class _Composed(ComputedPositions):
    """``inner`` at the positions ``outer``, one of them computed."""

    def __init__(self, outer: Positions, inner: Positions) -> None:
        self._outer, self._inner = outer, inner

    def __len__(self) -> int:
        return len(self._outer)

    def at(self, index: int) -> int:
        return int(self._inner[int(self._outer[index])])

    def take(self, indices: IndexArrayOfInts) -> IndexArrayOfInts:
        return take(self._inner, take(self._outer, indices))


def take(positions: Positions, indices: IndexArrayOfInts) -> IndexArrayOfInts:
    """The positions at ``indices``, each in ``[0, len(positions))``."""
    if isinstance(positions, np.ndarray):
        picked: IndexArrayOfInts = positions[indices]  # take() would copy a slice of positions first
        return picked
    if isinstance(positions, range):
        if positions.start == 0 and positions.step == 1:
            return indices
        return positions.start + indices.astype(np.intp, copy=False) * positions.step
    return positions.take(indices)


def compose(outer: Positions, inner: Positions | None) -> Positions:
    """``inner`` (None: all positions) at the positions ``outer``. Ranges and formulas stay such."""
    if inner is None or (isinstance(inner, range) and inner.start == 0 and inner.step == 1):
        return outer
    if isinstance(outer, range):
        if len(outer) == 0:
            return range(0)
        if isinstance(inner, range):
            first, step = inner[outer[0]], inner.step * outer.step
            return range(first, first + step * len(outer), step)
        if not isinstance(inner, ComputedPositions):
            stop = outer[-1] + (1 if outer.step > 0 else -1)
            return inner[outer[0] : stop if stop >= 0 else None : outer.step]  # shares the memory of inner
        return _Composed(outer, inner)
    if isinstance(outer, ComputedPositions):
        return _Composed(outer, inner)
    picked = take(inner, outer)
    if picked.dtype.itemsize > 4 and len(picked) and int(picked.max()) < _MAX_IN_INT32:
        picked = picked.astype(np.int32)
    picked.setflags(write=False)
    return picked


def narrow(positions: IndexArrayOfInts, n_samples: int) -> IndexArrayOfInts:
    """A read-only copy, of 4 bytes a position if ``n_samples`` allow it, otherwise of 8."""
    copy = positions.astype(np.int32 if n_samples <= _MAX_IN_INT32 else np.int64)
    copy.setflags(write=False)
    return copy


def as_index_array(positions: Positions) -> IndexArrayOfInts:
    """All positions as an array, which callers must not change."""
    if isinstance(positions, range):
        return np.arange(positions.start, positions.stop, positions.step, dtype=np.intp)
    if isinstance(positions, ComputedPositions):
        return positions.take(np.arange(len(positions), dtype=np.intp))
    return positions
