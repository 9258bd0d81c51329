"""Work in several threads that Ctrl-C can interrupt at any time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import wait
from typing import Generic, TypeVar

from data_stack.util.executor import waiting

_Job = TypeVar("_Job")


class Stopped(Exception):
    """Ends a job that is not wanted any more."""


class Workers(Generic[_Job]):
    """Threads that take jobs from a queue until it is empty, a job fails, or :meth:`run` is interrupted.

    Args:
        jobs: jobs, in order.
        work: does a job; its exception stops the others and is raised by :meth:`run`.
        n_threads: limit of the threads.
    """

    def __init__(self, jobs: Iterable[_Job], work: Callable[[_Job], None], n_threads: int) -> None:
        self._jobs = deque(jobs)
        self._work, self._n_threads = work, n_threads
        self._stop = threading.Event()
        self._failure: BaseException | None = None

    def check(self) -> None:
        """Called by ``work`` now and then.

        Raises:
            Stopped: the work is not wanted any more.
        """
        if self._stop.is_set():
            raise Stopped

    def run(
        self,
        tick: Callable[[], None] = lambda: None,
        end: Callable[[], None] = lambda: None,
        *,
        # How long an interruption waits for threads; those that wait for a server end when it answers.
        patience_seconds: float = 0.5,
    ) -> None:
        """Do all jobs; call ``tick`` ten times a second, and ``end`` once when no more jobs start.

        An interruption waits ``patience_seconds`` for the threads; those that wait for a server are left behind.
        """
        # Daemon threads: one that waits for a server does not keep an interrupted process alive.
        running = {waiting.submit(self._run) for _ in range(max(1, min(self._n_threads, len(self._jobs))))}
        try:
            while wait(running, 0.1).not_done and not self._stop.is_set():
                tick()
        finally:
            self._stop.set()
            end()
            wait(running, patience_seconds)
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                try:
                    job = self._jobs.popleft()
                except IndexError:
                    return
                self._work(job)
        except BaseException as error:  # noqa: BLE001  # run() raises it
            if not self._stop.is_set():  # else it is a consequence of stopping
                self._failure = error
            self._stop.set()
