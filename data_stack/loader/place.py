"""Where a loader is among the batches of all its epochs."""

from __future__ import annotations

from dataclasses import dataclass

from data_stack.loader.budgets.budget_batches import BudgetBatches
from data_stack.loader.epoch_stacks import EpochStacks
from data_stack.loader.orders.order import Order
from data_stack.loader.plan import NEVER, Plan, place_after
from data_stack.loader.schedule import Schedule
from data_stack.loader.session import Session
from data_stack.loader.timetable import Timetable


@dataclass(frozen=True, slots=True)
class LoaderPlace:
    """The place of a loader, and the batches that follow it.

    With ``uneven="keep"`` the ranks may be in different places after the same number of batches,
    see :class:`~data_stack.loader.progress.Progress`.

    Attributes:
        session: knows how far this rank is.
        stacks: the samples of each epoch.
        order: the order of the samples in an epoch.
        budget_batches: the batches of each epoch by budget; None for batches of one size.
        n_epochs: the number of epochs of an iteration; None for an endless one.
    """

    session: Session
    stacks: EpochStacks
    order: Order
    budget_batches: BudgetBatches | None
    n_epochs: int | None

    @property
    def plan(self) -> Plan:
        """The plan of epoch 0."""
        self.session.update_shard()
        return self.session.plan

    @property
    def timetable(self) -> Timetable:
        """The batches of all epochs of this rank."""
        return Timetable(
            stacks=self.stacks,
            order=self.order,
            plan=self.plan,
            seed=self.session.seed,
            cursors=self.session.cursors,
            budget_batches=self.budget_batches,
        )

    @property
    def end_epoch(self) -> int:
        """The epoch after the last one of the iteration."""
        if self.n_epochs is None:
            return NEVER
        return self.session.progress.first_epoch + self.n_epochs

    def schedule_from_here(self) -> Schedule:
        """Return the batches from here to the end of the iteration."""
        progress = self.session.progress
        return self.timetable.schedule(progress.epoch, progress.position, self.end_epoch)

    def tell(self) -> tuple[int, int, int]:
        """Return the place of the next batch, as :meth:`Loader.tell` describes it."""
        epoch, position, first_epoch = self.session.tell()
        skips_rest_of_epoch = (epoch, position) != self.session.progress.place
        if not skips_rest_of_epoch or not self.are_ranks_apart():
            return epoch, position, first_epoch

        # All ranks begin with the same epoch, which none of them has begun. The last rank has the
        # fewest steps in an epoch, so it is ahead of all others.
        last_rank = self.session.plan.world - 1
        next_epoch, furthest_position = self._place_of_rank(last_rank)
        if furthest_position > 0:
            next_epoch += 1
        return next_epoch, 0, next_epoch

    def are_ranks_apart(self) -> bool:
        """Return whether ranks are in different places, after as many batches as this one."""
        plan = self.session.plan
        if plan.uneven != "keep" or plan.world == 1 or self.session.progress.n_batches == 0:
            return False
        # The first rank has the most steps in an epoch, the last one the fewest.
        return self._place_of_rank(0) != self._place_of_rank(plan.world - 1)

    def _place_of_rank(self, rank: int) -> tuple[int, int]:
        """Return where a rank is after as many batches as this one has received."""
        progress = self.session.progress
        return place_after(
            progress.n_batches,
            progress.origin,
            rank,
            self.timetable.plan_of,
            self.end_epoch,
        )
