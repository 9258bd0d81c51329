"""The processors of this process, and its share of them."""

from __future__ import annotations

import os
import sys
import threading

_n_processes = 1
_of_thread = threading.local()


def n_processors() -> int:
    """The number of processors that this process may run on, at least 1."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def n_threads() -> int:
    """The number of threads that should compute in this process: its share of the processors.

    A process of ``multiprocessing``, such as a worker of torch's loader, has one.
    """
    multiprocessing = sys.modules.get("multiprocessing.process")  # which its processes have imported
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
