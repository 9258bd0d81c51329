"""An open file, read by position, whose digest a note may know."""

from __future__ import annotations

import os

from data_stack.io.resources import ByteSource
from data_stack.io.storage_connectors.file.digest_notes import FileVersion
from data_stack.io.storage_connectors.writer import Explain


class OpenedFile(ByteSource):
    """A file that is open for reading.

    A fork may inherit it, as positional reads share no state.

    Args:
        handle: the descriptor of the file. It is closed with the source.
        explain: returns our error for one of the operating system.
        noted: the last note on the resource. It may be about another version of the file.

    Attributes:
        handle: the descriptor; -1 once it is closed.
        status: the status of the file when it was opened.
        noted: the last note on the resource.
        version: ``noted`` if it is about this version of the file; otherwise None.
    """

    size = 0
    sha256: str | None = None
    handle: int
    status: os.stat_result
    noted: FileVersion | None
    version: FileVersion | None
    _explain: Explain

    def __init__(self, handle: int, explain: Explain, noted: FileVersion | None = None) -> None:
        self.handle = handle
        self.status = os.fstat(handle)
        self.size = self.status.st_size
        self.noted = noted
        self.version = None
        if noted is not None and noted.is_of(self.status):
            self.version = noted
            self.sha256 = noted.sha256
        self._explain = explain

    def readinto_at(self, offset: int, buffer: memoryview) -> int:
        n_read = 0
        try:
            while n_read < len(buffer):
                n_more = os.preadv(self.handle, [buffer[n_read:]], offset + n_read)
                if not n_more:
                    break
                n_read += n_more
        except OSError as error:
            raise self._explain(error) from error
        return n_read

    def fileno(self) -> int:
        return self.handle

    def close(self) -> None:
        handle = self.handle
        self.handle = -1
        if handle >= 0:
            os.close(handle)
