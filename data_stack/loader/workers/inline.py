"""Batches made in the consumer's own thread."""

from __future__ import annotations

from collections import deque

from data_stack.loader.jobs import BatchMaker, Job, MadeBatch
from data_stack.loader.workers.workers import Workers


class InlineWorkers(Workers):
    """Makes a batch when it is requested, without threads or processes."""

    kind = "inline"
    n_workers = 0
    capacity = 1

    def __init__(self, maker: BatchMaker) -> None:
        self._maker = maker
        self._jobs: deque[Job] = deque()

    def submit(self, job: Job) -> None:
        self._jobs.append(job)

    def next(self) -> MadeBatch:
        try:
            return self._maker.make(self._jobs.popleft())
        except BaseException:
            self.cancel()
            raise

    def cancel(self) -> None:
        self._jobs.clear()

    def close(self) -> None:
        self.cancel()
