"""Lookup of the stretch that contains a position."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

#: With more ends of stretches in one run, a search is faster.
_MAX_ENDS = 4


class Stretches:
    """Consecutive stretches of positions, from 0 on.

    Args:
        lengths: of the stretches, not negative, shape ``(n,)``.

    Attributes:
        ends: position after each stretch, shape ``(n,)``.
        starts: first position of each stretch, shape ``(n,)``.
    """

    def __init__(self, lengths: npt.NDArray[np.int64]) -> None:
        self.ends = np.cumsum(lengths)
        self.starts = self.ends - lengths
        #: The length of all stretches but the last, which may be shorter; 0 if they differ.
        self._length = 0
        if (
            len(lengths)
            and lengths[0] > 0
            and (lengths[:-1] == lengths[0]).all()
            and lengths[-1] <= lengths[0]
        ):
            self._length = int(lengths[0])
        # Else a table has the stretch of the first of each run of 2**_shift positions; at most _n_ends stretches end in a run.
        self._firsts: npt.NDArray[np.intp] | None = None
        if len(lengths) and not self._length and self.ends[-1] > 0:
            self._shift = max(0, int(self.ends[-1] // len(lengths)).bit_length() - 2)
            firsts = self.ends.searchsorted(
                np.arange(0, self.ends[-1], 1 << self._shift), side="right"
            )
            self._n_ends = int(np.diff(firsts, append=len(lengths) - 1).max())
            self._firsts = firsts if self._n_ends <= _MAX_ENDS else None

    def __len__(self) -> int:
        return len(self.ends)

    def of(self, positions: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
        """The stretch of each position, shape ``(n,)``.

        Args:
            positions: each inside a stretch, shape ``(n,)``.
        """
        if self._length:  # ten times as fast as a search
            return positions // self._length
        if self._firsts is not None:  # six times as fast
            found: npt.NDArray[np.intp] = self._firsts[positions >> self._shift]
            for _ in range(self._n_ends):
                found += positions >= self.ends[found]
            return found
        return self.ends.searchsorted(positions, side="right")
