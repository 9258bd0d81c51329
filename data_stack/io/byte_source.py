"""Immutable bytes with positional access, and a raw stream over them."""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from data_stack.util.forks import fork_lock


class ByteSource(ABC):
    """Immutable bytes with positional access, which a resource of a storage connector reads.

    It opens at the first read, or when its size is requested. Any number of threads may read at once. After a fork, parent and
    child read the same bytes independently.
    """

    @property
    @abstractmethod
    def size(self) -> int:
        """Length in bytes."""

    @property
    @abstractmethod
    def sha256(self) -> str | None:
        """Recorded SHA-256 of the whole, 64 hex digits; None if the store does not know it."""

    tag: str | None = None
    """The version of the bytes, such as an ETag, if the store does not know a digest; else None."""

    prefetches: bool = False
    """Whether requests are so slow that reads should be prefetched together."""

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

    def prefetch(self, ranges: Sequence[tuple[int, int]]) -> int:
        """Fetch ``(offset, size)`` ranges that are about to be read, in one request where that helps.

        Returns:
            How many of the first ranges are cached now; at least one of any.
        """
        return len(ranges)

    def fileno(self) -> int:
        """A file descriptor for positional reads and mapping.

        Raises:
            io.UnsupportedOperation: it is not a file.
        """
        raise io.UnsupportedOperation("this resource is not a file")

    @abstractmethod
    def close(self) -> None:
        """Release handles; no reads may follow."""


class LazySource(ByteSource):
    """Another source, which is opened on first use.

    Args:
        open_source: opens it.
    """

    def __init__(self, open_source: Callable[[], ByteSource]) -> None:
        self._open_source = open_source
        self._opened: ByteSource | None = None
        self._lock = fork_lock()

    size = property(lambda self: (self._opened or self._open()).size)
    sha256 = property(lambda self: (self._opened or self._open()).sha256)
    tag = property(lambda self: (self._opened or self._open()).tag)
    prefetches = property(lambda self: (self._opened or self._open()).prefetches)

    def readinto_at(self, offset: int, buffer: memoryview) -> int:
        return (self._opened or self._open()).readinto_at(offset, buffer)

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return (self._opened or self._open()).read_ranges(ranges)

    def prefetch(self, ranges: Sequence[tuple[int, int]]) -> int:
        return (self._opened or self._open()).prefetch(ranges)

    def fileno(self) -> int:
        return self._open().fileno()

    def close(self) -> None:
        opened, self._opened = self._opened, None
        vars(self).pop("readinto_at", None)
        if opened is not None:
            opened.close()

    def _open(self) -> ByteSource:
        with self._lock:
            if self._opened is None:
                self._opened = self._open_source()
                vars(self)["readinto_at"] = (
                    self._opened.readinto_at
                )  # one call less: small reads of a file are that fast
            return self._opened


class Positioned(io.RawIOBase):
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


class PositionalRaw(Positioned):
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
