"""FsspecStorageConnector keeps the contract of storage connectors on a real S3 server."""

from __future__ import annotations

import pytest
from s3_server import S3Server

from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.io.storage_connectors.fsspec import FsspecStorageConnector
from data_stack.testing import StorageConnectorContract


class TestS3StorageConnector(StorageConnectorContract):
    frees_leases_of_killed_processes = True

    @pytest.fixture
    def connector(self, s3_server: S3Server) -> StorageConnector:
        return FsspecStorageConnector(f"s3://{s3_server.new_bucket()}/folder", **s3_server.options())
