"""The batches of an iteration, one job after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.exception import ConfigError
from data_stack.loader.cursors import Cursors, consumed_at
from data_stack.loader.job import Job
from data_stack.loader.orders.order import Order, indices_of
from data_stack.loader.plan import NEVER, Plan

#: The number of positions in one request to the order: enough to amortise the fixed cost of a
#: call, whose code and temporary arrays leave the processor's cache until the next one; few enough
#: for the second batch, which waits for all of them, to come half a millisecond later.
_MAX_POSITIONS_OF_REQUEST = 1 << 15


@dataclass(frozen=True, slots=True)
class Schedule:
    """The batches of an iteration: a pure function of its attributes.

    Attributes:
        order: the order of the samples in an epoch.
        seed: the seed of the order, and of the draws of the transform.
        plan_of: returns the plan of an epoch.
        epoch: the first epoch.
        position: where in that epoch the iteration begins.
        end_epoch: the epoch after the last one; ``NEVER`` if it is endless.
        cursors: where the mix of the stack continues another one; None if it does not.
    """

    order: Order
    seed: int
    plan_of: Callable[[int], Plan]
    epoch: int
    position: int
    end_epoch: int
    cursors: Cursors | None = None

    @property
    def n_jobs(self) -> int:
        """The number of jobs, provided that later epochs have as many samples as the first one."""
        plan = self.plan_of(self.epoch)
        n_later_epochs = self.end_epoch - self.epoch - 1
        return plan.n_steps(self.position) + n_later_epochs * plan.n_steps()

    def jobs(self) -> Iterator[Job]:
        """Yield the jobs one by one; one request to the order covers several batches.

        Raises (while iterating):
            ConfigError: an epoch of an endless iteration is empty; or the order does not return an
                integer for each position.
        """
        position = self.position
        for epoch in range(self.epoch, self.end_epoch):
            plan = self.plan_of(epoch)
            is_empty = position == 0 and plan.n_steps() == 0
            if is_empty and self.end_epoch == NEVER:
                raise _empty_epoch_error(plan, epoch)
            yield from self._jobs_of_epoch(plan, epoch, position)
            position = 0

    def _jobs_of_epoch(self, plan: Plan, epoch: int, position: int) -> Iterator[Job]:
        """Yield the jobs of an epoch from a position on."""
        n_steps = plan.n_steps(position)
        samples_per_step = plan.samples_per_step
        consumed = consumed_at(self.cursors, epoch)
        prefetched_until = 0
        for steps in _group_steps(n_steps, plan.batch_size, is_first=epoch == self.epoch):
            parts = plan.parts(steps, position)
            samples_of_parts = self._samples_of(parts, plan, epoch)
            position_after = position + steps.start * samples_per_step
            for step, part, samples in zip(steps, parts, samples_of_parts, strict=True):
                # Name the blocks that will be needed, once for each position where they change. The
                # last sample of the batch tells: if it is the first one of a window, the blocks of
                # that window have all arrived once the batch is read. If the next windows were
                # named by a later batch only, nothing would be on its way until then.
                to_prefetch = None
                last_position = min(part.stop, plan.n_samples) - 1
                if last_position >= prefetched_until:
                    to_prefetch, prefetched_until = self._upcoming(last_position, plan, epoch)

                position_after += samples_per_step
                place_after = (epoch, position_after)
                # After the last step of all ranks, the next epoch begins.
                is_last = step + 1 == n_steps
                if is_last and plan.position_after(step, position) == plan.n_samples:
                    place_after = (epoch + 1, 0)

                # Arguments by name would take a quarter of a microsecond more.
                yield Job(
                    epoch,
                    step,
                    part.start,
                    samples,
                    self.seed,
                    place_after,
                    to_prefetch,
                    consumed,
                )

    def _samples_of(
        self, parts: Sequence[range], plan: Plan, epoch: int
    ) -> Iterator[IndexArrayOfInts]:
        """Yield the samples at the positions of each part.

        Raises (while iterating):
            ConfigError: the order does not return an integer for each position.
        """
        positions = plan.positions(parts)
        samples = indices_of(self.order, positions, plan.n_samples, self.seed, epoch)
        start = 0
        for part in parts:
            stop = start + len(part)
            yield samples[start:stop]
            start = stop

    def _upcoming(
        self, last_position: int, plan: Plan, epoch: int
    ) -> tuple[IndexArrayOfInts | None, int]:
        """Return samples whose blocks to prefetch at a position, and how long these are all."""
        return self.order.upcoming(last_position, plan.n_samples, self.seed, epoch)


def _group_steps(n_steps: int, batch_size: int, *, is_first: bool) -> Iterator[range]:
    """Yield the steps of an epoch in groups; the order is asked once for the samples of a group.

    Args:
        n_steps: the number of steps.
        batch_size: the number of samples of a step.
        is_first: whether the iteration begins with this epoch. Its first batch is a group of its
            own, so that no others delay it.
    """
    first_step = 0
    if is_first and n_steps > 0:
        yield range(1)
        first_step = 1
    group_size = max(1, _MAX_POSITIONS_OF_REQUEST // batch_size)
    for start in range(first_step, n_steps, group_size):
        yield range(start, min(start + group_size, n_steps))


def _empty_epoch_error(plan: Plan, epoch: int) -> ConfigError:
    reason = " (drop_last)" if plan.drop_last else ""
    return ConfigError(
        f"an endless loader cannot make a batch: epoch {epoch} has {plan.n_samples} samples, a "
        f"step needs {plan.samples_per_step}{reason}; add samples, or pass epochs="
    )
