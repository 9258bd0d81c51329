"""Long work: threads that Ctrl-C can interrupt at any time, progress bars."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import wait
from contextvars import ContextVar
from importlib import import_module
from typing import Any, Generic, TypeVar

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
        patience_seconds: float = 0.5,
    ) -> None:
        """Do all jobs; call ``tick`` ten times a second, and ``end`` once when no more jobs start.

        An interruption waits ``patience_seconds`` for the threads; those that wait for a server are left behind.
        """
        # Daemon threads: one that waits for a server does not keep an interrupted process alive.
        running = {
            waiting.submit(self._run) for _ in range(max(1, min(self._n_threads, len(self._jobs))))
        }
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


_Item = TypeVar("_Item")

_wanted: ContextVar[bool | None] = ContextVar("data_stack progress", default=None)


def shows_progress(progress: bool | None) -> bool:
    """``progress`` if given, else the value of :func:`progress_as`; by default bars in notebooks and on terminals."""
    wanted = _wanted.get() if progress is None else progress
    if wanted is not None:
        return wanted
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    is_in_notebook = shell is not None and "IPKernelApp" in shell.config  # as tqdm checks it
    return is_in_notebook or (sys.stderr is not None and sys.stderr.isatty())


@contextlib.contextmanager
def progress_as(progress: bool | None) -> Iterator[None]:
    """Set the default of ``progress`` inside, in this thread; None changes nothing.

    For calls through client code that cannot pass it on.
    """
    if progress is None:
        yield
        return
    token = _wanted.set(progress)
    try:
        yield
    finally:
        _wanted.reset(token)


def new_bar(*arguments: Any, **options: Any) -> Any:
    """A tqdm bar on standard error, removed when done.

    Args:
        arguments: as for ``tqdm.tqdm``.
        options: as for ``tqdm.tqdm``.
    """
    return import_module("tqdm").tqdm(
        *arguments, leave=False, **options
    )  # imported only if a bar is shown


def with_bar(items: Iterable[_Item], progress: bool | None, **options: Any) -> Iterable[_Item]:
    """``items``, with a bar; ``options`` as for :func:`new_bar`."""
    if not shows_progress(progress):
        return items
    return new_bar(items, **options)  # type: ignore[no-any-return]


@contextlib.contextmanager
def byte_bar(what: str, progress: bool | None) -> Iterator[Callable[[int, int], None]]:
    """A function ``draw(n_bytes, all_bytes)``, which does nothing if no bar is shown."""
    if not shows_progress(progress):
        yield lambda n_bytes, all_bytes: None
        return
    with new_bar(desc=what, unit="B", unit_scale=True) as bar:

        def draw(n_bytes: int, all_bytes: int) -> None:
            bar.total, bar.n = all_bytes, n_bytes
            bar.refresh()

        yield draw
