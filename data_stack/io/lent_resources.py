"""Resources that a caller lends to a reader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from data_stack.exception import ResourceNotFoundError, UnsupportedStorageOperationError
from data_stack.io.resources import ByteSource, StreamedResource
from data_stack.io.storage_connectors.writer import ResourceWriter


class LentResources(Mapping[str, StreamedResource]):
    """Resources by name, such as those of a dataset: ``resources[name]`` opens one, which the caller closes."""

    @property
    def checks_reads(self) -> bool:
        """Whether the store verifies each read."""
        return False

    def create(self, name: str) -> AbstractContextManager[ResourceWriter]:
        """Write a resource, as ``Folder.create``."""
        raise UnsupportedStorageOperationError(
            f"cannot write {name!r}: these resources are for reading; write in preprocess(), to its argument `prepared`"
        )


class OneResource(LentResources):
    """One resource of the caller, under its identifier; each opened copy has its own position."""

    def __init__(self, resource: StreamedResource) -> None:
        self._resource = resource

    def __getitem__(self, name: str) -> StreamedResource:
        if name != self._resource.identifier:
            raise ResourceNotFoundError(f"found only {self._resource.identifier!r}, not {name!r:.80}")
        lent = LentResource.from_source(name, _LentBytes(self._resource), self, self._resource.chunk_size)
        lent.lender = self._resource
        return lent

    get_resource = __getitem__

    def __contains__(self, name: object) -> bool:
        return name == self._resource.identifier

    def __iter__(self) -> Iterator[str]:
        return iter((self._resource.identifier,))

    def __len__(self) -> int:
        return 1


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
