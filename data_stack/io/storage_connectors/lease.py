"""Leases, which spare processes the work that another one is doing."""

from __future__ import annotations

import contextlib
import os
from typing import IO

from data_stack.util.lock_file import open_locked


class Lease:
    """The right to prepare something while others wait. This one is always free.

    A lease only saves work that several processes would do; nothing depends on it.
    """

    def acquire(self) -> bool:
        """Take the lease if it is free, without waiting. Return whether this process holds it."""
        return True


class FileLease(Lease):
    """A file lock, which the operating system releases when its process ends.

    The file is removed with the lease.

    Args:
        path: the path of the file.
    """

    _path: str
    #: The process that made the lease. A fork has a copy, which must not remove the file.
    _pid: int
    #: The locked file; None while the lease is not held.
    _file: IO[bytes] | None

    def __init__(self, path: str) -> None:
        self._path = path
        self._pid = os.getpid()
        self._file = None

    def acquire(self) -> bool:
        if self._file is None:
            try:
                self._file = open_locked(self._path)
            except OSError:
                # In a read-only folder, or on a full disk, work goes on without a lease.
                return True
        return self._file is not None

    def close(self) -> None:
        """Release the lease."""
        file = self._file
        self._file = None
        if file is None:
            return
        # The name is removed while the file is locked. Afterwards, it could be that of the next
        # holder's file.
        if os.getpid() == self._pid:
            with contextlib.suppress(OSError):
                os.unlink(self._path)
        file.close()
