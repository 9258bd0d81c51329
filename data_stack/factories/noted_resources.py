"""The resources of a dataset that is being prepared, with a note of those that are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from data_stack.factories.resource_record import ResourceRecord
from data_stack.factories.resources import Resources
from data_stack.io.resource_source import ResourceSource
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors.connector import StorageConnector


class NotedResources(Resources):
    """The resources of a dataset, with the names of those of which bytes were read.

    A file that is only mapped into memory is not noted: of a remote store, it would not be read.

    Args:
        storage_connector: the store.
        dataset: the folder of its resources, ``name/version``.
        records: the resources as they were stored.
    """

    #: The names of those that were read, in the order of the first reads.
    _names_read: dict[str, None]

    def __init__(
        self,
        storage_connector: StorageConnector,
        dataset: str,
        records: Iterable[ResourceRecord],
    ) -> None:
        super().__init__(storage_connector, dataset, records)
        self._names_read = {}

    def names_read(self) -> list[str]:
        """Return the names of the resources that were read so far."""
        return list(self._names_read)

    def __getitem__(self, name: str) -> StreamedResource:
        resource: Any = super().__getitem__(name)
        if not isinstance(resource, StreamedResource) or not resource.is_sealed:
            # The stream of a third party's connector may be read in any way.
            self._note(name)
            return resource  # type: ignore[no-any-return]  # any stream
        source = _NotedSource(resource, lambda: self._note(name))
        return StreamedResource.from_source(resource.identifier, source, self._connector)

    def _note(self, name: str) -> None:
        self._names_read[name] = None


class _NotedSource(ResourceSource):
    """The bytes of a resource; each read is noted."""

    def __init__(self, resource: StreamedResource, note: Callable[[], None]) -> None:
        super().__init__(resource)
        self._note = note

    def readinto_at(self, offset: int, buffer: memoryview) -> int:
        self._note()
        return super().readinto_at(offset, buffer)

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        self._note()
        return super().read_ranges(ranges)

    def read_views(self, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        self._note()
        return super().read_views(ranges)
