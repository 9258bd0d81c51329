"""The samples that a step of a training reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from data_stack.dataset.iterator.origins import Origin
from data_stack.exception import ConfigError
from data_stack.loader.cursors import check_is_of_mix
from data_stack.loader.job import Job
from data_stack.loader.plan import Plan
from data_stack.loader.state import LoaderState, find_place
from data_stack.loader.timetable import Timetable
from data_stack.show.markup import Block, Table, as_html, as_text

#: The columns of a table.
_HEADER = ("rank", "epoch", "sample", "in source", "source", "location", "part")

#: Those that have numbers.
_NUMBERS = frozenset((0, 1, 2, 3))


@dataclass(frozen=True, slots=True)
class SampleOfStep:
    """A sample that a rank reads in a step.

    Attributes:
        rank: the rank.
        epoch: the epoch.
        index: the position of the sample in the iterator of the loader.
        origins: the samples of files, or of other sources, that it is made of. A packed sequence
            has one for each document.
    """

    rank: int
    epoch: int
    index: int
    origins: tuple[Origin, ...]


@dataclass(frozen=True, slots=True)
class StepSamples(Sequence[SampleOfStep]):
    """The samples that one rank, or all ranks, read in a step, in the order of their batches.

    Print it for a table.

    Attributes:
        step: the number of the step, as it was asked for.
        samples: the samples, those of one rank after those of another.
    """

    step: int
    samples: tuple[SampleOfStep, ...]

    @property
    def indices(self) -> npt.NDArray[np.intp]:
        """The positions of the samples in the iterator of the loader, shape ``(n,)``."""
        return np.array([sample.index for sample in self.samples], dtype=np.intp)

    @overload
    def __getitem__(self, number: int) -> SampleOfStep: ...

    @overload
    def __getitem__(self, number: slice) -> tuple[SampleOfStep, ...]: ...

    def __getitem__(self, number: int | slice) -> SampleOfStep | tuple[SampleOfStep, ...]:
        return self.samples[number]

    def __len__(self) -> int:
        return len(self.samples)

    def __iter__(self) -> Iterator[SampleOfStep]:
        return iter(self.samples)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON data."""
        return {"step": self.step, "samples": [asdict(sample) for sample in self.samples]}

    def document(self) -> list[Block]:
        """Return a table with a row for each origin of each sample, or one if it has none."""
        rows = []
        for sample in self.samples:
            numbers = [str(sample.rank), str(sample.epoch), str(sample.index)]
            for origin in sample.origins:
                texts = [origin.source or "", origin.location or "", origin.part or ""]
                rows.append([*numbers, str(origin.position), *texts])
            if not sample.origins:
                rows.append([*numbers, "", "", "", ""])

        # Columns that are empty in all rows are left out.
        shown = []
        for number in range(len(_HEADER)):
            if any(row[number] for row in rows):
                shown.append(number)
        header = [_HEADER[number] for number in shown]
        cells = [[row[number] for number in shown] for row in rows]
        return [Table(header, cells, _NUMBERS, max_rows=len(rows))]

    def __str__(self) -> str:
        return as_text(self.document())

    def _repr_html_(self) -> str:
        return as_html(self.document())


# ---------------------------------------------------------------------- the place of a step


def find_jobs_of_step(
    timetable: Timetable,
    step: int,
    ranks: Sequence[int],
    *,
    epoch: int | None,
    state: LoaderState | None,
) -> list[tuple[int, Job]]:
    """Find the batches of a step.

    Args:
        timetable: the batches of all epochs.
        step: the number of the step: from the start of epoch 0, or from ``epoch`` or ``state``.
        ranks: the ranks, at least one.
        epoch: the epoch from whose start the step is counted; None if it is not.
        state: the state from which the step is counted; None if it is not.

    Returns:
        Each rank that has the step, with the job of its batch.

    Raises:
        ConfigError: there is no such step, or it had samples of a mix before.
    """
    if epoch is not None:
        plan = timetable.plan_of(epoch)
        _check_step_of_epoch(step, epoch, plan, ranks[0])
        # With uneven="keep" the last step of an epoch may be one of the first ranks only.
        ranks = [rank for rank in ranks if plan.n_steps(rank=rank) > step]

    jobs = []
    for rank in ranks:
        timetable_of_rank = timetable.of_rank(rank)
        start = (epoch or 0, 0)
        if state is not None:
            place = find_place(state, timetable_of_rank.plan, timetable_of_rank.plan_of)
            start = (place.epoch, place.position)
        step_epoch, position = _find_step_after(step, start, timetable_of_rank)
        check_is_of_mix(timetable.cursors, step_epoch)

        # The first batch from there on is that of the step.
        schedule = timetable_of_rank.schedule(step_epoch, position, step_epoch + 1)
        jobs.append((rank, next(schedule.jobs())))
    return jobs


def _check_step_of_epoch(step: int, epoch: int, plan: Plan, rank: int) -> None:
    """Check that a rank has a step in an epoch, counted from its start.

    Raises:
        ConfigError: it has not.
    """
    n_steps = plan.n_steps(rank=rank)
    if not 0 <= step < n_steps:
        raise ConfigError(
            f"epoch {epoch} has no step {step:,} of rank {rank}: the number of its steps is "
            f"{n_steps:,}, and the first one is step 0"
        )


def _find_step_after(step: int, start: tuple[int, int], timetable: Timetable) -> tuple[int, int]:
    """Return the epoch and position of a step of a rank, counted from a place on.

    Args:
        step: 0 for the first step from there on; negative for those before it in its epoch.
        start: the epoch and position of the place.
        timetable: the batches of the rank.

    Raises:
        ConfigError: there is no such step.
    """
    epoch, position = start
    plan = timetable.plan_of(epoch)
    if step < 0:
        n_steps_before = position // plan.samples_per_step
        if -step > n_steps_before:
            raise ConfigError(
                f"there is no step {step:,} before the state: the number of steps from the start "
                f"of epoch {epoch}, or of the mix that was changed in it, to the state is "
                f"{n_steps_before:,}. For a step of an earlier epoch, pass epoch= in place of "
                f"state=, and the step from the start of that epoch"
            )
        return epoch, position + step * plan.samples_per_step

    n_left = step
    n_steps = plan.n_steps(position)
    while n_left >= n_steps:
        if n_steps == 0 and position == 0:
            raise ConfigError(f"rank {plan.rank} has no batch in epoch {epoch}")
        n_left -= n_steps
        epoch += 1
        position = 0
        plan = timetable.plan_of(epoch)
        n_steps = plan.n_steps(position)

        # Epochs that are alike are counted at once.
        if not timetable.epochs_differ and n_steps > 0:
            n_epochs, n_left = divmod(n_left, n_steps)
            epoch += n_epochs
    return epoch, position + n_left * plan.samples_per_step
