"""Batches made by threads of this process: for readers that wait, and for decoders that release the GIL."""

from __future__ import annotations

import threading
import time
import warnings
from collections import deque
from concurrent.futures import Future, wait

from data_stack.exception import LoadingError, WorkerError
from data_stack.loader.jobs import BatchMaker, Job, MadeBatch
from data_stack.loader.workers.prefetch_limit import PrefetchLimit
from data_stack.loader.workers.workers import Workers
from data_stack.util.executor import waiting
from data_stack.util.forks import call_in_forks
from data_stack.util.processors import thread_is_one_of

__all__ = ["ThreadWorkers"]

# Slices in which a consumer waits: Ctrl-C reaches it between two of them even where a lock cannot be interrupted (Windows).
_SLICE_SECONDS = 0.1

_Task = tuple[Job, "Future[MadeBatch]"]

# How long the end of the workers waits for the batches that are being made.
_GRACE_SECONDS = 1.0


class ThreadWorkers(Workers):
    """Makes whole batches in threads of :data:`~data_stack.util.executor.waiting`, each of them ``prefetch`` ahead.

    Args:
        maker: makes the batches; the threads share it.
        n_workers: threads, at least 1.
        prefetch: batches that each of them makes ahead, at least 1; of large ones there may be fewer.
        timeout_seconds: how long to wait for a batch; None: as long as it takes.
    """

    kind = "threads"

    warns_after_seconds = 5.0
    """How long the consumer waits for a batch before it is told of that."""

    def __init__(self, maker: BatchMaker, n_workers: int, *, prefetch: int, timeout_seconds: float | None) -> None:
        self._maker, self._timeout_seconds = maker, timeout_seconds
        self._limit = PrefetchLimit(n_workers, prefetch)
        self.n_workers = n_workers
        self._begin()
        call_in_forks(self._begin)

    def _begin(self) -> None:
        self._tasks: deque[_Task] = deque()  # not handed out
        self._queue: deque[_Task] = deque()  # of these, what no thread has
        self._lock = threading.Lock()  # of the queue and the threads
        self._threads: dict[int, Future[None]] = {}  # by the number of each; another dict once these are left behind

    @property
    def capacity(self) -> int:  # type: ignore[override]  # read-only here
        return self._limit.n_batches

    def submit(self, job: Job) -> None:
        task: _Task = (job, Future())
        self._tasks.append(task)
        with self._lock:
            self._queue.append(task)
            if len(self._threads) < self.n_workers:
                number = min(set(range(1, self.n_workers + 1)) - self._threads.keys())
                self._threads[number] = waiting.submit(self._serve, number, self._threads)

    def next(self) -> MadeBatch:
        try:
            made = self._wait_for(*self._tasks[0])
        except BaseException:
            self.cancel()
            raise
        self._tasks.popleft()
        self._limit.observe(made.n_bytes)
        return made

    def cancel(self) -> None:
        for _, future in self._tasks:
            future.cancel()
        with self._lock:
            self._queue.clear()
        self._tasks.clear()

    def close(self) -> None:
        self.cancel()
        wait(list(self._threads.values()), _GRACE_SECONDS)
        self._threads = {}

    def _serve(self, number: int, threads: dict[int, Future[None]]) -> None:
        """What a thread does: make batches as long as there are any to make, and it is one of the threads."""
        thread_is_one_of(self.n_workers)  # a source that decodes in threads of its own leaves the processors to the others
        try:
            while True:
                with self._lock:
                    if threads is not self._threads or not self._queue:
                        threads.pop(number, None)
                        return
                    job, future = self._queue.popleft()
                if future.set_running_or_notify_cancel():
                    self._make(job, future, number)
                del future
        finally:
            thread_is_one_of(1)

    def _make(self, job: Job, future: Future[MadeBatch], number: int) -> None:
        try:
            future.set_result(self._maker.make(job))
        except BaseException as error:  # noqa: BLE001  # SystemExit and its like, which would end the thread without a word
            failure = error
            if not isinstance(failure, LoadingError):
                failure = LoadingError(f"the batch of {job} could not be made", error, epoch=job.epoch, step=job.step)
                failure.__cause__ = error
            failure.worker = f"worker thread {number}"
            future.set_exception(failure)
            del failure, future  # the traceback refers to this frame, and shall not lead back to the error

    def _wait_for(self, job: Job, future: Future[MadeBatch]) -> MadeBatch:
        """What becomes of a job.

        Raises:
            WorkerError: it took longer than ``timeout_seconds``.
        """
        limit = float("inf") if self._timeout_seconds is None else self._timeout_seconds
        began, warns = time.monotonic(), self.warns_after_seconds
        while not future.done():
            wait([future], min(_SLICE_SECONDS, limit))
            waited = time.monotonic() - began
            if waited >= limit and not future.done():
                with self._lock:  # others take their place
                    self._threads, self._queue = {}, deque()
                raise WorkerError(
                    "a worker thread",
                    f"did not make the batch of {job} within {limit:g} s (timeout_seconds). A thread cannot be ended "
                    f"from outside: it is left behind until it is done. If it is just slow, give it more time",
                )
            if waited >= warns:
                warns = float("inf")
                warnings.warn(f"no batch for {waited:.0f} s: a worker thread is at that of {job}", RuntimeWarning, stacklevel=3)
        try:
            return future.result()
        finally:
            del future  # likewise
