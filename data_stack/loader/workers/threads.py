"""Batches made by threads of this process: for readers that wait, and for decoders that release the GIL."""

from __future__ import annotations

import threading
import time
import warnings
from collections import deque
from concurrent.futures import Future, wait

from data_stack.exception import LoadingError, WorkerError
from data_stack.loader.jobs import BatchMaker, Job, MadeBatch
from data_stack.loader.workers.workers import PrefetchingWorkers
from data_stack.util.executor import Executor
from data_stack.util.forks import call_in_forks
from data_stack.util.processors import set_thread_share

# The consumer waits in slices: Ctrl-C reaches it between two of them even where a lock cannot be interrupted (Windows).
_SLICE_SECONDS = 0.1


class ThreadWorkers(PrefetchingWorkers):
    """Makes whole batches in threads, which share the maker."""

    kind = "threads"

    warns_after_seconds = 5.0
    """How long the consumer waits for a batch before it is warned."""

    def __init__(self, maker: BatchMaker, n_workers: int, *, prefetch: int, timeout_seconds: float | None) -> None:
        super().__init__(maker, n_workers, prefetch=prefetch, timeout_seconds=timeout_seconds)
        self._begin()
        call_in_forks(self._begin)

    def _begin(self) -> None:
        """Begin without jobs, with new threads; in a fork, the parent's threads make the batches of earlier jobs."""
        n_workers = self.n_workers  # the threads must not keep this object
        self._tasks: deque[tuple[Job, Future[MadeBatch]]] = deque()  # not handed out yet
        self._threads = Executor("data_stack-load", lambda: n_workers, grace_seconds=0.5)

    def submit(self, job: Job) -> None:
        self._tasks.append((job, self._threads.submit(_make, self._maker, job, self.n_workers)))

    def next(self) -> MadeBatch:
        try:
            made = self._wait_for(*self._tasks[0])
        except BaseException:
            self.cancel()
            raise
        self._tasks.popleft()
        self._observe_size(made.n_bytes)
        return made

    def cancel(self) -> None:
        for _, future in self._tasks:
            future.cancel()
        self._tasks.clear()

    def close(self) -> None:
        self.cancel()
        self._threads.finish()

    def _wait_for(self, job: Job, future: Future[MadeBatch]) -> MadeBatch:
        """The batch of a job.

        Raises:
            WorkerError: it took longer than ``timeout_seconds``.
        """
        limit, warns, began = self._timeout_seconds, self.warns_after_seconds, time.monotonic()
        while not future.done():
            wait([future], min(_SLICE_SECONDS, limit))
            waited = time.monotonic() - began
            if waited >= limit and not future.done():
                self.cancel()
                self._begin()  # leaves the stuck threads behind
                raise WorkerError(
                    "a worker thread",
                    f"did not make the batch of {job} within {limit:g} s (timeout_seconds). Python cannot end a thread, so it "
                    f"runs on until it is done. If it is only slow, allow more time",
                )
            if waited >= warns:
                warns = float("inf")
                warnings.warn(f"no batch for {waited:.0f} s: a worker thread is making {job}", RuntimeWarning, stacklevel=3)
        try:
            return future.result()
        finally:
            del future  # the traceback of an error refers to this frame, which must not lead back to the error


def _make(maker: BatchMaker, job: Job, n_workers: int) -> MadeBatch:
    """What a thread does."""
    set_thread_share(n_workers)  # a source that decodes in threads of its own leaves processors to the other workers
    try:
        return maker.make(job)
    except LoadingError as error:
        failure, cause = error, error.__cause__
    except BaseException as error:  # noqa: BLE001  # SystemExit and the like
        failure, cause = LoadingError(f"the batch of {job} could not be made", error, epoch=job.epoch, step=job.step), error
    failure.worker = threading.current_thread().name.replace("data_stack-load-", "worker thread ")
    try:
        raise failure from cause
    finally:
        del failure, cause  # the traceback of an error refers to this frame, which must not lead back to the error
