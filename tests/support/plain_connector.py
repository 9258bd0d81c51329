"""Connectors as third parties write them: the three methods, and resources around any file
object.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, cast

from data_stack.exception import ResourceNotFoundError, StorageError
from data_stack.io.identifiers import check_identifier
from data_stack.io.resources import (
    ResourceFactory,
    Storable,
    StreamedResource,
    SupportedStreamedResourceTypes,
)
from data_stack.io.storage_connectors.connector import BINARY, StorageConnector
from data_stack.io.storage_connectors.storable import binary_chunks


class PlainConnector(StorageConnector):
    """Reads a resource whole, and hands it out in memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get_resource(
        self, identifier: str, resource_type: SupportedStreamedResourceTypes = BINARY
    ) -> Any:
        if not self.has_resource(identifier):
            raise ResourceNotFoundError(f"no {identifier}")
        return ResourceFactory.get_resource(
            identifier, self.opened(self.folder / identifier), resource_type=resource_type
        )

    def opened(self, path: Path) -> Any:
        return io.BytesIO(path.read_bytes())

    def set_resource(self, identifier: str, resource: Any) -> None:
        path = self.folder / identifier
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"".join(bytes(chunk) for chunk in binary_chunks(resource)))

    def has_resource(self, identifier: str) -> bool:
        return (self.folder / identifier).is_file()


class FilesConnector(PlainConnector):
    """Hands out an open file, whose position forks share."""

    def opened(self, path: Path) -> Any:
        return path.open("rb")


class UnwritableConnector(PlainConnector):
    """Refuses to store."""

    def set_resource(self, identifier: str, resource: Any) -> None:
        raise StorageError(f"could not store {identifier!r}: read-only")


class MinimalConnector(StorageConnector):
    """Keeps bytes in a dict."""

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}

    def get_resource(
        self, identifier: str, resource_type: SupportedStreamedResourceTypes = BINARY
    ) -> StreamedResource:
        if not self.has_resource(identifier):
            raise ResourceNotFoundError(identifier, "a dict")
        buffer = io.BytesIO(self.stored[identifier])
        return cast(
            StreamedResource,
            ResourceFactory.get_resource(identifier, buffer, resource_type=resource_type),
        )

    def set_resource(self, identifier: str, resource: Storable) -> Any:
        check_identifier(identifier)
        self.stored[identifier] = b"".join(bytes(chunk) for chunk in binary_chunks(resource))

    def has_resource(self, identifier: str) -> bool:
        return check_identifier(identifier) in self.stored
