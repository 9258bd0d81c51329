"""Clocks of one thread: what it computed, and what other programs kept it from computing."""

from __future__ import annotations

import os
import time

__all__ = ["delayed_seconds", "wanted_seconds"]


def delayed_seconds() -> float:
    """How long the calling thread could have run but had no processor; 0 where the system does not tell (it is not Linux).

    Source: ``/proc/thread-self/schedstat``, https://docs.kernel.org/scheduler/sched-stats.html. It takes 10 µs.
    """
    try:
        descriptor = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        try:
            return int(os.read(descriptor, 100).split()[1]) * 1e-9
        finally:
            os.close(descriptor)
    except (OSError, IndexError, ValueError):
        return 0.0


def wanted_seconds() -> float:
    """How long the calling thread has run or could have; the rest of the time it waited for something else than a processor."""
    return time.thread_time() + delayed_seconds()
