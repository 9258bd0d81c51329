"""Which sample of which part stands at a position, where a stack has several parts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from data_stack.dataset.positions import IndexArrayOfInts

#: Up to this number of parts, the number of a part fits into 16 bits. numpy sorts these in a fifth
#: of the time that it takes for 64 bits.
_MAX_PARTS_OF_16_BITS = 1 << 16


class Selection(NamedTuple):
    """Samples of several parts, in some order. Grain calls it a selection map.

    Attributes:
        parts: the number of the part of each sample, shape ``(n,)``.
        positions: the position of each sample in its part, shape ``(n,)``.
    """

    parts: npt.NDArray[np.intp]
    positions: npt.NDArray[np.integer]


class Concatenation:
    """Several parts, one after the other.

    Args:
        lengths: how many samples each part has.

    Attributes:
        lengths: how many samples each part has.
        starts: the position at which each part starts, and at last that at which the last part
            ends.
        n_samples: the number of samples of all parts.
    """

    #: The same as ``starts``, as an array of shape ``(n_parts + 1,)``.
    _starts: npt.NDArray[np.intp]

    def __init__(self, lengths: Sequence[int]) -> None:
        self.lengths = list(lengths)
        self.starts = list(accumulate(lengths, initial=0))
        self.n_samples = self.starts[-1]
        self._starts = np.asarray(self.starts, dtype=np.intp)

    def find(self, position: int) -> tuple[int, int]:
        """Return the part of one sample, and the position in it."""
        # Empty parts share their start with the next part; bisect_right skips them.
        part = bisect_right(self.starts, position) - 1
        return part, position - self.starts[part]

    def select(self, positions: IndexArrayOfInts) -> Selection:
        """Return where the samples at ``positions`` are, shape ``(n,)``."""
        parts = self._starts.searchsorted(positions, side="right") - 1
        return Selection(parts, positions - self._starts.take(parts))

    def positions_of(self, selection: Selection) -> npt.NDArray[np.intp]:
        """Return the positions of selected samples, shape ``(n,)``."""
        positions: npt.NDArray[np.intp] = self._starts.take(selection.parts) + selection.positions
        return positions


def group_by_part(
    parts: npt.NDArray[np.intp], n_parts: int
) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
    """Yield each part that stands in ``parts``, and the indices at which it does, ascending.

    Args:
        parts: the number of the part of each sample, shape ``(n,)``.
        n_parts: how many parts there are.
    """
    if len(parts) == 0:
        return
    if n_parts <= _MAX_PARTS_OF_16_BITS:
        parts = parts.astype(np.uint16)
    by_part = np.argsort(parts, kind="stable")
    sorted_parts = parts[by_part]
    # In by_part, the indices of one part follow each other. Each ends where another part begins.
    ends: list[int] = (np.flatnonzero(sorted_parts[1:] != sorted_parts[:-1]) + 1).tolist()
    ends.append(len(parts))
    first = 0
    for end in ends:
        yield int(sorted_parts[first]), by_part[first:end]
        first = end
