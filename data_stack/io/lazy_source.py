"""A source of bytes that is opened on first use."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from data_stack.io.byte_source import ByteSource
from data_stack.util.forks import fork_lock


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
