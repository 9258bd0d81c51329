"""Files of this machine as resources, and whatever else a reader is given to read."""

from __future__ import annotations

import os
import stat
from typing import Any

from data_stack.exception import MissingFileError
from data_stack.io.resources import ByteSource, StreamedResource, StreamedTextResource
from data_stack.io.storage_errors import storage_errors

__all__ = ["LocalFile", "as_resource", "is_path", "opened_path"]


def is_path(source: Any) -> bool:
    """Whether ``source`` names a file: a string (never taken for a URL), or an ``os.PathLike``."""
    return isinstance(source, (str, os.PathLike))


def as_resource(source: Any) -> StreamedResource:
    """What a reader is given, as a resource.

    Args:
        source: the path of a file (a string or ``os.PathLike``, with ``~`` for the home folder), which is opened; a resource, as
            it is (of a text resource its bytes); or an open binary file, which stays the caller's to close.

    Raises:
        MissingFileError: there is no such file, or it is a folder.
        StorageError: it cannot be opened.
        TypeError: it is nothing of the kind.
    """
    if is_path(source):
        return opened_path(source)
    if isinstance(source, StreamedTextResource):
        source = source.buffer
    if isinstance(source, StreamedResource):
        return source
    if not hasattr(source, "read"):
        raise TypeError(f"a file is a path, a resource or an open binary file, not {source!r:.80}")
    name = getattr(source, "identifier", None) or getattr(source, "name", None)
    return StreamedResource(name if isinstance(name, str) and name else f"<{type(source).__name__}>", source)


def opened_path(path: str | os.PathLike[str]) -> StreamedResource:
    """A file of this machine, to be read by position; in another process it is opened by its path again.

    Raises:
        MissingFileError, StorageError: as :func:`as_resource`.
    """
    full = os.path.abspath(os.path.expanduser(os.fsdecode(path)))
    return StreamedResource.sealed(full, LocalFile(full), _LocalFiles())


class _LocalFiles:
    """Opens a file by its path again, for a resource that was sent to another process."""

    def get_resource(self, identifier: str) -> StreamedResource:
        return opened_path(identifier)


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
        n_read = 0
        with storage_errors("read", self._path):
            while n_read < len(buffer) and (more := os.preadv(self._handle, [buffer[n_read:]], offset + n_read)):
                n_read += more
        return n_read

    def fileno(self) -> int:
        return self._handle

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1
