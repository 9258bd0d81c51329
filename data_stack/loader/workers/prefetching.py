"""What threads and processes share: they make batches ahead of the consumer."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

from data_stack.exception import WorkerError
from data_stack.loader.batch_maker import BatchMaker
from data_stack.loader.job import Job
from data_stack.loader.workers.base import WorkerOptions, Workers

#: The maximum size of all batches that are made ahead, unless a worker would be idle.
_MAX_BYTES_AHEAD = 32 << 20

#: The consumer waits in slices of this time. Between two of them it notices Ctrl-C, even where
#: waiting for a lock cannot be interrupted (Windows).
_SLICE_SECONDS = 0.1


class PrefetchingWorkers(Workers):
    """Threads or processes that make batches ahead; fewer batches if these are large.

    Args:
        maker: makes the batches.
        options: the number of workers, and how far they work ahead.
    """

    warns_after_seconds = 5.0
    """How long the consumer waits for a batch before it is warned."""

    advice: str
    """What happened to a worker that exceeded the timeout, for the message."""

    #: Makes the batches.
    _maker: BatchMaker
    #: How the workers make batches.
    _options: WorkerOptions
    #: The size of the last batch in bytes.
    _last_bytes: int

    def __init__(self, maker: BatchMaker, options: WorkerOptions) -> None:
        self.n_workers = options.n_workers
        self.capacity = options.n_workers * options.prefetch  # until the size of a batch is known
        self._maker = maker
        self._options = options
        self._last_bytes = 0

    def observe_size(self, n_bytes: int) -> None:
        """Adapt the capacity to the size of a batch."""
        # The larger one of the last two batches counts, as the last of an epoch may be small.
        larger_bytes = max(n_bytes, self._last_bytes)
        self._last_bytes = n_bytes
        self.capacity = choose_capacity(larger_bytes, self.n_workers, self._options.prefetch)

    def _wait(
        self, job: Job, is_done: Callable[[float], bool], describe_worker: Callable[[], str]
    ) -> None:
        """Wait for the batch of a job.

        Args:
            job: the job that is being done.
            is_done: waits some seconds at most, and returns whether the batch is there.
            describe_worker: returns the name of the worker.

        Raises:
            WorkerError: the batch took longer than the timeout.
        """
        timeout_seconds = self._options.timeout_seconds
        slice_seconds = min(_SLICE_SECONDS, timeout_seconds)
        started_at = time.monotonic()
        has_warned = False
        while not is_done(slice_seconds):
            waited_seconds = time.monotonic() - started_at
            if waited_seconds >= timeout_seconds:
                raise WorkerError(
                    describe_worker(),
                    f"did not make the batch of {job} within "
                    f"timeout_seconds={timeout_seconds:g}. {self.advice}",
                )
            if waited_seconds >= self.warns_after_seconds and not has_warned:
                has_warned = True
                warnings.warn(
                    f"{describe_worker()} takes long to make {job}: {waited_seconds:.0f} s so far",
                    RuntimeWarning,
                    stacklevel=4,
                )


def choose_capacity(batch_bytes: int, n_workers: int, prefetch: int) -> int:
    """Choose how many batches may be in flight.

    When the consumer has taken the oldest batch, each worker needs one to make while the consumer
    uses its own: one batch per worker plus one, if ``prefetch`` allows it. More batches are made
    ahead as long as they take little memory.

    Args:
        batch_bytes: the size of a batch; 0 if it is unknown.
        n_workers: the number of workers.
        prefetch: the maximum number of batches that each worker makes ahead.
    """
    max_capacity = n_workers * prefetch
    if batch_bytes == 0:
        return max_capacity
    n_needed = n_workers + 1
    n_fitting = _MAX_BYTES_AHEAD // batch_bytes
    return min(max_capacity, max(n_needed, n_fitting))
