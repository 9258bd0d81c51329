"""Each storage connector keeps the contract of storage connectors, by real servers where it needs one."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from plain_connector import MinimalConnector
from s3_server import S3Server
from sftp_server import SFTPServer

from data_stack.io.storage_connectors import (
    CachedStorageConnector,
    FileStorageConnector,
    FsspecStorageConnector,
    InMemoryStorageConnector,
    MongoDBStorageConnector,
    StorageConnector,
)
from data_stack.testing import StorageConnectorContract


class TestFileStorageConnector(StorageConnectorContract):
    frees_leases_of_killed_processes = True

    @pytest.fixture
    def connector(self, tmp_path: Path) -> StorageConnector:
        return FileStorageConnector(tmp_path / "store")


class TestInMemoryStorageConnector(StorageConnectorContract):
    @pytest.fixture
    def connector(self) -> StorageConnector:
        return InMemoryStorageConnector()


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


class TestMinimalConnector(StorageConnectorContract):
    crosses_processes = False

    @pytest.fixture
    def connector(self) -> StorageConnector:
        return MinimalConnector()


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


class TestS3StorageConnector(StorageConnectorContract):
    frees_leases_of_killed_processes = True

    @pytest.fixture
    def connector(self, s3_server: S3Server) -> StorageConnector:
        return FsspecStorageConnector(f"s3://{s3_server.new_bucket()}/folder", **s3_server.options())


class TestSFTPStorageConnector(StorageConnectorContract):
    frees_leases_of_killed_processes = True

    @pytest.fixture
    def connector(self, sftp_server: SFTPServer) -> StorageConnector:
        return FsspecStorageConnector(f"sftp://127.0.0.1/{secrets.token_hex(6)}", **sftp_server.options())
