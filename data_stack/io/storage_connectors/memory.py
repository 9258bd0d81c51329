"""Resources in the memory of this process: for tests, notebooks and small caches."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from data_stack.exception import ResourceNotFoundError
from data_stack.io.identifiers import check_identifier, check_prefix
from data_stack.io.resources import (
    ByteSource,
    Storable,
    StreamedResource,
    SupportedStreamedResourceTypes,
)
from data_stack.io.storage_connectors.connector import BINARY, ResourceInfo, StorageConnector
from data_stack.io.storage_connectors.storable import binary_chunks
from data_stack.io.storage_connectors.writer import ResourceWriter


@dataclass(frozen=True, slots=True)
class _StoredResource:
    """A resource with its metadata."""

    data: bytes
    info: ResourceInfo


class InMemoryStorageConnector(StorageConnector):
    """Keeps resources as bytes objects.

    Pickling copies the resources: another process gets those of that moment.
    """

    knows_digests = True
    _stored: dict[str, _StoredResource]

    def __init__(self) -> None:
        self._stored = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self._stored)} resources>"

    def __getstate__(self) -> dict[str, Any]:
        # Another thread may change the dict while it is pickled, but not this copy.
        return {"_stored": dict(self._stored)}

    def get_resource(
        self, identifier: str, resource_type: SupportedStreamedResourceTypes = BINARY
    ) -> StreamedResource:
        stored = self._look_up(identifier)
        source = BytesSource(stored.data, stored.info)
        return self._make_resource(identifier, source, resource_type)

    def set_resource(self, identifier: str, resource: Storable) -> None:
        with self.create(identifier) as writer:
            writer.writelines(binary_chunks(resource))

    def has_resource(self, identifier: str) -> bool:
        check_identifier(identifier)
        return identifier in self._stored

    def delete_resource(self, identifier: str) -> None:
        self._look_up(identifier)
        # Another thread may have deleted it since.
        self._stored.pop(identifier, None)

    def list_resources(self, prefix: str = "") -> list[str]:
        check_prefix(prefix)
        identifiers = list(self._stored)
        return sorted(identifier for identifier in identifiers if identifier.startswith(prefix))

    def stat(self, identifier: str) -> ResourceInfo:
        return self._look_up(identifier).info

    @contextlib.contextmanager
    def create(self, identifier: str) -> Iterator[ResourceWriter]:
        check_identifier(identifier)
        buffer = io.BytesIO()
        writer = ResourceWriter(identifier, buffer)
        yield writer
        writer.close()
        digest = writer.digest
        info = ResourceInfo(identifier, digest.size, digest.sha256, time.time())
        # One assignment publishes: a reader sees the old resource or the new one.
        self._stored[identifier] = _StoredResource(buffer.getvalue(), info)

    def _look_up(self, identifier: str) -> _StoredResource:
        check_identifier(identifier)
        try:
            return self._stored[identifier]
        except KeyError:
            raise ResourceNotFoundError(identifier, repr(self)) from None


class BytesSource(ByteSource):
    """Reads a bytes object by position.

    Args:
        data: all bytes of the resource.
        info: the metadata of the resource.
    """

    # Attributes in place of the abstract properties; the constructor sets them.
    size = 0
    sha256: str | None = None
    _data: bytes

    def __init__(self, data: bytes, info: ResourceInfo) -> None:
        self.size = info.size
        self.sha256 = info.sha256
        self._data = data

    def readinto_at(self, offset: int, buffer: memoryview) -> int:
        part = memoryview(self._data)[offset : offset + len(buffer)]
        buffer[: len(part)] = part
        return len(part)

    def close(self) -> None:
        """Do nothing: the bytes belong to the connector."""
