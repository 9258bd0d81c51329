"""A file that is open for reading."""

from __future__ import annotations

import os
from typing import Final

from data_stack.io.resources import ByteSource
from data_stack.io.storage_connectors.file.digest_notes import DigestNote
from data_stack.io.storage_connectors.writer import Explain

#: A file is read in pieces of this size, as memory would be allocated for a size that is a lie.
_PIECE_BYTES: Final = 16 << 20


class OpenedFile(ByteSource):
    """A file that is open for reading. Its digest is known if there is a valid note on it.

    A fork may inherit it, as positional reads share no state.

    Args:
        handle: the descriptor of the file. It is closed with the source.
        explain: returns the error to raise for an error of the operating system.
        last_note: the last note on the digest of the resource. The file may have been touched since
            it was written.

    Attributes:
        handle: the descriptor; -1 once it is closed.
        status: the status of the file when it was opened.
        last_note: the last note on the digest of the resource.
        valid_note: ``last_note`` if the file is untouched since; otherwise None.
    """

    # Attributes in place of the abstract properties; the constructor sets them.
    size = 0
    sha256: str | None = None
    handle: int
    status: os.stat_result
    last_note: DigestNote | None
    valid_note: DigestNote | None
    _explain: Explain

    def __init__(self, handle: int, explain: Explain, last_note: DigestNote | None = None) -> None:
        self.handle = handle
        self.status = os.fstat(handle)
        self.size = self.status.st_size
        self.last_note = last_note
        self.valid_note = None
        if last_note is not None and last_note.is_valid_for(self.status):
            self.valid_note = last_note
            self.sha256 = last_note.sha256
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

    def read_all(self) -> bytes:
        """Return all bytes up to the end of the file, which may have grown since it was opened."""
        pieces: list[bytes] = []
        n_read = 0
        try:
            while True:
                # One byte more than there should be shows that the end is reached.
                n_wanted = min(_PIECE_BYTES, max(0, self.size - n_read) + 1)
                piece = os.pread(self.handle, n_wanted, n_read)
                n_read += len(piece)
                if len(piece) < n_wanted and n_read == self.size:
                    # Most files come in one piece, which is not copied.
                    return b"".join([*pieces, piece])
                if not piece:
                    return b"".join(pieces)
                pieces.append(piece)
        except OSError as error:
            raise self._explain(error) from error

    def fileno(self) -> int:
        return self.handle

    def close(self) -> None:
        handle = self.handle
        self.handle = -1
        if handle >= 0:
            os.close(handle)
