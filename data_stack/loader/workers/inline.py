"""Batches made in the consumer's own thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from data_stack.loader.jobs import BatchMaker, Job, MadeBatch
from data_stack.loader.workers.workers import Workers

# Small batches out of blocks are read in one request: 0.25 ms a batch instead of 0.5 ms for plain columns of Parquet.
_N_TOGETHER = 8
_MAX_BYTES_TOGETHER = 1 << 20
_MAX_SECONDS_TOGETHER = 0.008


class InlineWorkers(Workers):
    """Makes a batch when it is requested, without threads or processes."""

    kind = "inline"
    n_workers = 0

    def __init__(self, maker: BatchMaker) -> None:
        self._maker = maker
        self._jobs: deque[Job] = deque()
        self._making: Iterator[MadeBatch] = iter(())
        self.capacity = 1  # the first batch does not wait for others

    def submit(self, job: Job) -> None:
        self._jobs.append(job)

    def next(self) -> MadeBatch:
        try:
            if (made := next(self._making, None)) is not None:
                return made
            made = self._make()
        except BaseException:
            self.cancel()
            raise
        seconds = made.read_seconds + made.collate_seconds + made.transform_seconds
        is_small = _N_TOGETHER * made.n_bytes <= _MAX_BYTES_TOGETHER and _N_TOGETHER * seconds <= _MAX_SECONDS_TOGETHER
        self.capacity = _N_TOGETHER if is_small and self._maker.can_join else 1
        return made

    def _make(self) -> MadeBatch:
        """The oldest job's batch; begins to make those of the other jobs of its epoch, too."""
        jobs = [self._jobs.popleft()]
        while self._maker.can_join and self._jobs and self._jobs[0].epoch == jobs[0].epoch:
            jobs.append(self._jobs.popleft())
        if len(jobs) == 1:
            return self._maker.make(jobs[0])
        self._making = self._maker.make_several(jobs)
        return next(self._making)

    def cancel(self) -> None:
        self._jobs.clear()
        self._making = iter(())

    def close(self) -> None:
        self.cancel()
