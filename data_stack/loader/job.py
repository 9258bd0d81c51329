"""One batch to make, as the schedule of a loader gives it to workers."""

from __future__ import annotations

from typing import NamedTuple

from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.loader.cursors import Consumed

#: The maximum number of samples that a message names.
_MAX_NAMED_SAMPLES = 8


class Job(NamedTuple):  # a frozen dataclass would take a microsecond to make
    """One batch to make.

    Attributes:
        epoch: the epoch, which determines the stack of iterators.
        step: the number of the batch, counted from where the iteration entered the epoch.
        position: the position of its first sample in the order of the epoch.
        indices: its samples, shape ``(n,)``, not empty.
        seed: determines what the transform draws.
        place_after: epoch and position of the sample after this step of all ranks.
        to_prefetch: one sample of each block that is needed soon, shape ``(n,)``; None if the
            blocks are the same as before.
        consumed: what was read of the sources of the stack's mix before it continued another one;
            None if it began the epoch.
        damaged: the keys of samples that must not be read, see
            :class:`~data_stack.loader.sample_keys.SampleKeys`, ascending, shape ``(n,)``; None if
            there are none.
    """

    epoch: int
    step: int
    position: int
    indices: IndexArrayOfInts
    seed: int
    place_after: tuple[int, int]
    to_prefetch: IndexArrayOfInts | None = None
    consumed: Consumed | None = None
    damaged: IndexArrayOfInts | None = None

    def describe_samples(self) -> str:
        """Return the indices of its samples for a message; the first ones if there are many."""
        named_indices = self.indices[:_MAX_NAMED_SAMPLES].tolist()
        text = ", ".join(str(index) for index in named_indices)
        if len(self.indices) > _MAX_NAMED_SAMPLES:
            text += ", …"
        return text

    def __str__(self) -> str:
        return f"step {self.step} of epoch {self.epoch} (samples {self.describe_samples()})"
