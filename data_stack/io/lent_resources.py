"""A resource that a caller lends to a reader."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from data_stack.exception import ResourceNotFoundError
from data_stack.io.folder import Folder
from data_stack.io.resources import ByteSource, StreamedResource


class OneResource:
    """A store of one resource of the caller, under its identifier; each opened copy has its own position."""

    def __init__(self, resource: StreamedResource) -> None:
        self._resource = resource

    def get_resource(self, name: str) -> StreamedResource:
        """Open the resource."""
        if not self.has_resource(name):
            raise ResourceNotFoundError(f"found only {self._resource.identifier!r}, not {name!r:.80}")
        lent = LentResource.from_source(name, _LentBytes(self._resource), self, self._resource.chunk_size)
        lent.lender = self._resource
        return lent

    def has_resource(self, name: str) -> bool:
        """Whether the resource has this name."""
        return name == self._resource.identifier

    def list_resources(self, prefix: str) -> list[str]:
        """Its name, if it begins with ``prefix``."""
        return [name for name in (self._resource.identifier,) if name.startswith(prefix)]


def lend_folder(resource: StreamedResource) -> Folder:
    """A folder with one resource. Reading from it neither moves nor closes the resource."""
    return Folder(OneResource(resource))


class LentResource(StreamedResource):
    """A resource of the caller with its own position. It pickles as that resource, which stays open when this one is closed."""

    lender: StreamedResource

    def __reduce__(self) -> tuple[Any, ...]:
        return self.lender.__reduce__()


class _LentBytes(ByteSource):
    """The bytes of a resource that the caller closes."""

    def __init__(self, resource: StreamedResource) -> None:
        self._resource = resource

    @property
    def size(self) -> int:
        return self._resource.size

    @property
    def sha256(self) -> str | None:
        return self._resource.sha256

    @property
    def tag(self) -> str | None:
        return self._resource.tag

    def readinto_at(self, offset: int, buffer: memoryview) -> int:
        return self._resource.readinto_at(offset, buffer)

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return self._resource.read_ranges(ranges)

    @property
    def prefetches(self) -> bool:
        return self._resource.prefetches

    def prefetch(self, ranges: Sequence[tuple[int, int]]) -> int:
        return self._resource.prefetch(ranges)

    def fileno(self) -> int:
        return self._resource.fileno()

    def close(self) -> None:
        pass
