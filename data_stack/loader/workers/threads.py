"""Batches made by threads of this process: for readers that wait, and for decoders that release the GIL."""

from __future__ import annotations

import threading
import time
import warnings
from collections import deque
from concurrent.futures import Future, wait

from data_stack.exception import LoadingError, WorkerError
from data_stack.loader.jobs import BatchMaker, Job, MadeBatch
from data_stack.loader.workers.coalescing import BatchCoalescing
from data_stack.loader.workers.prefetch_limit import PrefetchLimit
from data_stack.loader.workers.workers import Workers
from data_stack.util.executor import waiting
from data_stack.util.forks import call_in_forks
from data_stack.util.processors import thread_is_one_of

__all__ = ["ThreadWorkers"]

# Slices in which a consumer waits: Ctrl-C reaches it between two of them even where a lock cannot be interrupted (Windows).
_SLICE_SECONDS = 0.1

# How long the end of the workers waits for the batches that are being made.
_GRACE_SECONDS = 1.0


class ThreadWorkers(Workers):
    """Makes whole batches in threads of :data:`~data_stack.util.executor.waiting`, each of them ``prefetch`` ahead.

    Args:
        maker: makes the batches; the threads share it.
        n_workers: threads, at least 1.
        prefetch: batches that each of them makes ahead, at least 1; of small ones, requests for several; of large ones there may
            be fewer.
        timeout_seconds: how long to wait for a batch; None: as long as it takes.
    """

    kind = "threads"

    warns_after_seconds = 5.0
    """How long the consumer waits for a batch before it is told of that."""

    def __init__(self, maker: BatchMaker, n_workers: int, *, prefetch: int, timeout_seconds: float | None) -> None:
        self._maker, self._timeout_seconds = maker, timeout_seconds
        self._coalescing = BatchCoalescing(maker)
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
        return self._limit.n_batches * self._coalescing.n_jobs

    def submit(self, job: Job) -> None:
        task = _Task(job)
        self._tasks.append(task)
        with self._lock:
            self._queue.append(task)
            if len(self._threads) < self.n_workers:
                number = min(set(range(1, self.n_workers + 1)) - self._threads.keys())
                self._threads[number] = waiting.submit(self._serve, number, self._threads)

    def next(self) -> MadeBatch:
        task = self._tasks[0]
        try:
            if not task.done.acquire(blocking=False):
                self._wait_for(task)
            if task.error is not None:
                raise task.error
        except BaseException:
            self.cancel()
            raise
        finally:
            del task  # whose error refers to this frame
        made = self._tasks.popleft().take()
        self._coalescing.observe(made)
        self._limit.observe(made.n_bytes)
        return made

    @property
    def n_ready(self) -> int:
        return sum(task.made is not None for task in self._tasks)

    def cancel(self) -> None:
        for task in self._tasks:
            task.is_cancelled = True
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
                    group = self._next_group() if threads is self._threads else []
                    if not group:
                        threads.pop(number, None)
                        return
                self._make(group, number)
        finally:
            thread_is_one_of(1)

    def _next_group(self) -> list[_Task]:
        """Tasks of one epoch that are done in one request."""
        group: list[_Task] = []
        while self._queue and len(group) < self._coalescing.n_jobs:
            if group and self._queue[0].job.epoch != group[0].job.epoch:
                break
            group.append(self._queue.popleft())
        return group

    def _make(self, group: list[_Task], number: int) -> None:
        """Make the batches of tasks, up to the first that fails."""
        for task in group:
            task.thread = number
        made = self._maker.make_several([task.job for task in group])
        for task in group:
            if task.is_cancelled:
                return
            try:
                task.made = next(made)
            except LoadingError as error:
                task.error = error
            except BaseException as error:  # noqa: BLE001  # SystemExit and its like, which would end the thread without a word
                problem = f"the batch of {task.job} could not be made"
                task.error = LoadingError(problem, error, epoch=task.job.epoch, step=task.job.step)
                task.error.__cause__ = error
            task.done.release()
            if task.error is not None:
                task.error.worker = f"worker thread {number}"
                del task, group, made  # the traceback refers to this frame, and shall not lead back to the error
                return

    def _wait_for(self, task: _Task) -> None:
        """Return when a task is done.

        Raises:
            WorkerError: it took longer than ``timeout_seconds``.
        """
        limit = float("inf") if self._timeout_seconds is None else self._timeout_seconds
        began, warns = time.monotonic(), self.warns_after_seconds
        while not task.done.acquire(timeout=min(_SLICE_SECONDS, limit)):
            waited = time.monotonic() - began
            name = f"worker thread {task.thread or 1}"
            if waited >= limit:
                with self._lock:  # others take their place
                    self._threads, self._queue = {}, deque()
                raise WorkerError(
                    name,
                    f"did not make the batch of {task.job} within {limit:g} s (timeout_seconds). A thread cannot be ended "
                    f"from outside: it is left behind until it is done. If it is just slow, give it more time",
                )
            if waited >= warns:
                warns = float("inf")
                warnings.warn(f"no batch for {waited:.0f} s: {name} is at that of {task.job}", RuntimeWarning, stacklevel=3)


class _Task:
    """A job and what became of it."""

    __slots__ = ("done", "error", "is_cancelled", "job", "made", "thread")

    def __init__(self, job: Job) -> None:
        self.job = job
        self.made: MadeBatch | None = None
        self.error: LoadingError | None = None
        self.is_cancelled = False
        self.thread = 0  # number of the one that has it
        # Held until the task is done. A lock of its own costs 0.1 µs; threading.Event 2 µs.
        self.done = threading.Lock()
        self.done.acquire()

    def take(self) -> MadeBatch:
        """What was made; the task lets go of it."""
        made, self.made = self.made, None
        if made is None:
            raise RuntimeError(f"the batch of {self.job} is asked for before it was made")
        return made
