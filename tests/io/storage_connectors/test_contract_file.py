"""FileStorageConnector keeps the contract of storage connectors."""

from __future__ import annotations

from pathlib import Path

import pytest

from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.io.storage_connectors.file import FileStorageConnector
from data_stack.testing import StorageConnectorContract


class TestFileStorageConnector(StorageConnectorContract):
    frees_leases_of_killed_processes = True

    @pytest.fixture
    def connector(self, tmp_path: Path) -> StorageConnector:
        return FileStorageConnector(tmp_path / "store")
