"""FsspecStorageConnector keeps the contract of storage connectors on a file system that publishes by renaming."""

from __future__ import annotations

from pathlib import Path

import pytest

from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.io.storage_connectors.fsspec import FsspecStorageConnector
from data_stack.testing import StorageConnectorContract


class TestFsspecStorageConnectorInFolder(StorageConnectorContract):
    frees_leases_of_killed_processes = True

    @pytest.fixture
    def connector(self, tmp_path: Path) -> StorageConnector:
        return FsspecStorageConnector(f"file://{tmp_path}/store")
