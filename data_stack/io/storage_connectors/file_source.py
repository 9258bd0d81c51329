"""An open file, read by position."""

from __future__ import annotations

import os
from collections.abc import Callable

from data_stack.io.resources import ByteSource
from data_stack.io.storage_connectors.digest_notes import FileVersion


class OpenedFile(ByteSource):
    """A file that is open for reading. A fork may inherit it, as positional reads share no state.

    Args:
        handle: its descriptor, which is closed with the source.
        explain: returns our error for one of the operating system.
        noted: the last note on the resource, perhaps of another file.

    Attributes:
        handle: its descriptor.
        status: its status when it was opened.
        noted: the last note on the resource.
    """

    size = 0

    def __init__(self, handle: int, explain: Callable[[OSError], Exception], noted: FileVersion | None = None) -> None:
        self.handle, self.noted, self._explain = handle, noted, explain
        self.status = os.fstat(handle)
        self.size = self.status.st_size

    @property
    def version(self) -> FileVersion | None:
        """The noted version of this file; None if the file was touched since."""
        return self.noted if self.noted is not None and self.noted.is_of(self.status) else None

    @property
    def sha256(self) -> str | None:
        version = self.version
        return None if version is None else version.sha256

    def readinto_at(self, offset: int, buffer: memoryview) -> int:
        try:
            n_read = 0
            while n_read < len(buffer) and (more := os.preadv(self.handle, [buffer[n_read:]], offset + n_read)):
                n_read += more
            return n_read
        except OSError as error:
            raise self._explain(error) from error

    def fileno(self) -> int:
        return self.handle

    def close(self) -> None:
        handle, self.handle = self.handle, -1
        if handle >= 0:
            os.close(handle)
