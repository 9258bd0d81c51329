"""MongoDBStorageConnector keeps the contract of storage connectors, on every kind of server that operators run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.io.storage_connectors.mongodb import MongoDBStorageConnector
from data_stack.testing import StorageConnectorContract


class TestMongoDBStandalone(StorageConnectorContract):
    frees_leases_of_killed_processes = True

    @pytest.fixture
    def connector(self, mongodb_uri: str) -> Iterator[StorageConnector]:
        with MongoDBStorageConnector(mongodb_uri) as connector:
            yield connector


class TestMongoDBSmallChunks(StorageConnectorContract):
    """A replica set with authentication; every resource crosses the boundaries of chunks, and none is kept in its pointer."""

    @pytest.fixture
    def connector(self, mongodb_auth_uri: str) -> Iterator[StorageConnector]:
        with MongoDBStorageConnector(mongodb_auth_uri, chunk_bytes=65_536, inline_bytes=0) as connector:
            yield connector
