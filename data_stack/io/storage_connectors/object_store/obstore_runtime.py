"""Knows whether this process can use obstore, whose threads do not survive a fork.

A child that was forked after the runtime of obstore had started would wait for its threads forever.

Only the synchronous functions of obstore are used. With the asynchronous ones, 3 of 40 processes
were aborted (SIGABRT) as they ended while requests were under way: their threads call Python while
it is finalized. With the synchronous ones, none of 170 was.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Final

#: The beginning of the names of the runtime's threads.
_THREAD_NAME: Final = "tokio-"

#: Whether the runtime may have started in this process.
_has_started = False
#: Whether this process was forked from one in which the runtime had started.
_is_lost = False


def is_lost() -> bool:
    """Return whether this process cannot use obstore, as a fork has left its runtime behind."""
    return _is_lost


def note_start() -> None:
    """Note that the runtime starts, before a request."""
    global _has_started
    _has_started = True


def _note_foreign_start() -> None:
    """Before a fork, note whether another user of obstore has started the runtime.

    Only Linux tells the names of threads. Elsewhere the runtime counts as started if obstore was
    imported.
    """
    if _has_started or "obstore" not in sys.modules:
        return
    threads = Path("/proc/self/task")
    if not threads.is_dir():
        note_start()
        return
    for path in threads.glob("*/comm"):
        # A thread may end at this moment.
        with contextlib.suppress(OSError):
            if path.read_text().startswith(_THREAD_NAME):
                note_start()


def _leave_runtime() -> None:
    """In a fork, give up a runtime that the parent has started."""
    global _is_lost
    _is_lost = _is_lost or _has_started


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_note_foreign_start, after_in_child=_leave_runtime)
