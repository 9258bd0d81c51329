"""A connector of a third party, with the three required methods only, keeps the contract by its defaults."""

from __future__ import annotations

import io
from typing import Any, cast

import pytest

from data_stack.exception import ResourceNotFoundError
from data_stack.io.identifiers import check_identifier
from data_stack.io.resources import ResourceFactory, Storable, StreamedResource, SupportedStreamedResourceTypes
from data_stack.io.storage_connectors.connector import BINARY, StorageConnector
from data_stack.io.storage_connectors.writer import binary_chunks
from data_stack.testing import StorageConnectorContract


class MinimalStorageConnector(StorageConnector):
    """Keeps bytes in a dict."""

    def __init__(self) -> None:
        self._stored: dict[str, bytes] = {}

    def get_resource(self, identifier: str, resource_type: SupportedStreamedResourceTypes = BINARY) -> StreamedResource:
        if not self.has_resource(identifier):
            raise ResourceNotFoundError(identifier, "a dict")
        buffer = io.BytesIO(self._stored[identifier])
        return cast(StreamedResource, ResourceFactory.get_resource(identifier, buffer, resource_type=resource_type))

    def set_resource(self, identifier: str, resource: Storable) -> Any:
        check_identifier(identifier)
        self._stored[identifier] = b"".join(bytes(chunk) for chunk in binary_chunks(resource))

    def has_resource(self, identifier: str) -> bool:
        return check_identifier(identifier) in self._stored


class TestMinimalStorageConnector(StorageConnectorContract):
    crosses_processes = False

    @pytest.fixture
    def connector(self) -> StorageConnector:
        return MinimalStorageConnector()
