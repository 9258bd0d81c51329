"""Thread pools, and the processors that threads share."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from data_stack.util.forks import call_in_forks

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_Task = tuple["Future[Any]", Callable[..., Any], tuple[Any, ...]]

_n_processes = 1
_of_thread = threading.local()


def n_processors() -> int:
    """The number of processors that this process may run on, at least 1."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def n_threads() -> int:
    """The number of threads that should compute in this process: its share of the processors.

    A process of ``multiprocessing``, such as a worker of torch's loader, has one.
    """
    multiprocessing = sys.modules.get(
        "multiprocessing.process"
    )  # which its processes have imported
    if multiprocessing is not None and multiprocessing.parent_process() is not None:
        return 1
    return max(1, n_processors() // _n_processes)


def set_process_share(n_processes: int) -> None:
    """Set the number of worker processes that share the processors, including this one."""
    global _n_processes
    _n_processes = n_processes


def n_threads_here() -> int:
    """The number of threads that should compute for this one, including itself: its share of :func:`n_threads`."""
    return max(1, n_threads() // getattr(_of_thread, "n_threads", 1))


def set_thread_share(n_threads: int) -> None:
    """Set the number of threads that share the processors of this process, including this one."""
    _of_thread.n_threads = n_threads


#: An idle thread ends after this time. New threads are expensive: allocators reserve memory for each.
_IDLE_SECONDS = 1.0


class Executor:
    """A pool of daemon threads, which start on demand and end when they are idle for a second.

    A forked process begins without threads. At exit, Python drops queued tasks and waits for running ones, for a limited time.

    Args:
        name: prefix of the names of the threads.
        most_threads: maximum number of threads; None for one per task. A task of a bounded executor must not wait for another
            of its tasks that may not have begun.
        grace_seconds: how long the exit of Python waits. Otherwise threads in C++ code may crash it.
    """

    def __init__(
        self, name: str, most_threads: Callable[[], int] | None, *, grace_seconds: float
    ) -> None:
        self._name, self._most_threads, self._grace_seconds = name, most_threads, grace_seconds
        self._begin()
        call_in_forks(self._begin)
        _executors.add(self)

    def _begin(self) -> None:
        self._has_more = threading.Condition(threading.Lock())
        self._tasks: deque[_Task] = deque()
        self._threads: set[threading.Thread] = set()
        self._n_idle = self._n_started = 0

    def submit(self, function: Callable[..., _Result], *arguments: Any) -> Future[_Result]:
        """Call a function in a thread; ``cancel()`` of the future returns False once a thread has begun it.

        Raises:
            RuntimeError: no thread can be started, as when Python is exiting.
        """
        future: Future[_Result] = Future()
        task: _Task = (future, function, arguments)
        with self._has_more:
            self._tasks.append(task)
            is_full = self._most_threads is not None and len(self._threads) >= self._most_threads()
            if is_full or self._n_idle >= len(self._tasks):
                self._has_more.notify()
                return future
            self._n_started += 1
            thread = threading.Thread(
                target=self._serve, name=f"{self._name}-{self._n_started}", daemon=True
            )
            self._threads.add(thread)
            try:
                thread.start()
            except BaseException:
                self._threads.discard(thread)
                self._tasks.remove(task)
                raise
        return future

    def map(
        self, function: Callable[[_Item], _Result], items: Iterable[_Item], *, at_once: int
    ) -> Iterator[_Result]:
        """``map(function, items)`` by threads, at most ``at_once`` items at a time.

        If the caller stops early, or after an error, it drops queued items and waits for running ones.
        """
        under_way: deque[Future[_Result]] = deque()
        try:
            for item in items:
                if len(under_way) == at_once:
                    yield under_way.popleft().result()
                under_way.append(self.submit(function, item))
            while under_way:
                yield under_way.popleft().result()
        finally:
            wait([future for future in under_way if not future.cancel()])

    def finish(self) -> None:
        """Drop queued tasks, and wait for running ones, at most for the grace period."""
        with self._has_more:
            while self._tasks:
                self._tasks.popleft()[0].cancel()
        end = time.monotonic() + self._grace_seconds
        while self._n_idle < len(self._threads) and time.monotonic() < end:
            time.sleep(0.005)

    def _serve(self) -> None:
        """Run tasks until none arrives for a while."""
        while True:
            with self._has_more:
                if not self._tasks:
                    self._n_idle += 1
                    self._has_more.wait_for(lambda: self._tasks, _IDLE_SECONDS)
                    self._n_idle -= 1
                if not self._tasks:
                    self._threads.discard(threading.current_thread())
                    return
                task = self._tasks.popleft()
            _run(*task)
            del task  # keep no reference while waiting


def _run(future: Future[Any], function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = function(*arguments)
    except BaseException as error:  # noqa: BLE001  # raised by result()
        future.set_exception(error)
        del future  # the error's traceback refers to this frame
    else:
        future.set_result(result)


_executors: weakref.WeakSet[Executor] = weakref.WeakSet()

computing = Executor("data_stack-compute", n_threads, grace_seconds=5.0)
"""For computations that release the GIL: one thread per processor of this process."""

waiting = Executor("data_stack-wait", None, grace_seconds=0.5)
"""For waiting for a disk or a server: one thread per task. The caller limits their number."""


@atexit.register
def _finish_all() -> None:
    for executor in list(_executors):
        executor.finish()
