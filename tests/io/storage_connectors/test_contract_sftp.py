"""FsspecStorageConnector keeps the contract of storage connectors on a real SFTP server."""

from __future__ import annotations

import secrets

import pytest
from sftp_server import SFTPServer

from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.io.storage_connectors.fsspec import FsspecStorageConnector
from data_stack.testing import StorageConnectorContract


class TestSFTPStorageConnector(StorageConnectorContract):
    frees_leases_of_killed_processes = True

    @pytest.fixture
    def connector(self, sftp_server: SFTPServer) -> StorageConnector:
        return FsspecStorageConnector(f"sftp://127.0.0.1/{secrets.token_hex(6)}", **sftp_server.options())
