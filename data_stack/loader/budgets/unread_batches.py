"""Warns of epochs of a budget that a trainer leaves too early."""

from __future__ import annotations

import warnings
from dataclasses import replace

from data_stack.loader.budgets.budget_batches import BudgetBatches
from data_stack.loader.progress import Progress
from data_stack.loader.timetable import Timetable


def warn_of_unread_batches(
    progress: Progress, timetable: Timetable, budget_batches: BudgetBatches, stacklevel: int
) -> None:
    """Warn if a trainer has left an epoch by counting the batches of another one.

    Lightning counts the batches of the first epoch, and leaves later ones after as many. With a
    budget, those may have more.

    Args:
        progress: where the trainer has left the epoch, inside of it.
        timetable: the batches of all epochs.
        budget_batches: the batches of each epoch by budget.
        stacklevel: the caller to blame, as for ``warnings.warn``.
    """
    plan = timetable.plan_of(progress.epoch)
    n_read, n_begun = divmod(progress.position, plan.samples_per_step)
    n_batches = plan.n_steps()
    counts = budget_batches.known_numbers(timetable.seed)
    n_batches_of_epochs = {replace(plan, n_samples=count).n_steps() for count in counts}
    if n_begun or n_read not in n_batches_of_epochs:
        return
    warnings.warn(
        f"epoch {progress.epoch} was left after {n_read} of its {n_batches} batches, and "
        "another epoch has as many: with a budget, epochs differ in their number of batches, "
        "and this trainer seems to count them once. In Lightning, pass "
        "Trainer(reload_dataloaders_every_n_epochs=1); elsewhere, a window of all samples "
        "makes all epochs equally long",
        stacklevel=stacklevel + 1,
    )
