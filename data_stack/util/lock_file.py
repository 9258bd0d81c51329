"""File locks of the operating system, which end with the process that holds them."""

from __future__ import annotations

import fcntl
import os
import struct
from typing import IO

from data_stack.util.forks import call_in_forks
from data_stack.util.group_rights import make_folders, share_with_group


def try_lock(handle: int, *, if_unsupported: bool = True) -> bool:
    """Try to lock an open file without waiting; return whether it worked.

    Args:
        handle: its descriptor, which holds the lock until it is closed everywhere, forks included.
        if_unsupported: the result if the file system has no such locks.
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return if_unsupported
    return True


def open_locked(path: str) -> IO[bytes] | None:
    """Open and lock a file for this process alone, without waiting.

    The file and its folders are created if they are missing. The holder may remove the file. A
    system without locks grants every lock.

    Returns:
        The file, which holds the lock until it is closed; None if another process holds it.

    Raises:
        OSError: the file cannot be created.
    """
    folder = os.path.dirname(os.path.abspath(path))
    make_folders(folder)
    while True:
        # A file object: a bare descriptor could stay open, and locked, after an interruption.
        file = open(path, "a+b", buffering=0)
        share_with_group(file.fileno(), folder)
        if not try_lock(file.fileno()):
            file.close()
            return None
        if _is_file_at(path, file):
            return file
        # The last holder removed this file before it was locked here: open the one at the path now.
        file.close()


def _is_file_at(path: str, file: IO[bytes]) -> bool:
    """Return whether an open file is still the one at a path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


class RangeLocks:
    """Locks on ranges of a file, which threads and processes share.

    The locks end with :meth:`close`, or with the process. A fork does not inherit them. An
    operating system other than Linux, or a file system without such locks, grants each.

    Args:
        path: the file, which is created if it is missing. Nothing is written to it.

    Raises:
        OSError: it cannot be created.
    """

    #: Descriptor of the file, -1 after :meth:`close`.
    _handle: int

    def __init__(self, path: str) -> None:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._handle = os.open(path, flags, 0o600)
        call_in_forks(self.close)

    def try_lock(self, start: int, size: int) -> bool:
        """Try to lock bytes without waiting; return whether it worked.

        Args:
            start: the first byte.
            size: the number of bytes, which need not exist.
        """
        # F_OFD_SETLK makes a lock of the open file. The older locks belong to a process, and end
        # when any of its threads closes the file.
        request = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, start, size, 0)
        try:
            fcntl.fcntl(self._handle, fcntl.F_OFD_SETLK, request)
        except BlockingIOError:
            return False
        except (AttributeError, OSError):  # this system or this file system has no such locks
            return True
        return True

    def close(self) -> None:
        """Release all locks."""
        handle = self._handle
        self._handle = -1
        if handle >= 0:
            os.close(handle)
