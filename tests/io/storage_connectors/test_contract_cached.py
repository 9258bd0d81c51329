"""CachedStorageConnector keeps the contract of storage connectors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from data_stack.io.storage_connectors.cached import CachedStorageConnector
from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.io.storage_connectors.file import FileStorageConnector
from data_stack.io.storage_connectors.mongodb import MongoDBStorageConnector
from data_stack.testing import StorageConnectorContract


class TestCachedFileStorageConnector(StorageConnectorContract):
    @pytest.fixture
    def connector(self, tmp_path: Path) -> StorageConnector:
        return CachedStorageConnector(FileStorageConnector(tmp_path / "remote"), tmp_path / "cache")


class TestCachedMongoDBStorageConnector(StorageConnectorContract):
    @pytest.fixture
    def connector(self, mongodb_uri: str, tmp_path: Path) -> Iterator[StorageConnector]:
        with MongoDBStorageConnector(mongodb_uri) as remote:
            yield CachedStorageConnector(remote, tmp_path / "cache")


class TestCacheThatCannotBeWritten(StorageConnectorContract):
    @pytest.fixture
    def connector(self, tmp_path: Path) -> StorageConnector:
        (tmp_path / "file").touch()
        return CachedStorageConnector(FileStorageConnector(tmp_path / "remote"), tmp_path / "file" / "cache")
