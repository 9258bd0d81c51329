"""Work in several threads that whoever waits for it can interrupt at any time."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import wait
from typing import Generic, TypeVar

from data_stack.util.executor import waiting

__all__ = ["Stopped", "Workers"]

_Job = TypeVar("_Job")

#: Whoever interrupts gets the prompt back within this time; a thread that waits for a server ends when that answers.
_PATIENCE_SECONDS = 0.5
_TICK_SECONDS = 0.1


class Stopped(Exception):
    """Ends a thread's work on a job that nobody waits for any more."""


class Workers(Generic[_Job]):
    """Threads that take jobs from a queue until it is empty, one of them fails, or somebody stops them.

    Args:
        jobs: what to work on, in this order.
        work: does a job; what it raises stops the others and reaches the caller of :meth:`run`.
        n_threads: how many at most.
    """

    def __init__(self, jobs: Iterable[_Job], work: Callable[[_Job], None], n_threads: int) -> None:
        self._jobs: queue.SimpleQueue[_Job] = queue.SimpleQueue()
        for job in jobs:
            self._jobs.put(job)
        self._work, self._n_threads = work, n_threads
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._failure: BaseException | None = None

    def check(self) -> None:
        """For ``work`` to call now and then.

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
        patience_seconds: float = _PATIENCE_SECONDS,
    ) -> None:
        """Do all jobs; ``tick`` is called ten times a second, ``end`` once, when nothing more is to begin.

        Whoever interrupts waits so long for threads to end; those that wait for a server are left behind.
        """
        # Their threads are daemons: one that waits for a server does not keep the process of a user who interrupted it.
        running = {waiting.submit(self._run) for _ in range(max(1, min(self._n_threads, self._jobs.qsize())))}
        try:
            while wait(running, _TICK_SECONDS).not_done and not self._stop.is_set():
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
                    job = self._jobs.get_nowait()
                except queue.Empty:
                    return
                self._work(job)
        except BaseException as error:  # noqa: BLE001  # handed to the thread that waits
            with self._lock:
                if not self._stop.is_set():  # else it tells in its own words that it was stopped
                    self._failure = error
                self._stop.set()
