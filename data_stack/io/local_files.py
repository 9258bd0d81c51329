"""A file of this machine, read by position."""

from __future__ import annotations

import functools
import os
import stat

from data_stack.exception import MissingFileError
from data_stack.io.storage_connectors.file_source import FileSource, OpenedFile
from data_stack.io.storage_errors import storage_error, storage_errors


class LocalFile(FileSource):
    """A file of this machine, read by position, also after a fork.

    Args:
        path: path of the file.

    Raises:
        MissingFileError: it does not exist, or is a folder, a pipe or a device.
        StorageError: it cannot be opened.
    """

    def __init__(self, path: str) -> None:
        with storage_errors("open", path):
            try:
                # O_NONBLOCK: do not wait for the writer of a pipe
                handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except (FileNotFoundError, NotADirectoryError) as error:
                raise MissingFileError(path) from error
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            os.close(handle)
            is_folder = stat.S_ISDIR(status.st_mode)
            raise MissingFileError(
                path, "it is a folder; give the path of a file in it" if is_folder else "it is not a regular file"
            )
        explain = functools.partial(storage_error, f"could not read {path!r}", path=path)
        super().__init__(lambda: OpenedFile(handle, status, None), explain)
        self._ensure_open()
