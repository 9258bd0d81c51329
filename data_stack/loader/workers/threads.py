"""Batches made by threads of this process: for readers that wait, and for decoders that leave Python's lock."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
import traceback
import warnings
import weakref
from collections import deque
from queue import Empty, SimpleQueue

from data_stack.exception import LoadingError, WorkerError
from data_stack.loader.jobs import BatchMaker, Job, MadeBatch
from data_stack.loader.workers.coalescing import BatchCoalescing
from data_stack.loader.workers.prefetch_limit import PrefetchLimit
from data_stack.loader.workers.workers import Workers
from data_stack.util.processors import thread_is_one_of

__all__ = ["ThreadWorkers"]

# Slices in which a consumer waits: Ctrl-C reaches it between two of them even where a lock cannot be interrupted (Windows).
_SLICE_SECONDS = 0.1

# How long the end of the workers waits for the batches that are being made.
_GRACE_SECONDS = 1.0

_MOST_FRAMES = 12


class ThreadWorkers(Workers):
    """Makes whole batches in threads, each of them ``prefetch`` ahead.

    The threads are daemons of our own: those of ``concurrent.futures`` are joined when Python ends, so that one stuck transform
    would keep the program from ending.

    Args:
        maker: makes the batches; the threads share it.
        n_workers: threads, at least 1; each is started when there is something to do for it.
        prefetch: batches that each of them makes ahead, at least 1; of small ones, requests for several; of large ones there may
            be fewer.
        timeout_seconds: how long to wait for a batch; None: as long as it takes.
    """

    kind = "threads"

    warns_after_seconds = 5.0
    """How long the consumer waits for a batch before it is told what the thread is at."""

    def __init__(self, maker: BatchMaker, n_workers: int, *, prefetch: int, timeout_seconds: float | None) -> None:
        self._maker, self._timeout_seconds = maker, timeout_seconds
        self._coalescing = BatchCoalescing(maker)
        self._limit = PrefetchLimit(n_workers, prefetch)
        self._tasks: deque[_Task] = deque()
        self._pool: _Pool | None = None
        self.n_workers = n_workers

    @property
    def capacity(self) -> int:  # type: ignore[override]  # read-only here
        return self._limit.n_batches * self._coalescing.n_jobs

    def start(self) -> None:
        self._running_pool().add_threads(self.n_workers)

    def submit(self, job: Job) -> None:
        task = _Task(job)
        self._running_pool().put(task)
        self._tasks.append(task)

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
        made = self._tasks.popleft().taken()
        self._coalescing.observe(made)
        self._limit.observe(made.n_bytes)
        return made

    @property
    def n_ready(self) -> int:
        return sum(task.made is not None for task in self._tasks)

    def cancel(self) -> None:
        for task in self._tasks:
            task.is_cancelled = True
        self._tasks.clear()

    def close(self) -> None:
        self.cancel()
        pool = self._pool
        if pool is not None:
            self._leave(pool)
            pool.join(_GRACE_SECONDS)

    def _running_pool(self) -> _Pool:
        if self._pool is None:
            self._pool = _Pool(self._maker, self._coalescing, self.n_workers)
            # Workers that nobody closed end with their loader, which no thread refers to. Nothing is waited for then: it may be
            # one of the threads that lets go.
            self._finalizer = weakref.finalize(self, self._pool.stop)
            self._finalizer.atexit = False
        return self._pool

    def _wait_for(self, task: _Task) -> None:
        """Return when a task is done.

        Raises:
            WorkerError: it took longer than ``timeout_seconds``, or nobody is there to do it.
        """
        limit = self._timeout_seconds
        began = time.monotonic()
        has_warned = False
        while not task.done.acquire(timeout=_SLICE_SECONDS if limit is None else min(_SLICE_SECONDS, limit)):
            waited = time.monotonic() - began
            pool = self._running_pool()
            if limit is not None and waited >= limit:
                name, place = pool.describe(task)
                self._leave(pool)
                raise WorkerError(
                    name,
                    f"did not make the batch of {task.job} within {limit:g} s (timeout_seconds). A thread cannot be ended "
                    f"from outside: it is left behind until it is done. If it is just slow, give it more time. It is at\n{place}",
                )
            if not pool.has_living_threads:
                self._leave(pool)
                raise WorkerError(
                    "every worker thread", f"ended before the batch of {task.job} was made; iterate again for new ones"
                )
            if waited >= self.warns_after_seconds and not has_warned:
                has_warned = True
                name, place = pool.describe(task)
                warnings.warn(
                    f"no batch for {waited:.0f} s: {name} is at the batch of {task.job}:\n{place}", RuntimeWarning, stacklevel=3
                )

    def _leave(self, pool: _Pool) -> None:
        """Let go of the threads without waiting for them."""
        self._pool = None
        self._finalizer.detach()
        pool.stop()


class _Task:
    """A job and what became of it."""

    __slots__ = ("done", "error", "is_cancelled", "job", "made", "worker")

    def __init__(self, job: Job) -> None:
        self.job = job
        self.made: MadeBatch | None = None
        self.error: LoadingError | None = None
        self.is_cancelled = False
        self.worker: int | None = None  # number of the thread that has it
        # Held until the task is done. A lock of its own costs 0.1 µs; threading.Event 2 µs.
        self.done = threading.Lock()
        self.done.acquire()

    def taken(self) -> MadeBatch:
        """What was made; the task lets go of it."""
        made, self.made = self.made, None
        if made is None:
            raise RuntimeError(f"the batch of {self.job} is asked for before it was made")
        return made


class _Pool:
    """Threads that make the batches of the tasks in one queue. They know the pool, but not the workers whose pool it is."""

    def __init__(self, maker: BatchMaker, coalescing: BatchCoalescing, n_workers: int) -> None:
        self._maker, self._coalescing, self._n_workers = maker, coalescing, n_workers
        self.tasks: SimpleQueue[_Task | None] = SimpleQueue()  # None: there will be no more
        self._lock = threading.Lock()  # of the threads
        self._threads: list[threading.Thread] = []
        self._at: dict[int, _Task] = {}  # which task a thread has
        self._is_over = False
        self._pid = os.getpid()
        _pools.add(self)

    @property
    def has_living_threads(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def put(self, task: _Task) -> None:
        """Have a task done, by a thread that is started for it if there are fewer than there may be."""
        with self._lock:
            self.tasks.put(task)
            if len(self._threads) < self._n_workers:
                self._add_thread()

    def add_threads(self, n_threads: int) -> None:
        """Start threads until there are so many."""
        with self._lock:
            while len(self._threads) < n_threads:
                self._add_thread()

    def _add_thread(self) -> None:
        number = len(self._threads) + 1
        thread = threading.Thread(target=self._serve, args=(number,), name=f"data_stack loader, {_name(number)}", daemon=True)
        thread.start()
        self._threads.append(thread)

    def stop(self) -> None:
        """Let each thread end when it has made its batch; waits for none."""
        self._is_over = True
        if self._pid == os.getpid():  # a forked process has none of the threads
            self.tasks.put(None)

    def join(self, timeout_seconds: float) -> None:
        """Wait until all threads have ended, or for so long."""
        end = time.monotonic() + timeout_seconds
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, end - time.monotonic()))

    def describe(self, task: _Task) -> tuple[str, str]:
        """Which thread is at a task, and where in the code; if none is, because all are at cancelled ones, one of these."""
        number = task.worker or next(iter(list(self._at)), 1)
        return _name(number), _place_of(self._threads[number - 1])

    def _serve(self, number: int) -> None:
        """What a thread does: make batches until there will be no more."""
        thread_is_one_of(self._n_workers)  # a source that decodes in threads of its own leaves the processors to the others
        following: _Task | None = None
        while not self._is_over:
            # nothing of the last batch is referred to while the thread waits here
            task, following = (self.tasks.get(), None) if following is None else (following, None)
            if task is None:
                break
            if task.is_cancelled:
                continue
            self._at[number] = task
            group = [task]
            task.worker = number
            while len(group) < self._coalescing.n_jobs:
                try:
                    following = self.tasks.get_nowait()
                except Empty:
                    break
                if following is None or following.is_cancelled or following.job.epoch != task.job.epoch:
                    break
                following.worker = number
                group.append(following)
                following = None
            del task
            self._make(group, number)
            del group, self._at[number]
        self.tasks.put(None)  # for the others

    def _make(self, group: list[_Task], number: int) -> None:
        """Make the batches of tasks, up to the first that fails."""
        made = self._maker.make_several([task.job for task in group])
        for task in group:
            if task.is_cancelled or self._is_over:
                return
            try:
                task.made = next(made)
            except LoadingError as error:
                error.worker = _name(number)
                task.error = error
            except BaseException as error:  # noqa: BLE001  # SystemExit and its like, which would end the thread without a word
                task.error = LoadingError(
                    f"the batch of {task.job} could not be made",
                    error,
                    epoch=task.job.epoch,
                    step=task.job.step,
                    worker=_name(number),
                )
                task.error.__cause__ = error
            task.done.release()
            if task.error is not None:
                del task, group, made  # the traceback refers to this frame, and shall not lead back to the error
                return


# When Python ends, threads that are in the midst of C++ code may crash it, so they are given a moment to finish their batch.
_pools: weakref.WeakSet[_Pool] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    pools = list(_pools)
    for pool in pools:
        pool.stop()
    end = time.monotonic() + _GRACE_SECONDS
    for pool in pools:
        pool.join(max(0.0, end - time.monotonic()))


def _name(number: int) -> str:
    return f"worker thread {number}"


def _place_of(thread: threading.Thread) -> str:
    """Where a thread is: its innermost calls, those of this module left out."""
    frame = sys._current_frames().get(thread.ident or 0)
    if frame is None:
        return "  (it has ended)"
    stack = traceback.extract_stack(frame)
    with contextlib.suppress(StopIteration):
        own = next(place for place, call in enumerate(stack) if call.name == "_make" and call.filename == __file__)
        stack = traceback.StackSummary.from_list(stack[own + 1 :] or stack)
    return "".join(traceback.StackSummary.from_list(stack[-_MOST_FRAMES:]).format()).rstrip()
