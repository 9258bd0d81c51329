"""Batches made in the consumer's own thread, several in one request where they are small."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator

from data_stack.loader.jobs import BatchMaker, Job, MadeBatch
from data_stack.loader.workers.coalescing import BatchCoalescing
from data_stack.loader.workers.workers import Workers

__all__ = ["InlineWorkers"]


class InlineWorkers(Workers):
    """Makes a batch when it is asked for; no thread, no process."""

    kind = "inline"

    def __init__(self, maker: BatchMaker) -> None:
        self._maker = maker
        self._coalescing = BatchCoalescing(maker)
        self._jobs: deque[Job] = deque()
        self._making: Iterator[MadeBatch] = iter(())
        self._n_making = 0
        self.n_workers = 0

    @property
    def capacity(self) -> int:  # type: ignore[override]  # read-only here
        return self._coalescing.n_jobs

    def submit(self, job: Job) -> None:
        self._jobs.append(job)

    def next(self) -> MadeBatch:
        is_first = self._n_making == 0
        try:
            if is_first:
                jobs = self._joined()
                self._making, self._n_making = self._maker.make_several(jobs), len(jobs)
            made = next(self._making)
        except BaseException:
            self.cancel()
            raise
        self._n_making -= 1
        if is_first:
            self._coalescing.observe(made)
        return made

    @property
    def n_ready(self) -> int:
        return self._n_making

    def cancel(self) -> None:
        self._jobs.clear()
        self._making, self._n_making = iter(()), 0

    def close(self) -> None:
        self.cancel()

    def _joined(self) -> list[Job]:
        """The jobs to do now: all of the oldest one's epoch that have been submitted."""
        if len(self._jobs) == 1 or not self._maker.can_join:
            return [self._jobs.popleft()]
        epoch = self._jobs[0].epoch
        jobs = list(itertools.takewhile(lambda job: job.epoch == epoch, self._jobs))
        for _ in jobs:
            self._jobs.popleft()
        return jobs
