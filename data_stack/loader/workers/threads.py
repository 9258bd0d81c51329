"""Batches made by threads of this process: for readers that wait, and for decoders that release the GIL."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future, wait

from data_stack.exception import LoadingError, WorkerError
from data_stack.loader.jobs import BatchMaker, Job, MadeBatch
from data_stack.loader.workers.workers import PrefetchingWorkers
from data_stack.util.executor import Executor
from data_stack.util.forks import call_in_forks
from data_stack.util.processors import set_thread_share


class ThreadWorkers(PrefetchingWorkers):
    """Makes whole batches in threads, which share the maker."""

    kind = "threads"

    advice = "Python cannot end a thread, so it runs on until it is done. If it is only slow, allow more time"

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
            job = self._tasks[0][0]
            self._wait(job, lambda seconds: bool(wait([self._tasks[0][1]], seconds).done), lambda: "a worker thread")
            # no variable has the future: the traceback of an error refers to this frame, which must not lead back to the error
            made = self._tasks.popleft()[1].result()
        except BaseException as error:
            self.cancel()
            if isinstance(error, WorkerError):
                self._begin()  # leaves the stuck threads behind
            raise
        self._observe_size(made.n_bytes)
        return made

    def cancel(self) -> None:
        for _, future in self._tasks:
            future.cancel()
        self._tasks.clear()

    def close(self) -> None:
        self.cancel()
        self._threads.finish()


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
