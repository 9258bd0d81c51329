"""A file of this machine, read by position."""

from __future__ import annotations

import os
import stat

from data_stack.exception import MissingFileError
from data_stack.io.resources import ByteSource
from data_stack.io.storage_errors import storage_errors

__all__ = ["LocalFile", "read_into"]


class LocalFile(ByteSource):
    """A file of this machine, read by position; a fork may go on reading it.

    Args:
        path: of the file.

    Raises:
        MissingFileError: there is none; or it is a folder, a pipe or a device.
        StorageError: it cannot be opened.
    """

    def __init__(self, path: str) -> None:
        self._path, self._handle = path, -1
        with storage_errors("open", path):
            try:
                # not to wait for somebody to write into a pipe
                self._handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except (FileNotFoundError, NotADirectoryError) as error:
                raise MissingFileError(path) from error
            status = os.fstat(self._handle)
        self._size = status.st_size
        if not stat.S_ISREG(status.st_mode):
            self.close()
            is_folder = stat.S_ISDIR(status.st_mode)
            raise MissingFileError(
                path, "it is a folder; give the path of a file in it" if is_folder else "it is no regular file"
            )

    @property
    def size(self) -> int:
        return self._size

    @property
    def sha256(self) -> None:
        return None

    def readinto_at(self, offset: int, buffer: memoryview) -> int:
        with storage_errors("read", self._path):
            return read_into(self._handle, offset, buffer)

    def fileno(self) -> int:
        return self._handle

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def read_into(handle: int, offset: int, buffer: memoryview) -> int:
    """Fill ``buffer`` from an open file; return the bytes read, fewer only at the end."""
    n_read = 0
    while n_read < len(buffer) and (more := os.preadv(handle, [buffer[n_read:]], offset + n_read)):
        n_read += more
    return n_read
