"""Raw streams over positional reads."""

from __future__ import annotations

import io
import os
from abc import abstractmethod
from typing import Any, Final

from data_stack.io.byte_source import ByteSource

#: How much of a resource that is read whole is read at a time.
_PIECE_BYTES: Final = 32 << 20


class PositionalStream(io.RawIOBase):
    """A raw stream over the positional reads of a subclass."""

    #: Where the next read begins.
    _position = 0

    @property
    @abstractmethod
    def size(self) -> int:
        """Length in bytes."""

    @abstractmethod
    def readinto_at(self, offset: int, buffer: memoryview, /) -> int:
        """Fill ``buffer`` from ``offset`` on.

        Returns:
            How many bytes were read, fewer only at the end.
        """

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        n_read = self.readinto_at(self._position, memoryview(buffer).cast("B"))
        self._position += n_read
        return n_read

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        if whence == os.SEEK_SET:
            position = offset
        elif whence == os.SEEK_CUR:
            position = self._position + offset
        elif whence == os.SEEK_END:
            position = self.size + offset
        else:
            raise ValueError(f"whence must be 0, 1 or 2, got {whence}")
        if position < 0:
            # As of files of the system. zipfile looks for records before the start of a short file,
            # and expects this error; without a number, as no system call failed.
            raise OSError(f"negative seek position {position}")
        self._position = position
        return position

    def tell(self) -> int:
        return self._position


class SourceStream(PositionalStream):
    """A raw stream over a source, with a position of its own.

    Args:
        source: the source.
        position: where the first read begins.

    Attributes:
        source: the source.
        is_owner: whether the source is closed with this stream.
    """

    source: ByteSource
    is_owner: bool

    def __init__(self, source: ByteSource, position: int = 0) -> None:
        self.source = source
        self.is_owner = True
        self._position = position

    @property
    def size(self) -> int:
        """Length in bytes."""
        return self.source.size

    def readinto_at(self, offset: int, buffer: memoryview, /) -> int:
        return self.source.readinto_at(offset, buffer)

    def readall(self) -> bytes:
        # The base class reads 8 KiB at a time. All bytes are not read at once, as the size may be
        # wrong or a lie, and memory would be allocated for it.
        pieces = list[bytes]()
        while True:
            n_left = max(0, self.size - self._position)
            piece = self.read(min(_PIECE_BYTES, n_left))
            if not piece:
                return b"".join(pieces)
            pieces.append(piece)

    def fileno(self) -> int:
        return self.source.fileno()

    def close(self) -> None:
        if not self.closed and self.is_owner:
            self.source.close()
        super().close()
