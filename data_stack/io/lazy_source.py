"""A source of bytes that is opened on first use."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from data_stack.io.byte_source import ByteSource
from data_stack.util.forks import fork_lock


class LazySource(ByteSource):
    """Another source, which is opened on first use.

    Args:
        open_source: opens the other source.
    """

    _open_source: Callable[[], ByteSource]
    #: The other source; None before its first use.
    _opened: ByteSource | None

    def __init__(self, open_source: Callable[[], ByteSource]) -> None:
        self._open_source = open_source
        self._opened = None
        self._lock = fork_lock()

    @property
    def size(self) -> int:
        """Length in bytes."""
        return self._open().size

    @property
    def sha256(self) -> str | None:
        """Recorded SHA-256 of the whole; None if the store does not know it."""
        return self._open().sha256

    @property
    def tag(self) -> str | None:  # type: ignore[override]  # read-only here
        """The version of the bytes, if the store does not know a digest; else None."""
        return self._open().tag

    @property
    def prefetches(self) -> bool:  # type: ignore[override]  # read-only here
        """Whether requests are so slow that reads should be prefetched together."""
        return self._open().prefetches

    def readinto_at(self, offset: int, buffer: memoryview) -> int:
        # Small reads take a microsecond, of which a call of _open() would be a noticeable part.
        opened = self._opened
        if opened is None:
            opened = self._open()
        return opened.readinto_at(offset, buffer)

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return self._open().read_ranges(ranges)

    def read_views(self, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        return self._open().read_views(ranges)

    def prefetch(self, ranges: Sequence[tuple[int, int]]) -> int:
        return self._open().prefetch(ranges)

    def fileno(self) -> int:
        return self._open().fileno()

    def close(self) -> None:
        opened = self._opened
        self._opened = None
        if opened is not None:
            opened.close()

    def _open(self) -> ByteSource:
        """Return the other source; open it if that has not happened yet."""
        opened = self._opened
        if opened is not None:
            return opened
        with self._lock:
            # Another thread may have opened it meanwhile.
            if self._opened is None:
                self._opened = self._open_source()
            return self._opened
