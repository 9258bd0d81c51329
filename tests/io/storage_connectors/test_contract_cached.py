"""CachedStorageConnector keeps the contract of storage connectors."""

from __future__ import annotations

from pathlib import Path

import pytest
from minimal_connector import MinimalConnector

from data_stack.io.storage_connectors.cached import CachedStorageConnector
from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.io.storage_connectors.file import FileStorageConnector
from data_stack.testing import StorageConnectorContract


class TestCachedFileStorageConnector(StorageConnectorContract):
    @pytest.fixture
    def connector(self, tmp_path: Path) -> StorageConnector:
        return CachedStorageConnector(FileStorageConnector(tmp_path / "remote"), tmp_path / "cache")


class TestCachedMinimalConnector(StorageConnectorContract):
    """A cache cannot do what the store behind it cannot."""

    crosses_processes = False

    @pytest.fixture
    def connector(self, tmp_path: Path) -> StorageConnector:
        return CachedStorageConnector(MinimalConnector(), tmp_path / "cache")
