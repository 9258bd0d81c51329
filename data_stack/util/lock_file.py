"""Locks of the operating system on files: each dies with the process that has it."""

from __future__ import annotations

import contextlib
import os

__all__ = ["open_locked", "try_lock", "unlock"]


def try_lock(handle: int, *, if_unsupported: bool = True) -> bool:
    """Lock an open file without waiting; whether it is locked now.

    Args:
        handle: its descriptor, which holds the lock until it is closed everywhere, forks included, or :func:`unlock` is called.
        if_unsupported: the answer where the operating system, or the file system, has no such locks.
    """
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return if_unsupported
    return True


def unlock(handle: int) -> None:
    """Let go of a lock although the descriptor stays open, here or in a child that was forked meanwhile."""
    with contextlib.suppress(ImportError, OSError):
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_UN)


def open_locked(path: str) -> int | None:
    """Lock a file for this process alone; it is made if there is none, with its folders. Never waits.

    Whoever has it may remove it. A system without locks grants all.

    Returns:
        The file's descriptor, which holds the lock until it is closed; None if somebody else has it.

    Raises:
        OSError: the file cannot be made.
    """
    os.makedirs(os.path.dirname(path), exist_ok=True)
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        if not try_lock(handle):
            os.close(handle)
            return None
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.stat(path)):
                return handle
        os.close(handle)  # whoever had it has just removed it
