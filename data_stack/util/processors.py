"""How many processors this process may use."""

from __future__ import annotations

import os
import sys
import threading

__all__ = ["be_one_of", "n_processors", "n_threads", "n_threads_here", "thread_is_one_of"]

_n_processes = 1
_of_thread = threading.local()


def n_processors() -> int:
    """Those that the operating system lets this process run on, at least 1."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def n_threads() -> int:
    """How many threads should compute in this process: one for each processor, of which a worker process has its share.

    A process of ``multiprocessing``, as torch's loader has, is taken to have a processor to itself, and its siblings theirs.
    """
    multiprocessing = sys.modules.get("multiprocessing.process")  # which its processes have imported
    if multiprocessing is not None and multiprocessing.parent_process() is not None:
        return 1
    return max(1, n_processors() // _n_processes)


def be_one_of(n_processes: int) -> None:
    """Tell that this process is one of so many workers, which compute at the same time."""
    global _n_processes
    _n_processes = n_processes


def n_threads_here() -> int:
    """How many threads should compute for this one, itself included: of :func:`n_threads` its share."""
    return max(1, n_threads() // getattr(_of_thread, "n_threads", 1))


def thread_is_one_of(n_threads: int) -> None:
    """Tell that this thread is one of so many, which compute at the same time."""
    _of_thread.n_threads = n_threads
