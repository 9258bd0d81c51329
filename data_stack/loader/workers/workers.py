"""The contract of workers, which make the batches of jobs."""

from __future__ import annotations

import math
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable

from data_stack.exception import WorkerError
from data_stack.loader.jobs import BatchMaker, Job, MadeBatch

# The memory of all batches that are made ahead, unless a worker would be idle.
_MAX_BYTES = 32 << 20

# The consumer waits in slices: Ctrl-C reaches it between two of them even where a lock cannot be interrupted (Windows).
_SLICE_SECONDS = 0.1


class Workers(ABC):
    """Makes the batches of jobs, and delivers them in the order of the jobs; the kind of workers does not change the batches.

    One thread uses it. Nothing runs before the first job.
    """

    kind: str
    """"inline", "threads" or "processes"."""

    choice: str = ""
    """Why these workers were chosen; "" if the caller chose them."""

    n_workers: int
    """Threads or processes; 0 if the consumer's thread does the jobs."""

    capacity: int
    """The number of jobs that should be in flight; it may change at any time."""

    @abstractmethod
    def submit(self, job: Job) -> None:
        """Queue a job; never waits for a batch."""
        raise NotImplementedError

    @abstractmethod
    def next(self) -> MadeBatch:
        """Wait for the batch of the oldest job that has not been delivered.

        Raises:
            LoadingError: the batch could not be made. All other jobs are dropped, as by :meth:`cancel`.
            WorkerError: a worker died or is stuck. All jobs are dropped, and worker processes are ended.
            BaseException: an interruption of the waiting, such as KeyboardInterrupt; call :meth:`cancel` or :meth:`close` then.
        """
        raise NotImplementedError

    @abstractmethod
    def cancel(self) -> None:
        """Drop all jobs; the workers stay ready for others."""
        raise NotImplementedError

    @abstractmethod
    def close(self) -> None:
        """Drop all jobs and release every thread, process, descriptor and piece of shared memory.

        Closing twice has no effect; the next job starts the workers again. Delivered batches stay valid. It returns within
        seconds, even if a worker hangs.
        """
        raise NotImplementedError

    def expect(self, n_jobs: int) -> None:  # noqa: B027  # most kinds ignore it
        """Announce the approximate number of jobs before the first job of an iteration."""

    @property
    def is_ready(self) -> bool:
        """Whether the workers have started, so that a job would begin at once."""
        return True

    def start(self) -> None:
        """Start the workers, so that the first job finds them ready; optional."""
        return


class PrefetchingWorkers(Workers):
    """Threads or processes that make batches ahead; fewer where batches are large.

    At least one batch per worker plus one may be in flight, if ``prefetch`` allows it: when the consumer has taken the oldest,
    each worker has one to make while the consumer uses its own.

    Args:
        maker: makes the batches.
        n_workers: at least 1.
        prefetch: the maximum number of batches that each worker makes ahead, at least 1.
        timeout_seconds: how long to wait for a batch; None for as long as its worker lives.
    """

    warns_after_seconds = 5.0
    """How long the consumer waits for a batch before it is warned."""

    advice: str
    """What happened to a worker that exceeded the timeout, for the message."""

    def __init__(self, maker: BatchMaker, n_workers: int, *, prefetch: int, timeout_seconds: float | None) -> None:
        self._maker, self.n_workers, self._prefetch = maker, n_workers, prefetch
        self._timeout_seconds = math.inf if timeout_seconds is None else timeout_seconds
        self._last_bytes = 0
        self.capacity = n_workers * prefetch  # until the size of batches is known

    def _observe_size(self, n_bytes: int) -> None:
        """Adapt the capacity to the size of a batch."""
        larger, self._last_bytes = max(n_bytes, self._last_bytes), n_bytes  # the last batch of an epoch may be small
        most = self.n_workers * self._prefetch
        fitting = _MAX_BYTES // larger if larger else most
        self.capacity = max(min(most, self.n_workers + 1), min(most, fitting))

    def _wait(self, job: Job, is_done: Callable[[float], bool], name: Callable[[], str]) -> None:
        """Wait for the batch of a job.

        Args:
            job: that is being made.
            is_done: waits some seconds at most, and returns whether the batch is there.
            name: returns the name of the worker.

        Raises:
            WorkerError: it took longer than ``timeout_seconds``.
        """
        began, warns = time.monotonic(), self.warns_after_seconds
        while not is_done(min(_SLICE_SECONDS, self._timeout_seconds)):
            waited = time.monotonic() - began
            if waited >= self._timeout_seconds:
                problem = f"did not make the batch of {job} within timeout_seconds={self._timeout_seconds:g}. {self.advice}"
                raise WorkerError(name(), problem)
            if waited >= warns:
                warns = math.inf
                warnings.warn(f"{name()} takes long to make {job}: {waited:.0f} s so far", RuntimeWarning, stacklevel=4)
