"""The jobs of an iteration in their order, each with the loader's position after its batch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from data_stack.exception import ConfigError
from data_stack.loader.jobs import Job
from data_stack.loader.orders import Order
from data_stack.loader.plan import Plan

NEVER = sys.maxsize
"""The end epoch of an endless iteration."""

# Number of positions in one request to the order: enough to amortise the fixed cost of a call, few enough for the C library to
# reuse the memory of temporary arrays.
_MAX_POSITIONS = 1 << 12


@dataclass(slots=True)
class Mark:
    """The position of the loader after a batch.

    Attributes:
        epoch: of the next batch.
        position: number of that epoch's samples that all ranks together have received by then.
        n_samples: of this batch.
        n_bytes: of this batch, once it has been made.
    """

    epoch: int
    position: int
    n_samples: int
    n_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Schedule:
    """The batches of an iteration: a pure function of its attributes.

    Attributes:
        order: of the samples in an epoch.
        seed: of the order, and of the draws of the transform.
        plan_of: returns the plan of an epoch.
        epoch: the first epoch.
        position: where in that epoch the iteration begins.
        end_epoch: the epoch after the last one; ``NEVER`` if it is endless.
    """

    order: Order
    seed: int
    plan_of: Callable[[int], Plan]
    epoch: int
    position: int
    end_epoch: int

    @property
    def n_jobs(self) -> int:
        """The number of jobs, provided that later epochs have as many samples as the first one."""
        if self.epoch >= self.end_epoch:
            return 0
        plan = self.plan_of(self.epoch)
        return plan.n_steps(self.position) + (self.end_epoch - self.epoch - 1) * plan.n_steps()

    def jobs(self) -> Iterator[tuple[Job, Mark]]:
        """The jobs one by one; one request to the order covers several batches.

        Raises (while iterating):
            ConfigError: an epoch of an endless iteration is empty; or the order does not return an integer for each position.
        """
        epoch, position = self.epoch, self.position
        n_at_once = 1
        while epoch < self.end_epoch:
            plan = self.plan_of(epoch)
            n_steps, samples_per_step = plan.n_steps(position), plan.samples_per_step
            if n_steps == 0 and self.end_epoch == NEVER and position == 0:
                raise ConfigError(
                    f"an endless loader cannot make a batch: epoch {epoch} has {plan.n_samples} samples, a step needs "
                    f"{plan.samples_per_step}{' (drop_last)' if plan.drop_last else ''}; add samples, or pass epochs="
                )
            first = until = 0
            while first < n_steps:
                parts = [plan.part(step, position) for step in range(first, min(first + n_at_once, n_steps))]
                positions = plan.positions(parts)
                indices = np.asarray(self.order.indices(positions, plan.n_samples, self.seed, epoch))
                if indices.shape != positions.shape or indices.dtype.kind not in "iu":  # a mask would pass for 0 and 1
                    raise ConfigError(
                        f"{self.order!r} returned indices of shape {indices.shape} and dtype {indices.dtype} for "
                        f"{len(positions)} positions; return one integer per position"
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
                # the first batch is not delayed by others
                n_at_once = max(1, min(4 * n_at_once, _MAX_POSITIONS // plan.batch_size))
            epoch, position = epoch + 1, 0
