"""Threads that work through a list of jobs, and that Ctrl-C can interrupt at any time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import wait
from typing import Generic, TypeVar

from data_stack.util.executor import waiting

_Job = TypeVar("_Job")

#: How often :meth:`JobThreads.run` calls ``tick``.
_TICK_SECONDS = 0.1


def _do_nothing() -> None:
    """Stand in for a function that the caller does not give."""


class Stopped(Exception):
    """Ends a job whose result nobody waits for any more."""


class JobThreads(Generic[_Job]):
    """Threads that take jobs from a queue.

    They stop when the queue is empty, a job fails, or :meth:`run` is interrupted. The thread that
    calls :meth:`run` does no job itself. It waits for the others, so Ctrl-C reaches it at any time.

    Args:
        jobs: the jobs, in order.
        work: does a job. If it raises, the other threads stop after their current jobs, and
            :meth:`run` raises the exception.
        n_threads: limit of the threads.
    """

    #: The jobs that no thread has taken yet.
    _jobs: deque[_Job]
    _work: Callable[[_Job], None]
    _n_threads: int
    #: Set once no more jobs are to begin.
    _stop: threading.Event
    #: What the first job that failed has raised.
    _failure: BaseException | None

    def __init__(self, jobs: Iterable[_Job], work: Callable[[_Job], None], n_threads: int) -> None:
        self._jobs = deque(jobs)
        self._work = work
        self._n_threads = n_threads
        self._stop = threading.Event()
        self._failure = None

    def check(self) -> None:
        """End a long job early if its result is not wanted any more; ``work`` calls this regularly.

        Raises:
            Stopped: another job failed, or :meth:`run` was interrupted.
        """
        if self._stop.is_set():
            raise Stopped

    def run(
        self,
        tick: Callable[[], None] = _do_nothing,
        end: Callable[[], None] = _do_nothing,
        *,
        patience_seconds: float = 0.5,
    ) -> None:
        """Do all jobs.

        Args:
            tick: called ten times a second while threads work, for example to draw a bar.
            end: called once, when no more jobs begin. It makes those fail that wait for a server.
            patience_seconds: how long an interruption waits for the threads. Then threads that
                still wait for a server are left behind: as daemons, they do not keep the process
                alive.

        Raises:
            Exception: what ``work`` raised for a job.
        """
        n_threads = max(1, min(self._n_threads, len(self._jobs)))
        threads = {waiting.submit(self._work_until_stopped) for _ in range(n_threads)}
        try:
            while wait(threads, _TICK_SECONDS).not_done and not self._stop.is_set():
                tick()
        finally:
            self._stop.set()
            end()
            wait(threads, patience_seconds)
        if self._failure is not None:
            raise self._failure

    def _work_until_stopped(self) -> None:
        """Do jobs, as one of the threads."""
        try:
            while not self._stop.is_set():
                try:
                    job = self._jobs.popleft()
                except IndexError:
                    return
                self._work(job)
        except BaseException as error:  # noqa: BLE001  # run() raises it
            # After the stop, an exception is only a consequence of it.
            if not self._stop.is_set():
                self._failure = error
            self._stop.set()
