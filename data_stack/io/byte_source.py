"""Sealed bytes with positional access, which a lazy resource reads from, and a raw stream over them."""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined]  # typeshed: Python 3.12

__all__ = ["ByteSource", "PositionalRaw", "Positioned"]


class ByteSource(ABC):
    """Sealed bytes with positional access: what a storage connector gives a lazy resource to read from.

    Nothing is opened before the first byte or the size is asked for. Any number of threads may read at
    once. After a fork the child reads the same sealed bytes, independently of its parent.
    """

    @property
    @abstractmethod
    def size(self) -> int:
        """Length in bytes."""

    @property
    @abstractmethod
    def sha256(self) -> str | None:
        """SHA-256 of the whole as the store recorded it (64 hex digits); None where the store does not know it."""

    @property
    def tag(self) -> str | None:
        """What the store tells this version of the bytes by where it knows no digest, such as an ETag; None if there is none."""
        return None

    @abstractmethod
    def readinto_at(self, offset: int, buffer: memoryview) -> int:
        """Fill ``buffer`` from ``offset`` on; return the bytes read, fewer than asked only at the end."""

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read ``(offset, size)`` ranges, each cut short at the end; in one request where the store can."""
        parts = []
        for offset, size in ranges:
            data = bytearray(min(size, max(0, self.size - offset)))
            n_read = self.readinto_at(offset, memoryview(data)) if data else 0
            parts.append(bytes(data[:n_read]))
        return parts

    @property
    def prefetches(self) -> bool:
        """Whether a request costs so much that what is read one by one should be fetched together before."""
        return False

    def prefetch(self, ranges: Sequence[tuple[int, int]]) -> int:
        """Have ``(offset, size)`` ranges at hand that are about to be read one by one, in one request, where that is of use.

        Returns:
            How many of them are at hand, from the first on; at least one of any.
        """
        return len(ranges)

    def fileno(self) -> int:
        """A file descriptor for reading by position or mapping; its own position means nothing.

        Raises:
            io.UnsupportedOperation: there is none.
        """
        raise io.UnsupportedOperation("this resource is no file")

    @abstractmethod
    def close(self) -> None:
        """Let go of handles. Reading afterwards is an error of the caller."""


class Positioned(io.RawIOBase):
    """A raw stream with a position of its own, over what a subclass reads by position."""

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

    def readinto(self, buffer: Buffer, /) -> int:
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


class PositionalRaw(Positioned):
    """A raw stream over a ByteSource, so that no two processes share one position."""

    def __init__(self, source: ByteSource, position: int = 0) -> None:
        self.source = source
        self._position = position
        self._owner = True

    @property
    def size(self) -> int:
        return self.source.size

    def readinto_at(self, offset: int, buffer: memoryview, /) -> int:
        return self.source.readinto_at(offset, buffer)

    def fileno(self) -> int:
        return self.source.fileno()

    def disown(self) -> None:
        """Leave the source open when this stream goes."""
        self._owner = False

    def close(self) -> None:
        if not self.closed and self._owner:
            self.source.close()
        super().close()
