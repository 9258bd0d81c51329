"""Makes batches ahead of the consumer in threads."""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass

from data_stack.exception import LoadingError, WorkerError
from data_stack.loader.batch_maker import BatchMaker, MadeBatch
from data_stack.loader.job import Job
from data_stack.loader.workers.base import WorkerOptions
from data_stack.loader.workers.prefetching import PrefetchingWorkers
from data_stack.processes.program_settings import ThreadSettings
from data_stack.util.executor import Executor, set_thread_share
from data_stack.util.forks import call_in_forks
from data_stack.values.array_pool import ArrayPool
from data_stack.values.large_arrays import arrays_made_by

_THREAD_NAME_PREFIX = "data_stack-load"

#: How long closing waits for batches that are being made: a transform may wait for something, and
#: never end. The exit of Python waits longer, as it may crash in the C++ code of a decoder.
_MAX_CLOSING_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What a thread made of the jobs of a request.

    Attributes:
        batches: the batches, up to the first one that could not be made.
        failure: why that batch could not be made; None if all were made.
    """

    batches: deque[MadeBatch]
    failure: LoadingError | None


@dataclass(frozen=True, slots=True)
class _Request:
    """Jobs of one epoch that one thread does.

    Attributes:
        first_job: the first job, for messages.
        outcome: the batches, once the thread has made them.
    """

    first_job: Job
    outcome: Future[_Outcome]


class ThreadWorkers(PrefetchingWorkers):
    """Makes whole batches in threads, which share the maker.

    A thread makes several small batches in one request.
    """

    kind = "threads"
    advice = (
        "Python cannot end a thread, so it runs on until it is done. "
        "If it is only slow, allow more time"
    )

    #: The threads. After a timeout another executor takes over, as stuck threads cannot be ended.
    _threads: Executor
    #: The memory in which batches arise.
    _arrays: ArrayPool
    #: The number of batches in one request.
    _n_batches_of_request: int
    #: Jobs for the next request.
    _jobs: list[Job]
    #: Requests that have not been received, the oldest first.
    _requests: deque[_Request]
    #: Batches that have been received, but not delivered.
    _batches: deque[MadeBatch]
    #: The error to raise after these batches.
    _failure: LoadingError | None

    def __init__(self, maker: BatchMaker, options: WorkerOptions) -> None:
        super().__init__(maker, options)
        self._arrays = ArrayPool()
        self._n_batches_of_request = 1
        self._begin()
        call_in_forks(self._begin)

    def submit(self, job: Job) -> None:
        is_of_other_epoch = bool(self._jobs) and self._jobs[0].epoch != job.epoch
        if is_of_other_epoch:
            self._send_request()
        self._jobs.append(job)
        if len(self._jobs) >= self._n_batches_of_request:
            self._send_request()

    def next(self) -> MadeBatch:
        try:
            while not self._batches:
                if self._failure is not None:
                    raise self._failure
                self._receive()
        except BaseException as error:
            self.cancel()
            if isinstance(error, WorkerError):
                self._begin()  # leaves the stuck threads behind
            raise
        return self._batches.popleft()

    def cancel(self) -> None:
        for request in self._requests:
            request.outcome.cancel()
        self._drop_jobs()

    def close(self) -> None:
        self.cancel()
        self._threads.finish(_MAX_CLOSING_SECONDS)
        self._arrays.clear()

    def _begin(self) -> None:
        """Begin without jobs, and with new threads.

        In a fork, the threads of the parent make the batches of earlier jobs.
        """
        self._drop_jobs()
        n_workers = self.n_workers  # the executor must not keep this object alive
        self._threads = Executor(_THREAD_NAME_PREFIX, lambda: n_workers, grace_seconds=5.0)

    def _drop_jobs(self) -> None:
        self._jobs = []
        self._requests = deque()
        self._batches = deque()
        self._failure = None

    def _send_request(self) -> None:
        """Let a thread do the jobs that have been collected, with the settings of this thread."""
        outcome = self._threads.submit(
            ThreadSettings().run, _do_jobs, self._maker, self._jobs, self.n_workers, self._arrays
        )
        self._requests.append(_Request(self._jobs[0], outcome))
        self._jobs = []

    def _receive(self) -> None:
        """Wait for the batches of the oldest request."""
        # At the end of an iteration, jobs may be left that do not fill a request.
        if not self._requests:
            self._send_request()
        request = self._requests[0]
        lock = _lock_until_done(request.outcome)
        self._wait(
            request.first_job,
            is_done=lambda seconds: lock.acquire(timeout=seconds),
            describe_worker=lambda: "a worker thread",
        )
        self._requests.popleft()

        outcome = request.outcome.result()
        self._batches = outcome.batches
        self._failure = outcome.failure
        if self._batches:
            first_batch = self._batches[0]
            self._n_batches_of_request = self._maker.n_batches_of_request(first_batch)
            # The size of a batch decides how many requests are in flight, each of several jobs.
            self.observe_size(first_batch.n_bytes)
            self.capacity *= self._n_batches_of_request


def _lock_until_done(future: Future[_Outcome]) -> threading.Lock:
    """Return a lock that is held until a future is done.

    A lock is waited for in C. ``Future.result`` waits for a Condition in Python code, and Ctrl-C
    in the middle of this code may break the Condition.
    """
    lock = threading.Lock()
    lock.acquire()
    future.add_done_callback(lambda _: lock.release())
    return lock


def _do_jobs(maker: BatchMaker, jobs: list[Job], n_workers: int, arrays: ArrayPool) -> _Outcome:
    """Make the batches of jobs, up to the first one that cannot be made. A thread runs this."""
    # A source that decodes in threads of its own leaves processors to the other workers.
    set_thread_share(n_workers)

    batches = deque[MadeBatch]()
    try:
        with arrays_made_by(arrays.empty_array):
            batches.extend(maker.make_several(jobs))
        return _Outcome(batches, None)
    except LoadingError as error:
        failure = error
    except BaseException as error:  # noqa: BLE001  # SystemExit and the like
        job = jobs[len(batches)]
        problem = f"the batch of {job} could not be made"
        failure = LoadingError(problem, error, epoch=job.epoch, step=job.step)
        failure.__cause__ = error

    thread_name = threading.current_thread().name
    failure.worker = thread_name.replace(f"{_THREAD_NAME_PREFIX}-", "worker thread ")
    try:
        return _Outcome(batches, failure)
    finally:
        # The traceback of the error refers to this frame, which must not refer to the error.
        del failure
