"""The former name of :class:`data_stack.util.intervals.Intervals`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.util.intervals import Intervals
from data_stack.util.program_lines import warn_deprecated


class Stretches(Intervals):
    """Deprecated: use :class:`~data_stack.util.intervals.Intervals`."""

    def __init__(self, lengths: npt.NDArray[np.int64]) -> None:
        warn_deprecated(
            "data_stack.util.stretches.Stretches",
            instead="data_stack.util.intervals.Intervals",
            since="0.2",
            removed_in="1.0",
        )
        super().__init__(lengths)

    def of(self, positions: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
        """Return what :meth:`Intervals.find` returns."""
        return self.find(positions)
