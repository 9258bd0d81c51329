"""Leases, which spare processes the work that another one is doing."""

from __future__ import annotations

import contextlib
import os
from typing import IO

from data_stack.util.lock_file import open_locked


class Lease:
    """A lease that is always free."""

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
                # A read-only folder needs no lease.
                return True
        return self._file is not None

    def close(self) -> None:
        """Release the lease."""
        file = self._file
        self._file = None
        if file is None:
            return
        if os.getpid() == self._pid:
            with contextlib.suppress(OSError):
                os.unlink(self._path)
        file.close()
