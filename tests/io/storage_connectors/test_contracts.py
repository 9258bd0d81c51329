"""Each storage connector keeps the contract of storage connectors, by real servers where it needs one."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from plain_connector import MinimalConnector

from data_stack.io.storage_connectors import (
    CachedStorageConnector,
    FileStorageConnector,
    FsspecStorageConnector,
    InMemoryStorageConnector,
    MongoDBStorageConnector,
    StorageConnector,
)
from data_stack.testing import StorageConnectorContract

#: What makes each store of fixtures; a cache cannot do what the store behind it cannot.
STORES: dict[str, Callable[[Callable[[str], Any]], StorageConnector]] = {
    "file": lambda fixture: FileStorageConnector(fixture("tmp_path") / "store"),
    "memory": lambda fixture: InMemoryStorageConnector(),
    "cached": lambda fixture: CachedStorageConnector(FileStorageConnector(fixture("tmp_path") / "a"), fixture("tmp_path") / "b"),
    "cached minimal": lambda fixture: CachedStorageConnector(MinimalConnector(), fixture("tmp_path") / "cache"),
    "minimal": lambda fixture: MinimalConnector(),
    "mongodb": lambda fixture: MongoDBStorageConnector(fixture("mongodb_uri")),
    # a replica set with authentication; all resources cross the boundaries of chunks, and none is kept in its pointer
    "mongodb in small chunks": lambda fixture: MongoDBStorageConnector(
        fixture("mongodb_auth_uri"), chunk_bytes=65_536, inline_bytes=0
    ),
    "s3": lambda fixture: FsspecStorageConnector(
        f"s3://{fixture('s3_server').new_bucket()}/folder", **fixture("s3_server").options()
    ),
    "sftp": lambda fixture: FsspecStorageConnector(
        f"sftp://127.0.0.1/{secrets.token_hex(6)}", **fixture("sftp_server").options()
    ),
}


def test_what_is_created_is_whole_in_a_store_that_does_not_rewind() -> None:
    class Forward(MinimalConnector):
        def set_resource(self, identifier: str, resource: Any) -> None:
            self.stored[identifier] = resource.read()

    store = Forward()
    with store.create("a") as writer:
        writer.write(b"abc")

    assert store.stored == {"a": b"abc"}


class Stores(StorageConnectorContract):
    @pytest.fixture
    def connector(self, store: str, request: pytest.FixtureRequest) -> Iterator[StorageConnector]:
        connector = STORES[store](request.getfixturevalue)
        yield connector
        if isinstance(connector, MongoDBStorageConnector):
            connector.close()


@pytest.mark.parametrize("store", ["memory", "cached", "mongodb in small chunks"])
class TestStores(Stores):
    pass


@pytest.mark.parametrize("store", ["file", "mongodb", "s3", "sftp"])
class TestStoresThatFreeLeases(Stores):
    frees_leases_of_killed_processes = True


@pytest.mark.parametrize("store", ["cached minimal", "minimal"])
class TestStoresOfOneProcess(Stores):
    crosses_processes = False
