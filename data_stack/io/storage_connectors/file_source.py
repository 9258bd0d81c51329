"""A file read by position."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from data_stack.io.resources import ByteSource
from data_stack.io.storage_connectors.digest_notes import FileVersion
from data_stack.util.forks import ForkLock


class OpenedFile(NamedTuple):
    """A file that is open for reading.

    Attributes:
        handle: its descriptor, which the receiver closes.
        status: its status when it was opened.
        noted: the last note on the resource, perhaps of another file.
    """

    handle: int
    status: os.stat_result
    noted: FileVersion | None

    @property
    def version(self) -> FileVersion | None:
        """The noted version of this file; None if the file was touched since."""
        return self.noted if self.noted is not None and self.noted.is_of(self.status) else None


class FileSource(ByteSource):
    """A file that is opened on first use.

    A fork may inherit the handle, as positional reads share no state.

    Args:
        open_file: opens the file.
        explain: returns our error for one of the operating system.
    """

    def __init__(self, open_file: Callable[[], OpenedFile], explain: Callable[[OSError], Exception]) -> None:
        self._open_file, self._explain = open_file, explain
        self._file: OpenedFile | None = None
        self._opening = ForkLock()

    @property
    def size(self) -> int:
        return self._ensure_open().status.st_size

    @property
    def sha256(self) -> str | None:
        version = self._ensure_open().version
        return None if version is None else version.sha256

    def readinto_at(self, offset: int, buffer: memoryview) -> int:
        file = self._file or self._ensure_open()
        try:
            n_read = 0
            while n_read < len(buffer) and (more := os.preadv(file.handle, [buffer[n_read:]], offset + n_read)):
                n_read += more
            return n_read
        except OSError as error:
            raise self._explain(error) from error

    def fileno(self) -> int:
        return self._ensure_open().handle

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file.handle)

    def _ensure_open(self) -> OpenedFile:
        if self._file is None:
            with self._opening:
                if self._file is None:
                    self._file = self._open_file()
        return self._file
