"""Where a loader with another mix continues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from data_stack.dataset.iterator.layers.mix_in_stack import MixInStack
from data_stack.loader.cursors import Cursors, consumed_at, find_cursors
from data_stack.loader.damage_in_mix import find_in_mix
from data_stack.loader.damaged_sample import DamagedSample
from data_stack.loader.epoch_stacks import EpochStacks
from data_stack.loader.sample_keys import SampleKeys


@dataclass(frozen=True, slots=True)
class Continuation:
    """Where the sources of another mix go on.

    Attributes:
        cursors: how far they were read in the present epoch; None if nothing was.
        damaged_samples: the samples that are known to be damaged, with their positions in the
            other mix.
    """

    cursors: Cursors | None
    damaged_samples: Sequence[DamagedSample]


def find_continuation(
    old_stacks: EpochStacks,
    new_stacks: EpochStacks,
    *,
    epoch: int,
    position: int,
    cursors: Cursors | None,
    damaged_samples: Sequence[DamagedSample],
) -> Continuation:
    """Find where the sources of another mix go on.

    Args:
        old_stacks: the stacks with the mix before.
        new_stacks: the stacks with the other mix.
        epoch: the present epoch.
        position: how many samples of the mix before were read.
        cursors: where the mix before began; None if it began the epoch.
        damaged_samples: the samples of the mix before that are known to be damaged.

    Raises:
        ConfigError: a stack has no mix at its top, or as
            :func:`~data_stack.loader.cursors.find_cursors`.
    """
    old = MixInStack.find(old_stacks.at(epoch, consumed_at(cursors, epoch)))
    new = MixInStack.find(new_stacks.at(epoch, None))
    new_cursors = find_cursors(old, new, epoch=epoch, position=position, known=cursors)

    # Samples that are known to be damaged stay known, if they can be found again.
    known_samples: list[DamagedSample] = []
    if damaged_samples:
        old_keys = SampleKeys(old_stacks)
        new_keys = SampleKeys(new_stacks)
        if old_keys.are_of_all_epochs and new_keys.are_of_all_epochs:
            known_samples = find_in_mix(damaged_samples, old, new)
    return Continuation(new_cursors, known_samples)
