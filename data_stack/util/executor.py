"""The threads of a process that compute or wait for others, shared by all that need some for a while."""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, wait
from typing import Any, TypeVar

from data_stack.util.forks import call_in_forks
from data_stack.util.processors import n_threads

__all__ = ["Executor", "computing", "waiting"]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_Task = tuple["Future[Any]", Callable[..., Any], tuple[Any, ...]]

#: A thread that has nothing to do for so long ends. A new one costs more than its start: allocators give it memory of its own.
_IDLE_SECONDS = 1.0


class Executor:
    """Threads that are started when there is something to do for them, and end when there was nothing for a second.

    A forked process begins without any. The end of Python drops what has not begun and waits for the rest, for a while only:
    the threads are daemons.

    Args:
        name: that the threads begin with.
        most_threads: how many there may be; None: as many as there are tasks. What is submitted to a bounded executor must not
            wait for another task of it that may not have begun.
        grace_seconds: how long the end of Python waits. Threads in the midst of C++ code may crash it otherwise.
    """

    def __init__(self, name: str, most_threads: Callable[[], int] | None, *, grace_seconds: float) -> None:
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
        """Call a function in a thread; ``cancel()`` of what this returns says whether no thread has come to it, or will.

        Raises:
            RuntimeError: there is no thread and none can be started, as when Python is ending.
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
            thread = threading.Thread(target=self._serve, name=f"{self._name}-{self._n_started}", daemon=True)
            self._threads.add(thread)
            try:
                thread.start()
            except BaseException:
                self._threads.discard(thread)
                self._tasks.remove(task)
                raise
        return future

    def map(self, function: Callable[[_Item], _Result], items: Iterable[_Item], *, at_once: int) -> Iterator[_Result]:
        """``map(function, items)`` by threads: no more than ``at_once`` items are under way, beside one that is taken meanwhile.

        Left early, or for an error, it drops what has not begun and waits for the rest.
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
        """Begin nothing more, and wait for what is under way, or for the grace period."""
        with self._has_more:
            while self._tasks:
                self._tasks.popleft()[0].cancel()
        end = time.monotonic() + self._grace_seconds
        while self._n_idle < len(self._threads) and time.monotonic() < end:
            time.sleep(0.005)

    def _serve(self) -> None:
        """What a thread does."""
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
            del task  # nothing of it is referred to while the thread waits


def _run(future: Future[Any], function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = function(*arguments)
    except BaseException as error:  # noqa: BLE001  # it is raised where the result is asked for
        future.set_exception(error)
        del future  # the error's traceback refers to this frame
    else:
        future.set_result(result)


_executors: weakref.WeakSet[Executor] = weakref.WeakSet()

computing = Executor("data_stack-compute", n_threads, grace_seconds=5.0)
"""For what keeps a processor busy outside of the GIL: as many threads as this process should compute with."""

waiting = Executor("data_stack-wait", None, grace_seconds=0.5)
"""For what waits for a disk or a server: a thread for each task. Who submits bounds how many there are."""


@atexit.register
def _finish_all() -> None:
    for executor in list(_executors):
        executor.finish()
