"""Guards the runtime of obstore, whose threads do not survive a fork.

A child that was forked after the runtime had started would wait for its threads forever. And a
thread that returns from obstore while Python ends aborts the process: Python ends such a thread by
unwinding its stack, which Rust does not allow.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from data_stack.util.forks import fork_lock

#: The beginning of the names of the runtime's threads.
_THREAD_NAME: Final = "tokio-runtime"
#: How often the exit of Python looks whether all requests have ended.
_EXIT_POLL_SECONDS: Final = 0.005
#: At most so long does the exit of Python wait for requests.
_EXIT_SECONDS: Final = 30.0

_lock: Final = fork_lock()
#: Whether this process has sent a request by obstore.
_has_started = False
#: Whether this process was forked from one in which the runtime had started.
_is_lost = False
#: Whether Python is exiting, so that only its main thread may send requests.
_is_closing = False
#: The number of requests under way.
_n_requests = 0


class RuntimeLostError(Exception):
    """This process cannot use obstore."""


class PythonExitsError(Exception):
    """Python is exiting, and the thread is not its main thread."""


def is_lost() -> bool:
    """Return whether this process cannot use obstore, as its runtime was left behind by a fork."""
    return _is_lost


@contextlib.contextmanager
def request() -> Iterator[None]:
    """Send a request by obstore inside of the context.

    Raises:
        PythonExitsError: Python is exiting, and this is not its main thread.
        RuntimeLostError: the runtime was left behind by a fork.
    """
    global _has_started, _n_requests
    if _is_lost:
        raise RuntimeLostError("the runtime of obstore was left behind by a fork")
    with _lock:
        if _is_closing and threading.current_thread() is not threading.main_thread():
            raise PythonExitsError("Python is exiting")
        _has_started = True
        _n_requests += 1
    try:
        yield
    finally:
        with _lock:
            _n_requests -= 1


def _note_foreign_runtime() -> None:
    """Before a fork, note whether another user of obstore has started the runtime.

    Only Linux tells the names of threads. Elsewhere the runtime counts as started if obstore was
    imported.
    """
    global _has_started
    if _has_started or "obstore" not in sys.modules:
        return
    tasks = Path("/proc/self/task")
    if not tasks.is_dir():
        _has_started = True
        return
    for path in tasks.glob("*/comm"):
        # A thread may end at this moment.
        with contextlib.suppress(OSError):
            if path.read_text().startswith(_THREAD_NAME):
                _has_started = True


def _leave_runtime() -> None:
    """In a fork, give up a runtime that the parent has started."""
    global _is_lost, _n_requests
    _is_lost = _is_lost or _has_started
    _n_requests = 0


def _finish_requests() -> None:
    """When Python exits, let no thread but the main one begin a request, and await the others."""
    global _is_closing
    with _lock:
        _is_closing = True
    deadline = time.monotonic() + _EXIT_SECONDS
    while _n_requests > 0 and time.monotonic() < deadline:
        time.sleep(_EXIT_POLL_SECONDS)


atexit.register(_finish_requests)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_note_foreign_runtime, after_in_child=_leave_runtime)
