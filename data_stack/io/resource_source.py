"""An open resource as the bytes of another one."""

from __future__ import annotations

from collections.abc import Sequence

from data_stack.io.byte_source import ByteSource
from data_stack.io.resources import StreamedResource


class ResourceSource(ByteSource):
    """The bytes of a resource, which is closed with this source.

    Args:
        resource: the resource. Its position stays.
    """

    def __init__(self, resource: StreamedResource) -> None:
        self._resource = resource

    @property
    def size(self) -> int:
        """Length in bytes."""
        return self._resource.size

    @property
    def sha256(self) -> str | None:
        """Recorded SHA-256 of the whole; None if the store does not know it."""
        return self._resource.sha256

    @property
    def tag(self) -> str | None:  # type: ignore[override]  # read-only here
        """The version of the bytes, if the store does not know a digest; else None."""
        return self._resource.tag

    @property
    def prefetches(self) -> bool:  # type: ignore[override]  # read-only here
        """Whether reads should be prefetched together."""
        return self._resource.prefetches

    def readinto_at(self, offset: int, buffer: memoryview) -> int:
        return self._resource.readinto_at(offset, buffer)

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return self._resource.read_ranges(ranges)

    def read_views(self, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        return self._resource.read_views(ranges)

    def prefetch(self, ranges: Sequence[tuple[int, int]]) -> int:
        return self._resource.prefetch(ranges)

    def fileno(self) -> int:
        return self._resource.fileno()

    def close(self) -> None:
        self._resource.close()
