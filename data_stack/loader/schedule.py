"""The jobs of an iteration in their order, each with the place behind its batch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from data_stack.exception import ConfigError
from data_stack.loader.jobs import Job
from data_stack.loader.orders import Order
from data_stack.loader.plan import Plan

__all__ = ["NEVER", "Mark", "Schedule"]

NEVER = sys.maxsize
"""The end of what never ends."""

# The order is asked for so many positions at once: what that costs by itself then weighs little, and its temporary arrays are
# small enough for the C library to keep their memory, which the system would have to clear each time.
_MOST_POSITIONS = 1 << 12


@dataclass(slots=True)
class Mark:
    """What the consumer has with a batch: the next one is of ``epoch``, from ``position`` on.

    Attributes:
        epoch: of the next batch.
        position: how many samples of that epoch all ranks together have received then.
        n_samples: of this batch.
        n_bytes: of this batch; known when it has been made.
    """

    epoch: int
    position: int
    n_samples: int
    n_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Schedule:
    """Which batches an iteration is made of: a pure function of what is in here.

    Attributes:
        order: of the samples in an epoch.
        seed: of the order, and of the draws of the transform.
        plan_of: gives the plan of an epoch.
        epoch: with which it begins.
        position: where in that epoch.
        end_epoch: the epoch behind the last one; ``NEVER`` if there is none.
    """

    order: Order
    seed: int
    plan_of: Callable[[int], Plan]
    epoch: int
    position: int
    end_epoch: int

    @property
    def n_jobs(self) -> int:
        """How many jobs there are, if later epochs have as many samples as the first one."""
        if self.epoch >= self.end_epoch:
            return 0
        plan = self.plan_of(self.epoch)
        return plan.n_steps(self.position) + (self.end_epoch - self.epoch - 1) * plan.n_steps()

    def jobs(self) -> Iterator[tuple[Job, Mark]]:
        """The jobs one by one; the order is asked for those of a few batches at a time.

        Raises (while iterating):
            ConfigError: it never ends, and an epoch has no batch; or the order does not give an index for each position.
            LoadingError: the stack of an epoch could not be made.
        """
        epoch, position = self.epoch, self.position
        n_at_once = 1
        while epoch < self.end_epoch:
            plan = self.plan_of(epoch)
            n_steps, samples_per_step = plan.n_steps(position), plan.samples_per_step
            if n_steps == 0 and self.end_epoch == NEVER and position == 0:
                raise ConfigError(
                    f"an endless loader gives no batch: epoch {epoch} has {plan.n_samples} samples, a step needs "
                    f"{plan.samples_per_step}{' (drop_last)' if plan.drop_last else ''}; give it samples, or epochs="
                )
            first = until = 0
            while first < n_steps:
                parts = [plan.part(step, position) for step in range(first, min(first + n_at_once, n_steps))]
                positions = plan.positions(parts)
                indices = np.asarray(self.order.indices(positions, plan.n_samples, self.seed, epoch))
                if indices.shape != positions.shape or indices.dtype.kind not in "iu":  # a mask would be taken for 0 and 1
                    raise ConfigError(
                        f"{self.order!r} gave indices of shape {indices.shape} for {len(positions)} positions, "
                        f"of dtype {indices.dtype}; give one integer for each"
                    )
                start = 0
                for step, part in enumerate(parts, first):
                    stop = start + len(part)
                    if step + 1 == n_steps and plan.position_after(step, position) == plan.n_samples:
                        mark = Mark(epoch + 1, 0, stop - start)
                    else:
                        mark = Mark(epoch, position + (step + 1) * samples_per_step, stop - start)
                    ahead = None
                    if part.start >= until:
                        ahead, until = self.order.upcoming(part.start, plan.n_samples, self.seed, epoch)
                    yield Job(epoch, step, part.start, indices[start:stop], self.seed, ahead), mark
                    start = stop
                first += len(parts)
                # the first batch waits for no other
                n_at_once = max(1, min(4 * n_at_once, _MOST_POSITIONS // plan.batch_size))
            epoch, position = epoch + 1, 0
