"""The contract of immutable bytes with positional access."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Sequence


class ByteSource(ABC):
    """Immutable bytes with positional access, which a resource of a storage connector reads.

    A source opens at the first read, or when its size is requested. Any number of threads may read
    at once. After a fork, parent and child read the same bytes independently.

    Attributes:
        tag: the version of the bytes, such as an ETag, if the store does not know a digest; else
            None.
        prefetches: whether requests are so slow that reads should be prefetched together.
    """

    tag: str | None = None
    prefetches: bool = False

    @property
    @abstractmethod
    def size(self) -> int:
        """Length in bytes."""

    @property
    @abstractmethod
    def sha256(self) -> str | None:
        """Recorded SHA-256 of the whole, 64 hex digits; None if the store does not know it."""

    @abstractmethod
    def readinto_at(self, offset: int, buffer: memoryview) -> int:
        """Fill ``buffer`` from ``offset`` on.

        Returns:
            How many bytes were read: fewer than asked for only at the end.
        """

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read ``(offset, size)`` ranges, in one request where the store can.

        Each range is cut short at the end of the bytes.
        """
        parts = []
        for offset, size in ranges:
            n_available = max(0, self.size - offset)
            data = bytearray(min(size, n_available))
            if data:
                n_read = self.readinto_at(offset, memoryview(data))
                del data[n_read:]
            parts.append(bytes(data))
        return parts

    def read_views(self, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        """Read ranges as :meth:`read_ranges` does, but do not copy bytes that are in memory.

        The views are for a caller that copies parts of them and then drops them: a view may keep
        many more bytes in memory than its own. Nobody writes to the memory of a view.
        """
        return [memoryview(data) for data in self.read_ranges(ranges)]

    def prefetch(self, ranges: Sequence[tuple[int, int]]) -> int:
        """Fetch ``(offset, size)`` ranges that are about to be read.

        They come in one request where that helps.

        Returns:
            How many of the first ranges are cached now; at least one of any.
        """
        return len(ranges)

    def fileno(self) -> int:
        """Return a file descriptor for positional reads and mapping.

        Raises:
            io.UnsupportedOperation: the source is not a file.
        """
        raise io.UnsupportedOperation("this resource is not a file")

    @abstractmethod
    def close(self) -> None:
        """Release handles; no reads may follow."""
