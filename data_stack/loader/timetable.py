"""Which batches each epoch of a loader has."""

from __future__ import annotations

from dataclasses import dataclass, replace

from data_stack.loader.budgets.budget_batches import BudgetBatches
from data_stack.loader.budgets.budget_schedule import BudgetSchedule
from data_stack.loader.cursors import Cursors, consumed_at
from data_stack.loader.epoch_stacks import EpochStacks
from data_stack.loader.orders.order import Order
from data_stack.loader.plan import Plan
from data_stack.loader.schedule import Schedule
from data_stack.loader.state import LoaderState


@dataclass(frozen=True, slots=True)
class Timetable:
    """The batches of all epochs of one rank: a pure function of its attributes.

    Attributes:
        stacks: the samples of each epoch.
        order: the order of the samples in an epoch.
        plan: how an epoch is divided into batches; other epochs may have other numbers of samples.
        seed: the seed of the order.
        cursors: where the sources of a mix began that continues others; None if it does not.
        budget_batches: the batches of each epoch by budget; None for batches of one size.
    """

    stacks: EpochStacks
    order: Order
    plan: Plan
    seed: int
    cursors: Cursors | None
    budget_batches: BudgetBatches | None

    def of_rank(self, rank: int) -> Timetable:
        """Return the timetable of another rank."""
        return replace(self, plan=replace(self.plan, rank=rank))

    def of_state(self, state: LoaderState) -> Timetable:
        """Return the timetable of the training that saved a state."""
        return replace(self, seed=state.seed, cursors=Cursors.of_state(state.cursors))

    @property
    def epochs_differ(self) -> bool:
        """Whether epochs may have different numbers of batches."""
        return self.stacks.differ or self.budget_batches is not None

    def plan_of(self, epoch: int) -> Plan:
        """Return the plan of an epoch.

        With a budget its samples are batches, which it deals out one by one.

        Raises:
            ConfigError: random layers of the stack cannot be redrawn for the epoch.
        """
        if self.budget_batches is not None:
            n_samples = self.budget_batches.n_batches(epoch, self.seed)
        else:
            n_samples = len(self.stacks.at(epoch, consumed_at(self.cursors, epoch)))
        return self._plan_for(n_samples)

    def schedule(self, epoch: int, position: int, end_epoch: int) -> Schedule:
        """Return the batches from a place on.

        Args:
            epoch: the first epoch.
            position: where in that epoch the batches begin.
            end_epoch: the epoch after the last one; ``NEVER`` for an endless schedule.
        """
        schedule = Schedule(
            order=self.order,
            seed=self.seed,
            plan_of=self.plan_of,
            epoch=epoch,
            position=position,
            end_epoch=end_epoch,
            cursors=self.cursors,
        )
        if self.budget_batches is None:
            return schedule
        return BudgetSchedule.of(schedule, self.budget_batches)

    def count_steps(self, epochs: range) -> int:
        """Return the number of batches of whole epochs, without reading samples.

        All epochs count as many samples as epoch 0. With a budget they are counted exactly.
        """
        if self.budget_batches is not None:
            return sum(self.plan_of(epoch).n_steps() for epoch in epochs)
        n_steps = self._plan_for(len(self.stacks.iterator)).n_steps()
        n_batches = len(epochs) * n_steps

        # The epoch in which a mix was changed has as many samples as the new mix.
        if self.cursors is not None and self.cursors.epoch in epochs:
            n_batches += self.plan_of(self.cursors.epoch).n_steps() - n_steps
        return n_batches

    def _plan_for(self, n_samples: int) -> Plan:
        if n_samples == self.plan.n_samples:
            return self.plan
        return replace(self.plan, n_samples=n_samples)
