"""The contract of workers, which make the batches of jobs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from data_stack.loader.batch_maker import MadeBatch
from data_stack.loader.job import Job

WorkerKind = Literal["auto", "in_process", "inline", "threads", "processes"]


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """How threads or processes make batches.

    Attributes:
        n_workers: the number of threads or processes, at least 1.
        prefetch: the maximum number of batches that each of them makes ahead, at least 1.
        timeout_seconds: how long to wait for a batch; infinity for as long as its worker lives.
        compares_batches: whether to compare the first batch of processes with that of this process.
        max_bytes_sent: the maximum size of the arrays that processes may be sent.
    """

    n_workers: int
    prefetch: int
    timeout_seconds: float = math.inf
    compares_batches: bool = True
    max_bytes_sent: float = math.inf


class Workers(ABC):
    """Makes the batches of jobs, and delivers them in the order of the jobs.

    The kind of workers does not change the batches. One thread uses the workers. Nothing runs
    before the first job, unless :meth:`start` is called.
    """

    kind: str
    """"inline", "threads" or "processes"."""

    choice: str = ""
    """Why these workers were chosen; "" if the caller chose them."""

    n_workers: int
    """The number of threads or processes; 0 if the consumer's thread does the jobs."""

    capacity: int
    """The number of jobs that should be in flight; it may change at any time."""

    is_ready: bool = True
    """Whether the workers have started, so that a job would begin at once."""

    @abstractmethod
    def submit(self, job: Job) -> None:
        """Queue a job; never waits for a batch."""
        raise NotImplementedError

    @abstractmethod
    def next(self) -> MadeBatch:
        """Wait for the batch of the oldest job that has not been delivered.

        Raises:
            LoadingError: the batch could not be made. All other jobs are dropped, as by
                :meth:`cancel`.
            WorkerError: a worker died or is stuck. All jobs are dropped, and worker processes are
                ended.
            BaseException: an interruption of the waiting, such as KeyboardInterrupt; call
                :meth:`cancel` or :meth:`close` then.
        """
        raise NotImplementedError

    @abstractmethod
    def cancel(self) -> None:
        """Drop all jobs; the workers stay ready for others."""
        raise NotImplementedError

    @abstractmethod
    def close(self) -> None:
        """Drop all jobs, and release every thread, process, descriptor and piece of shared memory.

        Closing twice has no effect; the next job starts the workers again. Delivered batches stay
        valid. It returns within seconds, even if a worker hangs.
        """
        raise NotImplementedError

    def expect(self, n_jobs: int) -> None:  # noqa: B027  # most kinds ignore it
        """Announce the approximate number of jobs before the first job of an iteration."""

    def start(self) -> None:
        """Start the workers, so that the first job finds them ready; optional."""
        return
