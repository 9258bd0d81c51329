"""The batches of an iteration by budget, one job after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

from data_stack.dataset.positions import IndexArrayOfInts
from data_stack.loader.budgets.budget_batches import BudgetBatches
from data_stack.loader.plan import Plan
from data_stack.loader.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetSchedule(Schedule):
    """A schedule whose plans divide the batches of an epoch among the ranks, not its samples.

    So a position is the number of a batch, and a step takes one batch of each rank.

    Attributes:
        batches: the batches of each epoch.
    """

    batches: BudgetBatches

    @classmethod
    def of(cls, schedule: Schedule, batches: BudgetBatches) -> BudgetSchedule:
        """Return a schedule of these batches, from the place to the end of another schedule."""
        values = {field.name: getattr(schedule, field.name) for field in fields(Schedule)}
        return cls(**values, batches=batches)

    def _samples_of(
        self, parts: Sequence[range], plan: Plan, epoch: int
    ) -> Iterator[IndexArrayOfInts]:
        batches = self.batches.at(epoch, self.seed)
        for part in parts:
            # Each part is one batch. Padding repeats batches from the start of the epoch.
            yield batches.samples_of(part.start % plan.n_samples)

    def _upcoming(
        self, last_position: int, plan: Plan, epoch: int
    ) -> tuple[IndexArrayOfInts | None, int]:
        return self.batches.at(epoch, self.seed).upcoming(last_position)
