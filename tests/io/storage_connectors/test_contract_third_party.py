"""A connector of a third party, with the three required methods only, keeps the contract by its defaults."""

from __future__ import annotations

import pytest
from minimal_connector import MinimalConnector

from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.testing import StorageConnectorContract


class TestMinimalConnector(StorageConnectorContract):
    crosses_processes = False

    @pytest.fixture
    def connector(self) -> StorageConnector:
        return MinimalConnector()
