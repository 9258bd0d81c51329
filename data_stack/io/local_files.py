"""Files of this machine: opened, mapped into memory, and how many may be open."""

from __future__ import annotations

import functools
import io
import mmap
import os
import resource
import stat

from data_stack.exception import (
    MissingFileError,
)
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors.file_source import OpenedFile
from data_stack.io.storage_connectors.writer import TEMPORARY as TEMPORARY
from data_stack.io.storage_errors import storage_error, storage_errors

_MAX_OPEN_FILES = 4096


def map_file(opened: StreamedResource, size: int) -> mmap.mmap | None:
    """Map the file into memory; None if it is not a local file, or the operating system cannot map it."""
    try:
        handle = opened.fileno()
        # A third party's resource may be what it reads out of a file, such as a compressed one.
        return (
            mmap.mmap(handle, size, access=mmap.ACCESS_READ)
            if os.fstat(handle).st_size == opened.size
            else None
        )
    except (AttributeError, io.UnsupportedOperation, OSError, ValueError):
        return None


def most_open_files() -> int:
    """Maximum number of open files: a third of the file descriptors of this process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        _MAX_OPEN_FILES
        if soft == resource.RLIM_INFINITY
        else max(8, min(_MAX_OPEN_FILES, soft // 3))
    )


def open_local_file(path: str) -> OpenedFile:
    """Open a file of this machine.

    Raises:
        MissingFileError: it does not exist, or is a folder, a pipe or a device.
        StorageError: it cannot be opened.
    """
    with storage_errors("open", path):
        try:
            # O_NONBLOCK: do not wait for the writer of a pipe
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            raise MissingFileError(path) from None
    file = OpenedFile(
        handle, functools.partial(storage_error, f"could not read {path!r}", path=path)
    )
    if not stat.S_ISREG(file.status.st_mode):
        file.close()
        is_folder = stat.S_ISDIR(file.status.st_mode)
        raise MissingFileError(
            path,
            "it is a folder; give the path of a file in it"
            if is_folder
            else "it is not a regular file",
        )
    return file
