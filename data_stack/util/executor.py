"""Thread pools, and the processors that threads share."""

from __future__ import annotations

import atexit
import contextvars
import os
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from data_stack.util.forks import call_in_forks
from data_stack.util.interrupts import interrupts_deferred

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

#: An idle thread ends after this time. New threads are expensive: allocators reserve memory for
#: each.
_IDLE_SECONDS: Final = 1.0

#: How often the exit of Python looks whether running tasks have ended.
_EXIT_POLL_SECONDS: Final = 0.005


def n_processors() -> int:
    """Return the number of processors that this process may run on, at least 1."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


#: The number of worker processes that share the processors, including this one.
_n_processes = 1

#: Its attribute ``n_threads`` is the number of threads that share the processors of this process
#: with the thread that reads it. Threads that have not set it share with nobody.
_thread_share = threading.local()


def set_process_share(n_processes: int) -> None:
    """Set the number of worker processes that share the processors, including this one."""
    global _n_processes
    _n_processes = n_processes


def set_thread_share(n_threads: int) -> None:
    """Set the number of threads that share the processors of this process, including this one."""
    _thread_share.n_threads = n_threads


def n_threads() -> int:
    """Return how many threads should compute in this process: its share of the processors.

    A process of ``multiprocessing``, such as a worker of torch's loader, has one.
    """
    # A process of multiprocessing has imported this module; importing it here costs time.
    multiprocessing = sys.modules.get("multiprocessing.process")
    if multiprocessing is not None and multiprocessing.parent_process() is not None:
        return 1
    return max(1, n_processors() // _n_processes)


def n_threads_here() -> int:
    """Return how many threads should compute for this one, including itself.

    This is the share that this thread has of :func:`n_threads`.
    """
    n_sharing = getattr(_thread_share, "n_threads", 1)
    return max(1, n_threads() // n_sharing)


@dataclass(frozen=True, slots=True, eq=False)
class _Task:
    """A call that a thread of an executor makes."""

    future: Future[Any]
    function: Callable[..., Any]
    arguments: tuple[Any, ...]

    def run(self) -> None:
        """Call the function, unless the future was cancelled, and store its result."""
        if not self.future.set_running_or_notify_cancel():
            return
        try:
            result = self.function(*self.arguments)
        except BaseException as error:  # noqa: BLE001  # result() of the future raises it
            self.future.set_exception(error)
            # The future refers to the error, whose traceback refers to this frame, which refers to
            # the future: without this line, only a garbage collection would free them.
            del self
        else:
            self.future.set_result(result)


class Executor:
    """A pool of daemon threads, which start on demand and end when they are idle for a second.

    A forked process begins without threads. When Python exits, queued tasks are cancelled, and
    running ones are waited for, for a limited time.

    Args:
        name: prefix of the names of the threads.
        max_threads: returns the maximum number of threads; None for one thread per task. A task of
            a bounded executor must not wait for another of its tasks that may not have begun.
        grace_seconds: how long the exit of Python waits for running tasks. Threads that run C++
            code while Python ends may crash it.
    """

    #: Guards the attributes below. The statement ``with`` takes it, not the condition: Ctrl-C may
    #: come in the methods of the condition, and would leave it locked forever.
    _lock: threading.Lock
    #: Notified when a task comes.
    _has_task: threading.Condition
    #: Tasks that no thread has begun.
    _tasks: deque[_Task]
    _threads: set[threading.Thread]
    #: Threads that wait for a task.
    _n_idle: int
    #: Threads started so far, for their names.
    _n_started: int

    def __init__(
        self, name: str, max_threads: Callable[[], int] | None, *, grace_seconds: float
    ) -> None:
        self._name = name
        self._max_threads = max_threads
        self._grace_seconds = grace_seconds
        self._reset()
        call_in_forks(self._reset)
        _executors.add(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._has_task = threading.Condition(self._lock)
        self._tasks = deque()
        self._threads = set()
        self._n_idle = 0
        self._n_started = 0

    def submit(self, function: Callable[..., _Result], *arguments: Any) -> Future[_Result]:
        """Call a function in a thread.

        Returns:
            The future of its result. ``cancel()`` returns False once a thread has begun the call.

        Raises:
            RuntimeError: no thread can be started, as when Python is exiting.
        """
        # The end of Python stops threads without a word, and starting one then waits forever up to
        # Python 3.11.
        if sys.is_finalizing():
            raise RuntimeError("Python is exiting, so no thread can be started")
        future: Future[_Result] = Future()
        task = _Task(future, function, arguments)
        with self._lock:
            try:
                self._tasks.append(task)
                if self._needs_thread():
                    self._start_thread()
                else:
                    self._has_task.notify()
            except BaseException:
                # A thread that has started all the same takes the task, and does not run it.
                future.cancel()
                raise
        return future

    def _needs_thread(self) -> bool:
        """Return whether a queued task would wait although another thread may be started."""
        has_idle_thread = self._n_idle >= len(self._tasks)
        if has_idle_thread:
            return False
        return self._max_threads is None or len(self._threads) < self._max_threads()

    def _start_thread(self) -> None:
        """Start a thread."""
        self._n_started += 1
        name = f"{self._name}-{self._n_started}"
        # In an empty context: a thread serves many callers. Where Python lets threads inherit the
        # context of the one that starts them (3.14 without the GIL), a thread would keep what the
        # first caller had set, such as the limit of its request.
        run_in_empty_context = contextvars.Context().run
        thread = threading.Thread(
            target=run_in_empty_context, args=(self._serve,), name=name, daemon=True
        )
        try:
            self._threads.add(thread)
            # Ctrl-C in the middle of Python's wait for the thread would make that wait fail.
            with interrupts_deferred():
                thread.start()
        except BaseException:
            # If it has started all the same, as Ctrl-C came later, it adds itself.
            self._threads.discard(thread)
            raise

    def map(
        self, function: Callable[[_Item], _Result], items: Iterable[_Item], *, at_once: int
    ) -> Iterator[_Result]:
        """Yield ``function(item)`` for each item in order, computed by threads.

        If the caller stops early, or after an error, the calls that no thread has begun are
        cancelled, and the others are waited for.

        Args:
            function: what threads call.
            items: its arguments.
            at_once: the maximum number of items that are submitted and not yet yielded.
        """
        pending: deque[Future[_Result]] = deque()
        try:
            for item in items:
                if len(pending) == at_once:
                    yield pending.popleft().result()
                pending.append(self.submit(function, item))
            while pending:
                yield pending.popleft().result()
        finally:
            running = [future for future in pending if not future.cancel()]
            wait(running)

    def finish(self, grace_seconds: float | None = None) -> None:
        """Cancel queued tasks, and wait for running ones.

        Args:
            grace_seconds: how long to wait; None for as long as the exit of Python waits.
        """
        if grace_seconds is None:
            grace_seconds = self._grace_seconds
        with self._lock:
            while self._tasks:
                task = self._tasks.popleft()
                task.future.cancel()
        end = time.monotonic() + grace_seconds
        while self._n_idle < len(self._threads) and time.monotonic() < end:
            time.sleep(_EXIT_POLL_SECONDS)

    def _serve(self) -> None:
        """Run tasks until none comes for a while."""
        with self._lock:
            self._threads.add(threading.current_thread())
        while True:
            with self._lock:
                if not self._tasks:
                    self._n_idle += 1
                    self._has_task.wait_for(lambda: self._tasks, _IDLE_SECONDS)
                    self._n_idle -= 1
                if not self._tasks:
                    self._threads.discard(threading.current_thread())
                    return
                task = self._tasks.popleft()
            task.run()
            del task  # keep no reference to its result while waiting


_executors: weakref.WeakSet[Executor] = weakref.WeakSet()

computing = Executor("data_stack-compute", n_threads, grace_seconds=5.0)
"""For computations that release the GIL: one thread per processor of this process."""

waiting = Executor("data_stack-wait", None, grace_seconds=0.5)
"""For waiting for a disk or a server: one thread per task. The caller limits their number."""


@atexit.register
def _finish_all() -> None:
    for executor in list(_executors):
        executor.finish()
