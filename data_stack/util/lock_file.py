"""A file whose lock tells that somebody is at work; whoever lets go of it may remove it."""

from __future__ import annotations

import contextlib
import os

__all__ = ["locked_file"]


def locked_file(path: str) -> int | None:
    """Lock a file for this process alone; it is made if there is none, with its folders. Never waits.

    The operating system lets go of the lock when the process ends, however that happens. A file system without locks grants all.

    Returns:
        The file's descriptor, which holds the lock until it is closed; None if somebody else has it.

    Raises:
        ImportError: this operating system has no such locks.
        OSError: the file cannot be made.
    """
    import fcntl

    os.makedirs(os.path.dirname(path), exist_ok=True)
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        except OSError:  # a file system without locks
            pass
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.stat(path)):
                return handle
        os.close(handle)  # whoever had it has just removed it
