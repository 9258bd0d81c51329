"""Batches made in the consumer's own thread, several in one request where they are small."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from data_stack.loader.jobs import BatchMaker, Job, MadeBatch
from data_stack.loader.workers.workers import Workers, count_together


class InlineWorkers(Workers):
    """Makes a batch when it is asked for; no thread, no process.

    Attributes:
        n_ready: batches that are made and not handed out.
    """

    kind = "inline"
    n_workers = 0

    def __init__(self, maker: BatchMaker) -> None:
        self._maker = maker
        self._jobs: deque[Job] = deque()
        self._making: Iterator[MadeBatch] = iter(())
        self.n_ready = 0
        self.capacity = 1  # the first batch waits for no other

    def submit(self, job: Job) -> None:
        self._jobs.append(job)

    def next(self) -> MadeBatch:
        is_first = self.n_ready == 0
        try:
            if is_first:
                jobs = self._take_jobs()
                self._making, self.n_ready = self._maker.make_several(jobs), len(jobs)
            made = next(self._making)
        except BaseException:
            self.cancel()
            raise
        self.n_ready -= 1
        if is_first:
            self.capacity = count_together(self._maker, made, self.capacity)
        return made

    def cancel(self) -> None:
        self._jobs.clear()
        self._making, self.n_ready = iter(()), 0

    def close(self) -> None:
        self.cancel()

    def _take_jobs(self) -> list[Job]:
        """The jobs of the next request: all that were submitted of the oldest job's epoch."""
        jobs = [self._jobs.popleft()]
        while self._jobs and self._jobs[0].epoch == jobs[0].epoch and self._maker.can_join:
            jobs.append(self._jobs.popleft())
        return jobs
