"""Where samples are below the layers that only rearrange or change them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.access import SampleAccess
from data_stack.dataset.iterator.access_bases import OneToOneAccess
from data_stack.dataset.iterator.layers.combined_access import CombinedAccess
from data_stack.dataset.positions import IndexArrayOfInts, take


class BasePositions:
    """The positions of samples in the bases of a stack, which are taken one after the other.

    A base is an access below which nothing is only rearranged, combined or changed sample by
    sample: a source as a rule, but also windows, packed sequences and rows of several sources. A
    shuffle or mix that is drawn again puts other samples at its positions; their positions in the
    bases remain.

    Args:
        access: the access to a stack.

    Attributes:
        bases: the bases, in order. A base that is below twice is there twice.
    """

    #: The access to the stack.
    _access: SampleAccess
    #: The number of samples in the bases below an access, by the id of the access.
    _n_below: dict[int, int]

    def __init__(self, access: SampleAccess) -> None:
        self.bases: list[SampleAccess] = []
        self._access = access
        self._n_below = {}
        self._collect_bases(access)

    def of(self, positions: IndexArrayOfInts) -> npt.NDArray[np.int64]:
        """Return where samples of the stack are in its bases.

        Args:
            positions: the positions of the samples in the stack, shape ``(n,)``.

        Returns:
            Their positions, shape ``(n,)``: those in the first base, then those in the second one,
            which begin at the number of samples of the first base, and so on.
        """
        return self._find(self._access, np.asarray(positions, dtype=np.int64))

    def has_bases_of(self, other: BasePositions) -> bool:
        """Return whether another stack has the same bases, so that positions in both are equal."""
        return self.bases == other.bases

    def _collect_bases(self, access: SampleAccess) -> int:
        """Append the bases below an access, and return the number of their samples."""
        source, _ = access.unwrap()
        if isinstance(source, OneToOneAccess):
            n_samples = self._collect_bases(source.below)
        elif isinstance(source, CombinedAccess):
            n_samples = 0
            for part in source.parts:
                n_samples += self._collect_bases(part)
        else:
            self.bases.append(source)
            n_samples = source.n_samples
        self._n_below[id(access)] = n_samples
        return n_samples

    def _find(
        self, access: SampleAccess, positions: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Return the positions of samples of an access in the bases below this access."""
        source, positions_in_source = access.unwrap()
        if positions_in_source is not None:
            positions = take(positions_in_source, positions).astype(np.int64)
        if isinstance(source, OneToOneAccess):
            return self._find(source.below, positions)
        if isinstance(source, CombinedAccess):
            return self._find_in_parts(source, positions)
        return positions

    def _find_in_parts(
        self, combined: CombinedAccess, positions: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        """Return the positions of samples of a combination in the bases of its parts."""
        selection = combined.select(positions)
        base_positions = np.empty(len(positions), dtype=np.int64)
        start = 0
        for number, part in enumerate(combined.parts):
            is_in_part = selection.parts == number
            if is_in_part.any():
                positions_in_part = selection.positions[is_in_part]
                base_positions[is_in_part] = start + self._find(part, positions_in_part)
            start += self._n_below[id(part)]
        return base_positions
