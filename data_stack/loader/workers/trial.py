"""Batches made by two threads at once, which shows whether more of them are faster than one."""

from __future__ import annotations

import time
from collections.abc import Sequence

from data_stack.exception import LoadingError
from data_stack.loader.jobs import BatchMaker, Job, MadeBatch
from data_stack.loader.workers.choice import Trial
from data_stack.loader.workers.clocks import wanted_seconds
from data_stack.loader.workers.threads import ThreadWorkers

__all__ = ["made_by_two"]


def made_by_two(
    maker: BatchMaker, jobs: Sequence[Job], *, seconds_alone: float, timeout_seconds: float | None
) -> tuple[list[MadeBatch | LoadingError], Trial | None]:
    """The batches of jobs, made in this thread and another at once, in the order of the jobs; and what that showed.

    If one fails, its error is the last of them, and nothing was shown.

    Args:
        maker: makes the batches.
        jobs: an even number of them.
        seconds_alone: how long one thread takes for a batch.
        timeout_seconds: how long to wait for one.

    Raises:
        WorkerError: the other thread takes too long.
    """
    theirs, ours = _TimedMaker(maker), _TimedMaker(maker)
    other = ThreadWorkers(theirs, 1, prefetch=max(1, len(jobs) // 2), timeout_seconds=timeout_seconds)
    own: list[MadeBatch | LoadingError] = []
    made: list[MadeBatch | LoadingError] = []
    try:
        began = time.perf_counter()
        for number, job in enumerate(jobs[1::2]):
            other.submit(job._replace(number=number))
        for job in jobs[::2]:
            try:
                own.append(ours.make(job))
            except LoadingError as error:
                own.append(error)
                break
        for outcome in own:
            made.append(outcome)
            if isinstance(outcome, LoadingError):
                return made, None
            try:
                made.append(other.next())
            except LoadingError as error:
                made.append(error)
                return made, None
        seconds = max(1e-9, time.perf_counter() - began)
    finally:
        other.close()
    # As it would have been if other programs had left them the processors, so that a busy machine does not mislead.
    wanted = ours.wanted_seconds + theirs.wanted_seconds
    computed = max(1e-9, ours.computing_seconds + theirs.computing_seconds)
    gain = wanted / seconds * len(jobs) * seconds_alone / computed
    return made, Trial(gain, min(2.0, computed / seconds), (wanted - computed) / (2 * seconds))


class _TimedMaker(BatchMaker):
    """Makes the batches of another maker in one thread, and tells how long that computed, and wanted to."""

    def __init__(self, maker: BatchMaker) -> None:
        self.__dict__.update(maker.__dict__)
        self.computing_seconds = self.wanted_seconds = 0.0

    @property
    def can_join(self) -> bool:
        return False

    def make(self, job: Job) -> MadeBatch:
        wanted, computed = wanted_seconds(), time.thread_time()
        try:
            return super().make(job)
        finally:
            self.computing_seconds += time.thread_time() - computed
            self.wanted_seconds += wanted_seconds() - wanted
