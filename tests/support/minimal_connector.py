"""A third party's storage connector: a dict, and the three required methods."""

from __future__ import annotations

import io
from typing import Any, cast

from data_stack.exception import ResourceNotFoundError
from data_stack.io.identifiers import check_identifier
from data_stack.io.resources import ResourceFactory, Storable, StreamedResource, SupportedStreamedResourceTypes
from data_stack.io.storage_connectors.connector import BINARY, StorageConnector
from data_stack.io.storage_connectors.writer import binary_chunks


class MinimalConnector(StorageConnector):
    """Keeps bytes in a dict."""

    def __init__(self) -> None:
        self.stored: dict[str, bytes] = {}

    def get_resource(self, identifier: str, resource_type: SupportedStreamedResourceTypes = BINARY) -> StreamedResource:
        if not self.has_resource(identifier):
            raise ResourceNotFoundError(identifier, "a dict")
        buffer = io.BytesIO(self.stored[identifier])
        return cast(StreamedResource, ResourceFactory.get_resource(identifier, buffer, resource_type=resource_type))

    def set_resource(self, identifier: str, resource: Storable) -> Any:
        check_identifier(identifier)
        self.stored[identifier] = b"".join(bytes(chunk) for chunk in binary_chunks(resource))

    def has_resource(self, identifier: str) -> bool:
        return check_identifier(identifier) in self.stored
