"""InMemoryStorageConnector keeps the contract of storage connectors."""

from __future__ import annotations

import pytest

from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.io.storage_connectors.memory import InMemoryStorageConnector
from data_stack.testing import StorageConnectorContract


class TestInMemoryStorageConnector(StorageConnectorContract):
    @pytest.fixture
    def connector(self) -> StorageConnector:
        return InMemoryStorageConnector()
