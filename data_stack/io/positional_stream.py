"""Raw streams over positional reads."""

from __future__ import annotations

import io
import os
from abc import abstractmethod
from operator import attrgetter
from typing import Any

from data_stack.io.byte_source import ByteSource


class PositionalStream(io.RawIOBase):
    """A raw stream over positional reads of a subclass."""

    _position = 0

    @property
    @abstractmethod
    def size(self) -> int:
        """Length in bytes."""

    @abstractmethod
    def readinto_at(self, offset: int, buffer: memoryview, /) -> int:
        """Fill ``buffer`` from ``offset`` on; return the bytes read, fewer only at the end."""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        n_read = self.readinto_at(self._position, memoryview(buffer).cast("B"))
        self._position += n_read
        return n_read

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        start = (0, self._position, self.size if whence == os.SEEK_END else 0)[whence]
        if start + offset < 0:
            raise ValueError(f"negative seek position {start + offset}")
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        return self._position


#: Of a file that is read whole, at once.
_PIECE_BYTES = 32 << 20


class SourceStream(PositionalStream):
    """A raw stream over a ByteSource with its own position.

    Attributes:
        is_owner: whether the source closes when this stream does.
    """

    is_owner = True

    def __init__(self, source: ByteSource, position: int = 0) -> None:
        self.source, self._position = source, position

    size = property(attrgetter("source.size"))

    def readinto_at(self, offset: int, buffer: memoryview, /) -> int:
        return self.source.readinto_at(offset, buffer)

    def readall(self) -> bytes:
        # The base class reads 8 KiB at once. A size may be a stranger's claim, so memory is only taken piece by piece.
        pieces = []
        while piece := self.read(min(_PIECE_BYTES, max(0, self.size - self._position))):
            pieces.append(piece)
        return b"".join(pieces)

    def fileno(self) -> int:
        return self.source.fileno()

    def close(self) -> None:
        if not self.closed and self.is_owner:
            self.source.close()
        super().close()
