"""Access to the files of this machine, as the operating system allows it."""

from __future__ import annotations

import functools
import io
import mmap
import os
import resource
import stat
from typing import Final

from data_stack.exception import MissingFileError
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors.file.opened_file import OpenedFile
from data_stack.io.storage_errors import storage_error, storage_errors

#: Limits of :func:`most_open_files`.
_MAX_OPEN_FILES: Final = 4096
_MIN_OPEN_FILES: Final = 8


def open_local_file(path: str) -> OpenedFile:
    """Open a regular file of this machine.

    Raises:
        MissingFileError: the file does not exist, or is a folder, a pipe or a device.
        StorageError: the file cannot be opened.
    """
    with storage_errors("open", path):
        try:
            # O_NONBLOCK: do not wait for the writer of a pipe.
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            raise MissingFileError(path) from None
    explain = functools.partial(storage_error, f"could not read {path!r}", path=path)
    file = OpenedFile(handle, explain)

    mode = file.status.st_mode
    if stat.S_ISREG(mode):
        return file
    file.close()
    if stat.S_ISDIR(mode):
        raise MissingFileError(path, "it is a folder; give the path of a file in it")
    raise MissingFileError(path, "it is not a regular file")


def map_file(opened: StreamedResource, size: int) -> mmap.mmap | None:
    """Map the first ``size`` bytes of a file into memory.

    Returns:
        None if the resource is not a local file, or the operating system cannot map it.
    """
    try:
        handle = opened.fileno()
        # A third party's resource may be what it reads out of a file, such as a compressed one.
        is_the_file_itself = os.fstat(handle).st_size == opened.size
        if not is_the_file_itself:
            return None
        return mmap.mmap(handle, size, access=mmap.ACCESS_READ)
    except (AttributeError, io.UnsupportedOperation, OSError, ValueError):
        return None


def most_open_files() -> int:
    """Return how many files of a dataset may be open at a time.

    They take a third of the file descriptors of this process, as its program needs some too.
    """
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft_limit == resource.RLIM_INFINITY:
        return _MAX_OPEN_FILES
    return max(_MIN_OPEN_FILES, min(_MAX_OPEN_FILES, soft_limit // 3))
