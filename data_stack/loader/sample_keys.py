"""Numbers that identify samples in all epochs."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator import SampleAccess
from data_stack.dataset.iterator.access_of_iterator import access_to
from data_stack.dataset.iterator.base_positions import BasePositions
from data_stack.dataset.iterator.epochs import at_epoch
from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import ConfigError
from data_stack.loader.epoch_stacks import EpochStacks


class SampleKeys:
    """Numbers that identify the samples of a loader.

    If the epochs have one stack, the key of a sample is its position. If random layers are drawn
    again, it is the position below these layers. Where the stack has no such positions, as in
    windows of a shuffle, keys are positions, and identify a sample in one epoch only.

    Args:
        stacks: the stacks of the epochs.
    """

    #: The stacks of the epochs.
    _stacks: EpochStacks
    #: The access whose base positions were asked for last, and these.
    _last: tuple[SampleAccess, BasePositions] | None

    def __init__(self, stacks: EpochStacks) -> None:
        self._stacks = stacks
        self._last = None

    @functools.cached_property
    def are_of_all_epochs(self) -> bool:
        """Whether a sample has the same key in all epochs."""
        if not self._stacks.differ:
            return True
        try:
            next_stack = at_epoch(self._stacks.iterator, 1)
        except ConfigError:  # it cannot be drawn again; epoch 1 itself raises the error
            return False
        bases = BasePositions(access_to(self._stacks.iterator))
        return bases.has_bases_of(BasePositions(access_to(next_stack)))

    def of(self, samples: SampleAccess, positions: IndexArrayOfInts) -> npt.NDArray[np.int64]:
        """Return the keys of samples of an epoch, shape ``(n,)``.

        Args:
            samples: the samples of the epoch.
            positions: their positions in ``samples``, shape ``(n,)``.
        """
        if not self._stacks.differ or not self.are_of_all_epochs:
            return np.asarray(positions, dtype=np.int64)
        last = self._last
        if last is None or last[0] is not samples:
            last = (samples, BasePositions(samples))
            self._last = last
        _, base_positions = last
        return base_positions.of(positions)

    def __getstate__(self) -> dict[str, Any]:
        return {"_stacks": self._stacks, "_last": None}
