"""A file of this machine, read by position."""

from __future__ import annotations

import functools
import os
import stat

from data_stack.exception import MissingFileError
from data_stack.io.storage_connectors.file_source import OpenedFile
from data_stack.io.storage_errors import storage_error, storage_errors


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
        except (FileNotFoundError, NotADirectoryError) as error:
            raise MissingFileError(path) from error
    file = OpenedFile(handle, functools.partial(storage_error, f"could not read {path!r}", path=path))
    if not stat.S_ISREG(file.status.st_mode):
        file.close()
        is_folder = stat.S_ISDIR(file.status.st_mode)
        raise MissingFileError(path, "it is a folder; give the path of a file in it" if is_folder else "it is not a regular file")
    return file
