"""Batches made by threads of this process: for readers that wait, and for decoders that release the GIL."""

from __future__ import annotations

import threading
import time
import warnings
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, wait

from data_stack.exception import LoadingError, WorkerError
from data_stack.loader.jobs import BatchMaker, Job, MadeBatch
from data_stack.loader.workers.workers import PrefetchingWorkers, count_together
from data_stack.util.executor import Executor
from data_stack.util.forks import call_in_forks
from data_stack.util.processors import thread_is_one_of

# The consumer waits in slices: Ctrl-C reaches it between two of them even where a lock cannot be interrupted (Windows).
_SLICE_SECONDS = 0.1

_Task = tuple[Job, "Future[MadeBatch]"]


class ThreadWorkers(PrefetchingWorkers):
    """Makes whole batches in threads, which share the maker; several in one request where they are small."""

    kind = "threads"

    warns_after_seconds = 5.0
    """How long the consumer waits for a batch before it is warned."""

    def __init__(self, maker: BatchMaker, n_workers: int, *, prefetch: int, timeout_seconds: float | None) -> None:
        super().__init__(maker, n_workers, prefetch=prefetch, timeout_seconds=timeout_seconds)
        self._tasks: deque[_Task] = deque()  # not handed out yet
        self._n_together = 1
        self._renew_threads()
        call_in_forks(self._begin_in_fork)

    def _renew_threads(self) -> None:
        n_workers = self.n_workers  # the threads must not keep this object
        self._waiting = _WaitingTasks()
        self._threads = Executor("data_stack-load", lambda: n_workers, grace_seconds=0.5)

    def _begin_in_fork(self) -> None:
        self._tasks, self._waiting = deque(), _WaitingTasks()  # the parent's threads make the others

    def submit(self, job: Job) -> None:
        task: _Task = (job, Future())
        self._tasks.append(task)
        self._waiting.append(task)
        self._threads.submit(_make_some, self._maker, self._waiting, self._n_together, self.n_workers)

    def next(self) -> MadeBatch:
        try:
            made = self._wait_for(*self._tasks[0])
        except BaseException:
            self.cancel()
            raise
        self._tasks.popleft()
        self._observe_size(made.n_bytes)
        self._n_together = count_together(self._maker, made, self._n_together)
        self.capacity *= self._n_together
        return made

    def cancel(self) -> None:
        for _, future in self._tasks:
            future.cancel()
        self._tasks.clear()
        self._waiting.clear()

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
                self._renew_threads()  # the stuck ones are left behind
                raise WorkerError(
                    "a worker thread",
                    f"did not make the batch of {job} within {limit:g} s (timeout_seconds). A thread cannot be ended "
                    f"from outside: it is left behind until it is done. If it is only slow, give it more time",
                )
            if waited >= warns:
                warns = float("inf")
                warnings.warn(f"no batch for {waited:.0f} s: a worker thread is making {job}", RuntimeWarning, stacklevel=3)
        try:
            return future.result()
        finally:
            del future  # the traceback of an error refers to this frame, which must not lead back to the error


class _WaitingTasks(deque[_Task]):
    """Tasks that no thread has begun."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def clear(self) -> None:
        with self._lock:
            super().clear()

    def take(self, n_tasks: int) -> list[_Task]:
        """Remove the oldest task and those after it of the same epoch, ``n_tasks`` at most."""
        with self._lock:
            tasks = [self.popleft()] if self else []
            while self and len(tasks) < n_tasks and self[0][0].epoch == tasks[0][0].epoch:
                tasks.append(self.popleft())
        return [task for task in tasks if task[1].set_running_or_notify_cancel()]


def _make_some(maker: BatchMaker, waiting: _WaitingTasks, n_together: int, n_workers: int) -> None:
    """What a thread does: make the batches of the oldest tasks."""
    thread_is_one_of(n_workers)  # a source that decodes in threads of its own leaves processors to the other workers
    tasks = waiting.take(n_together)
    while tasks:
        batches = maker.make_several([job for job, _ in tasks])
        while tasks and _make_next(batches, *tasks.pop(0)):
            pass


def _make_next(batches: Iterator[MadeBatch], job: Job, future: Future[MadeBatch]) -> bool:
    """Make a batch; whether more can be made of the same request."""
    try:
        future.set_result(next(batches))
        return True
    except LoadingError as error:
        failure = error
    except BaseException as error:  # noqa: BLE001  # SystemExit and the like
        failure = LoadingError(f"the batch of {job} could not be made", error, epoch=job.epoch, step=job.step)
        failure.__cause__ = error
    failure.worker = threading.current_thread().name.replace("data_stack-load-", "worker thread ")
    future.set_exception(failure)
    try:
        return False
    finally:
        del failure, future  # the traceback of an error refers to this frame, which must not lead back to the error
