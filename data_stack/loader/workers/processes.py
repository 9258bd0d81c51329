"""Batches made in other processes: fresh interpreters whose batches come in shared memory."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import time
import warnings
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any

from data_stack.exception import LoadingError, WorkerError
from data_stack.loader.jobs import BatchMaker, Job, MadeBatch
from data_stack.loader.workers.parcels import Spans, contents_of
from data_stack.loader.workers.prefetch_limit import PrefetchLimit
from data_stack.loader.workers.running_worker import LOOK_SECONDS, RunningWorker
from data_stack.loader.workers.segments import Leases
from data_stack.loader.workers.workers import Workers

__all__ = ["ProcessWorkers"]

_WARN_SECONDS = 5.0
_GRACE_SECONDS = 0.25  # for workers to end by themselves
_KILLED_SECONDS = 2.0  # for one that was killed; more only if it waits for a disk
_MOST_LEASES = 64  # segments that a consumer may keep; each takes a descriptor


class ProcessWorkers(Workers):
    """Worker processes, each of which makes whole batches.

    Each is a fresh interpreter with this one's ``sys.path``, current folder and environment. It does not run the user's script
    again, so that needs no ``if __name__ == "__main__"``, and a notebook will do: the functions and classes that a script or a
    cell defines are sent by value. Arrays that the iterator holds are in memory once for all workers. Nothing has a name, in
    ``/dev/shm`` or elsewhere; whatever happens to whichever process, the system cleans up.

    While the consumer waits for a batch, the worker that makes it is watched. That it died or was stopped is an error within 5 s,
    and all workers are ended; that it takes longer than 5 s is a warning with its stack. (What was stopped can be told from what
    is slow on Linux only; ``timeout_seconds`` ends both.)

    A fork of this process shares the memory of the batches that it finds: what one of them writes there the other one sees.

    Threads that decode for data_stack share the processors. Numerical libraries start a thread for each in each worker; set
    ``OMP_NUM_THREADS=1`` if that is too many.

    Args:
        maker: makes the batches.
        n_workers: processes, at least 1.
        prefetch: jobs that each of them has at most; of large batches there may be fewer.
        timeout_seconds: how long to wait for a batch; None: as long as its worker lives and works.
    """

    kind = "processes"

    def __init__(self, maker: BatchMaker, n_workers: int, *, prefetch: int, timeout_seconds: float | None) -> None:
        self._maker = maker
        self.n_workers, self._prefetch = n_workers, prefetch
        self._limit = PrefetchLimit(n_workers, prefetch)
        self._timeout_seconds = timeout_seconds
        self._pool: WorkerPool | None = None
        self._end_pool: weakref.finalize[..., ProcessWorkers] | None = None
        self._is_interrupted = False  # while messages are exchanged: what breaks that off may have lost one
        self._generation = 0
        self._forget_jobs()

    # ----------------------------------------------------------------------------------------------------------- the contract

    @property
    def capacity(self) -> int:  # type: ignore[override]  # read-only here
        return self._limit.n_batches

    def start(self) -> None:
        """Start the processes, if they do not run.

        Raises:
            ConfigError: something cannot be sent to them, or there is no interpreter to run.
            OSError: the system has no room for them.
        """
        if self._pool is not None:
            return
        pool = self._pool = WorkerPool(os.getpid())
        self._end_pool = weakref.finalize(self, pool.end)
        try:
            # They are started first: while they import numpy, the iterator is packed.
            with _interrupts_held_back():
                pool.start(self.n_workers, self._prefetch)
            from data_stack.loader.workers.worker_package import (
                packed_for_workers,
            )  # needs cloudpickle; only who starts workers pays

            pool.send_package(*packed_for_workers(self._maker))
        except BaseException:
            self.close()
            raise

    @property
    def is_ready(self) -> bool:
        """Whether all workers have what they need to make batches; also if one has failed, which :meth:`next` tells."""
        if self._pool is None:
            return False
        self._is_interrupted = True
        self._exchange(0)
        self._is_interrupted = False
        return not self._pool.is_complete or all(worker.is_ready for worker in self._workers)

    def submit(self, job: Job) -> None:
        self.start()
        self._is_interrupted = True
        self._order.append(job.number)
        self._waiting_jobs.append(job)
        self._deal()
        self._is_interrupted = False

    def next(self) -> MadeBatch:
        self._is_interrupted = True
        number = self._order[0]
        try:
            self._wait_for(number)
        except WorkerError:
            self.close()
            raise
        self._order.popleft()
        worker, job, message = self._done.pop(number)
        if message[0] == "error":
            error, cause = _error_of(worker, message)
            self._is_interrupted = False
            self.cancel()
            raise error from cause
        try:
            made = _batch_of(worker, message)
        except Exception as error:  # whatever an object raises instead of coming to life
            self._is_interrupted = False
            self.cancel()
            problem = f"what {worker.name} made cannot be put together here"
            raise LoadingError(problem, error, epoch=job.epoch, step=job.step) from error
        self._is_interrupted = False
        self._limit.observe(made.n_bytes)
        return made

    @property
    def n_ready(self) -> int:
        if self._pool is not None:
            self._is_interrupted = True
            self._exchange(0)
            self._is_interrupted = False
        return len(self._done)

    def cancel(self) -> None:
        if self._pool is None or self._is_interrupted or not self._pool.is_complete:
            self.close()
            return
        for worker, _, message in self._done.values():
            _release(worker, message)
        for worker in self._pool.workers:
            worker.jobs.clear()
        self._forget_jobs()
        self._pool.want(self._generation)

    def close(self) -> None:
        self._pool = None
        self._is_interrupted = False
        self._forget_jobs()
        if self._end_pool is not None:
            self._end_pool()
            self._end_pool = None

    # ---------------------------------------------------------------------------------------------------------------- private

    def _forget_jobs(self) -> None:
        self._generation += 1
        self._order: deque[int] = deque()  # what has not been handed out
        self._waiting_jobs: deque[Job] = deque()  # what no worker has
        self._done: dict[int, tuple[RunningWorker, Job, tuple[Any, ...]]] = {}

    @property
    def _workers(self) -> list[RunningWorker]:
        return [] if self._pool is None else self._pool.workers

    def _deal(self) -> None:
        """Give jobs to the workers that have the fewest."""
        while self._waiting_jobs:
            worker = min(self._workers, key=lambda each: len(each.jobs))
            if len(worker.jobs) >= self._prefetch:
                return
            job = self._waiting_jobs.popleft()
            worker.jobs[job.number] = job
            facts = (job.number, job.epoch, job.step, job.position, job.indices, job.seed)
            worker.channel.send(("job", *worker.segments.freed(), self._generation, *facts))

    def _exchange(self, seconds: float) -> None:
        """Send what is to be sent and take what has come, waiting so long for something to come."""
        pool = self._pool
        if pool is None:
            return
        for worker in pool.wait(seconds):
            worker.channel.flush()
            for message in worker.channel.receive():
                self._take(worker, message)
        self._deal()

    def _take(self, worker: RunningWorker, message: tuple[Any, ...]) -> None:
        kind = message[0]
        if kind == "ready":
            worker.is_ready = True
        elif kind == "unfit":
            worker.fail(*message[1:])
        elif kind == "at":
            if message[1] == self._generation:
                worker.be_at(*message[2:])
        else:
            generation, number = message[1:3]
            if kind == "batch" and not worker.take_segments(*message[-3:]):
                return
            if generation != self._generation:
                _release(worker, message)
                return
            self._done[number] = worker, worker.jobs.pop(number), message

    def _wait_for(self, number: int) -> None:
        """Wait until a job is done.

        Raises:
            WorkerError: a worker died or is stuck, or the time is over.
        """
        if number in self._done:
            return
        self._exchange(0)
        clock = time.monotonic
        began = looked = clock()
        ends = float("inf") if self._timeout_seconds is None else self._timeout_seconds
        warns = _WARN_SECONDS
        watched: RunningWorker | None = None
        while number not in self._done:
            for worker in self._workers:
                if worker.failure is not None:
                    raise worker.failure
                if worker.channel.is_ended:
                    raise worker.death()
            maker = next((worker for worker in self._workers if number in worker.jobs), None)
            if maker is not None and maker is not watched:
                watched = maker
                watched.begin_watch()
            waited = clock() - began
            if watched is not None:
                if waited >= ends:
                    raise watched.too_late(ends)
                if waited >= warns:
                    warns = float("inf")
                    warnings.warn(watched.delay(waited), RuntimeWarning, stacklevel=2)
            self._exchange(max(0.0, min(LOOK_SECONDS - (clock() - looked), min(warns, ends) - waited)))
            if clock() - looked >= LOOK_SECONDS:
                looked = clock()
                for worker in self._workers:
                    worker.look(is_awaited=worker is watched)


class WorkerPool:
    """The processes of workers, and what they have in common.

    It refers to nothing else, so that it can be ended for an owner who is gone.

    Args:
        pid: of the process that starts it; in a fork of it, nothing is ended.
    """

    def __init__(self, pid: int) -> None:
        self.workers: list[RunningWorker] = []
        self._pid = pid
        self._poll = select.poll()
        self._by_descriptor: dict[int, RunningWorker] = {}
        _POOLS.add(self)

    @property
    def is_complete(self) -> bool:
        """Whether no worker has failed or ended, as far as is known."""
        return all(worker.failure is None and not worker.channel.is_ended for worker in self.workers)

    def start(self, n_workers: int, prefetch: int) -> None:
        """Start the processes; they are still without what they need to make batches."""
        leases = Leases(min(_MOST_LEASES, max(1, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)))
        for number in range(n_workers):
            worker = RunningWorker(number, n_workers=n_workers, n_kept=prefetch + 2, leases=leases)
            self.workers.append(worker)
            self._by_descriptor[worker.channel.fileno()] = worker
            self._poll.register(worker.channel.fileno(), select.POLLIN)

    def send_package(self, descriptor: int, spans: Spans, nameless: list[tuple[str, str]]) -> None:
        """Send what workers need to make batches; ``descriptor`` is closed."""
        try:
            for worker in self.workers:
                worker.channel.send(("package", spans, nameless), (os.dup(descriptor),))
        finally:
            os.close(descriptor)

    def want(self, generation: int) -> None:
        """Let no worker begin with a job of an earlier generation."""
        for worker in self.workers:
            worker.channel.send(("want", generation))

    def wait(self, seconds: float) -> list[RunningWorker]:
        """Wait until a worker has sent something, has ended, or takes what it could not take before; gives these."""
        for worker in self.workers:
            if worker.is_flooded != worker.channel.has_outgoing:
                worker.is_flooded = worker.channel.has_outgoing
                self._poll.modify(worker.channel.fileno(), select.POLLIN | (select.POLLOUT if worker.is_flooded else 0))
        ready = self._poll.poll(seconds * 1000)
        return [
            self._by_descriptor[descriptor] for descriptor, _ in ready if not self._by_descriptor[descriptor].channel.is_ended
        ]

    def end(self) -> None:
        """End all processes: politely, and by force what has not ended shortly after. Calling it again does nothing."""
        if self._pid != os.getpid():
            return
        try:
            for worker in self.workers:
                worker.end_politely()
            deadline = time.monotonic() + _GRACE_SECONDS
            for worker in self.workers:
                worker.wait(deadline - time.monotonic())
        finally:
            for worker in self.workers:
                worker.kill()
            while self.workers:
                self.workers[-1].wait(_KILLED_SECONDS)
                self.workers.pop().segments.close()
            _POOLS.discard(self)

    def fork_in_parent(self) -> None:
        """This process has forked."""
        for worker in self.workers:
            worker.segments.fork()

    def fork_in_child(self) -> None:
        """This process is the fork, to which the workers do not belong."""
        for worker in self.workers:
            worker.forget()
        self.workers.clear()


_POOLS: weakref.WeakSet[WorkerPool] = weakref.WeakSet()


def _fork_in_parent() -> None:
    for pool in list(_POOLS):
        pool.fork_in_parent()


def _fork_in_child() -> None:
    for pool in list(_POOLS):
        pool.fork_in_child()


os.register_at_fork(after_in_parent=_fork_in_parent, after_in_child=_fork_in_child)


@contextlib.contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Ctrl-C waits: it would reach processes that are just being started before they can know that it is not for them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _batch_of(worker: RunningWorker, message: tuple[Any, ...]) -> MadeBatch:
    """The batch that a worker has made."""
    _, _, _, figures, pickled, buffers, spans, segment, _, _ = message
    if segment is not None:
        buffers = worker.segments.lend(segment, spans)
    if pickled is None:
        pickled, *buffers = buffers
    return MadeBatch(contents_of(pickled, buffers), *figures)


def _release(worker: RunningWorker, message: tuple[Any, ...]) -> None:
    """Nobody wants what a worker has made."""
    if message[0] == "batch" and message[-3] is not None:
        worker.segments.release(message[-3])


def _error_of(worker: RunningWorker, message: tuple[Any, ...]) -> tuple[LoadingError, BaseException | None]:
    """The error of a worker, and what was raised there, if that could be sent."""
    _, _, _, facts, traceback_text, pickled = message
    error = LoadingError(**facts, worker=worker.name, traceback_text=traceback_text)
    if pickled is None:
        return error, None
    try:
        cause: BaseException | None = contents_of(*pickled)
    except Exception:  # noqa: BLE001  # whatever an exception raises instead of coming to life; its traceback is there as text
        cause = None
    return error, cause
