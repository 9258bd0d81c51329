"""How many processors this process may use."""

from __future__ import annotations

import os

__all__ = ["n_processors"]


def n_processors() -> int:
    """Those that the operating system lets this process run on, at least 1."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
