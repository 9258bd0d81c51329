"""Resources in the memory of this process: for tests, notebooks and small caches."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Iterator
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


class InMemoryStorageConnector(StorageConnector):
    """Keeps resources as bytes objects. Pickling copies them: another process gets the resources of that moment."""

    knows_digests = True

    def __init__(self) -> None:
        self._stored: dict[str, tuple[bytes, ResourceInfo]] = {}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self._stored)} resources>"

    def __getstate__(self) -> dict[str, Any]:
        return {"_stored": dict(self._stored)}

    def get_resource(
        self, identifier: str, resource_type: SupportedStreamedResourceTypes = BINARY
    ) -> StreamedResource:
        return self._make_resource(
            identifier, BytesSource(*self._look_up(identifier)), resource_type
        )

    def set_resource(self, identifier: str, resource: Storable) -> None:
        with self.create(identifier) as writer:
            writer.writelines(binary_chunks(resource))

    def has_resource(self, identifier: str) -> bool:
        return check_identifier(identifier) in self._stored

    def delete_resource(self, identifier: str) -> None:
        self._look_up(identifier)
        self._stored.pop(identifier, None)

    def list_resources(self, prefix: str = "") -> list[str]:
        check_prefix(prefix)
        return sorted(
            identifier for identifier in list(self._stored) if identifier.startswith(prefix)
        )

    def stat(self, identifier: str) -> ResourceInfo:
        return self._look_up(identifier)[1]

    @contextlib.contextmanager
    def create(self, identifier: str) -> Iterator[ResourceWriter]:
        check_identifier(identifier)
        buffer = io.BytesIO()
        writer = ResourceWriter(identifier, buffer)
        yield writer
        writer.close()
        digest = writer.digest
        # One assignment of one value: a reader sees the old resource or the new one.
        self._stored[identifier] = (
            buffer.getvalue(),
            ResourceInfo(identifier, digest.size, digest.sha256, time.time()),
        )

    def _look_up(self, identifier: str) -> tuple[bytes, ResourceInfo]:
        try:
            return self._stored[check_identifier(identifier)]
        except KeyError:
            raise ResourceNotFoundError(identifier, repr(self)) from None


class BytesSource(ByteSource):
    """A bytes object, read by position."""

    size = 0
    sha256: str | None = None

    def __init__(self, data: bytes, info: ResourceInfo) -> None:
        self._data, self.size, self.sha256 = data, info.size, info.sha256

    def readinto_at(self, offset: int, buffer: memoryview) -> int:
        part = memoryview(self._data)[offset : offset + len(buffer)]
        buffer[: len(part)] = part
        return len(part)

    def close(self) -> None:
        pass  # the bytes belong to the connector
