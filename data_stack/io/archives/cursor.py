"""Forward reading of a stream that was lent by the caller."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, Final

from data_stack.exception import ArchiveError
from data_stack.io.resources import StreamedResource

CHUNK_BYTES: Final = 1 << 17


class LentFile:
    """A seekable binary stream of the caller's, read by position, from any thread; never closed.

    Args:
        stream: the stream; where it stands does not matter, and is changed.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        stream.seek(0, os.SEEK_END)
        self.size = int(stream.tell())

    def read_at(self, offset: int, size: int) -> bytes:
        """Read up to ``size`` bytes from ``offset`` on; none at the end."""
        size = min(size, self.size - offset)
        if size <= 0:
            return b""
        if isinstance(self._stream, StreamedResource):
            return self._stream.read_at(offset, size)
        with self._lock:
            self._stream.seek(offset)
            return checked_bytes(self._stream.read(size))


class Cursor:
    """Reads forward in blocks, and knows how far it has come.

    Args:
        read: gives up to as many bytes as asked for; none at the end.
        archive: what is read, for messages.
        block_bytes: how much to ask for at least.
    """

    def __init__(self, read: Callable[[int], Any], archive: str, block_bytes: int = CHUNK_BYTES) -> None:
        self._read, self.archive, self._block_bytes = read, archive, block_bytes
        self._block, self._at = b"", 0
        self.position = 0

    def read(self, size: int) -> bytes:
        """Read up to ``size`` bytes; none at the end."""
        if self._at == len(self._block):
            self._block, self._at = checked_bytes(self._read(max(size, self._block_bytes))), 0
        data = self._block[self._at : self._at + size]
        self._at += len(data)
        self.position += len(data)
        return data

    def unread(self, n_bytes: int) -> None:
        """Take back the last ``n_bytes`` of the last read."""
        self._at -= n_bytes
        self.position -= n_bytes

    def peek(self, size: int) -> bytes:
        """The next ``size`` bytes, fewer at the end, without moving on."""
        while len(self._block) - self._at < size:
            if not (more := checked_bytes(self._read(max(size, self._block_bytes)))):
                break
            self._block, self._at = self._block[self._at :] + more, 0
        return self._block[self._at : self._at + size]

    def read_exactly(self, size: int, what: str) -> bytes:
        """Read ``size`` bytes of ``what``.

        Raises:
            ArchiveError: the stream ends before.
        """
        data = self.read(size)
        while len(data) < size:
            if not (more := self.read(size - len(data))):
                raise self.cut_short(what)
            data += more
        return data

    def skip(self, size: int, what: str) -> None:
        """Pass over ``size`` bytes of ``what``.

        Raises:
            ArchiveError: the stream ends before.
        """
        while size:
            if not (data := self.read(min(size, CHUNK_BYTES))):
                raise self.cut_short(what)
            size -= len(data)

    def cut_short(self, what: str) -> ArchiveError:
        """The error for a stream that ends too early."""
        return ArchiveError(
            f"{self.archive!r} is cut short: it ends after {self.position:,} bytes, inside of {what}. Fetch it again."
        )


class PositionalCursor(Cursor):
    """A cursor of its own over a part of a file that others read too; passing over bytes costs nothing."""

    def __init__(
        self, file: LentFile, archive: str, start: int = 0, end: int | None = None, block_bytes: int = CHUNK_BYTES
    ) -> None:
        super().__init__(self._read_here, archive, block_bytes)
        self._file, self._offset = file, start
        self._end = file.size if end is None else end

    def _read_here(self, size: int) -> bytes:
        data = self._file.read_at(self._offset, min(size, self._end - self._offset))
        self._offset += len(data)
        return data

    def skip(self, size: int, what: str) -> None:
        beyond = size - (len(self._block) - self._at)
        if beyond <= 0:
            self._at += size
        elif beyond > self._end - self._offset:
            raise self.cut_short(what)
        else:
            self._block, self._at = b"", 0
            self._offset += beyond
        self.position += size


def can_seek(stream: Any) -> bool:
    """Whether a file-like object says that it can be read again from its start."""
    return bool(stream.seekable()) if hasattr(stream, "seekable") else hasattr(stream, "seek")


def name_of(stream: Any) -> str:
    """What to call a stream in a message."""
    name = getattr(stream, "identifier", None) or getattr(stream, "name", None)
    return name if isinstance(name, str) else f"<{type(stream).__name__}>"


def checked_bytes(data: Any) -> bytes:
    """What a file-like object gave, as bytes."""
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    if data is None:  # io's "nothing yet" of a stream that does not block
        raise ArchiveError("an archive cannot be read from a non-blocking stream")
    raise TypeError(f"an archive is read from bytes, but the stream gave {type(data).__name__}; open it in binary mode")
