"""Each storage connector keeps the contract of storage connectors, by real servers where it needs
one.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from mongodb_commands import SentCommands
from plain_connector import MinimalConnector

from data_stack.exception import ReadOnlyStorageError, ResourceChangedError
from data_stack.io.storage_connectors import (
    CachedStorageConnector,
    FileStorageConnector,
    FsspecStorageConnector,
    InMemoryStorageConnector,
    MongoDBStorageConnector,
    StorageConnector,
)
from data_stack.testing import StorageConnectorContract
from data_stack.testing.comparing import assert_same_bytes
from data_stack.testing.storage_connector import content

LARGE = hashlib.shake_128(b"large").digest((4 << 20) + 300_000)  # two parts in a bucket

#: What makes each store of fixtures; a cache cannot do what the store behind it cannot.
STORES: dict[str, Callable[[Callable[[str], Any]], StorageConnector]] = {
    "file": lambda fixture: FileStorageConnector(fixture("tmp_path") / "store"),
    "memory": lambda fixture: InMemoryStorageConnector(),
    "cached": lambda fixture: CachedStorageConnector(
        FileStorageConnector(fixture("tmp_path") / "a"), fixture("tmp_path") / "b"
    ),
    "cached minimal": lambda fixture: CachedStorageConnector(
        MinimalConnector(), fixture("tmp_path") / "cache"
    ),
    "minimal": lambda fixture: MinimalConnector(),
    "mongodb": lambda fixture: MongoDBStorageConnector(fixture("mongodb_uri")),
    # a replica set with authentication; all resources cross the boundaries of chunks, and none is
    # kept in its pointer
    "mongodb in small chunks": lambda fixture: MongoDBStorageConnector(
        fixture("mongodb_auth_uri"), chunk_bytes=65_536, inline_bytes=0
    ),
    "s3 by fsspec": lambda fixture: FsspecStorageConnector(
        f"s3://{fixture('s3_server').new_bucket()}/folder",
        client="fsspec",
        **fixture("s3_server").options(),
    ),
    "s3": lambda fixture: FsspecStorageConnector(
        f"s3://{fixture('s3_server').new_bucket()}/folder", **fixture("s3_server").options()
    ),
    "sftp": lambda fixture: FsspecStorageConnector(
        f"sftp://127.0.0.1/{secrets.token_hex(6)}", **fixture("sftp_server").options()
    ),
}


def test_creating_works_in_a_store_that_does_not_rewind() -> None:
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


@pytest.mark.parametrize("store", ["mongodb in small chunks", "s3"])
class TestStoresThatKeepWhatWasReplaced:
    connector = Stores.connector

    def test_replaced_and_deleted_content_goes_after_its_grace_period(
        self, connector: StorageConnector
    ) -> None:
        for number in range(3):
            connector.set_resource("replaced", LARGE[number:])
        connector.set_resource("deleted", LARGE[3:])
        connector.delete_resource("deleted")

        within_grace = connector.collect_garbage()
        promised, freed = connector.collect_garbage(0, dry_run=True), connector.collect_garbage(0)

        assert within_grace == []
        assert promised == freed
        assert (
            sum(garbage.size or 0 for garbage in freed) == 3 * len(LARGE) - 4
        )  # versions 0, 1 and 3
        assert all(garbage.reason for garbage in freed)
        assert_same_bytes(content(connector, "replaced"), LARGE[2:])
        assert connector.collect_garbage(0) == []

    def test_a_reader_of_what_was_swept_is_told_so(self, connector: StorageConnector) -> None:
        connector.set_resource("a", LARGE)
        with connector.get_resource("a") as resource:
            resource.read_at(0, 1)
            connector.set_resource("a", LARGE[1:])
            connector.collect_garbage(0)

            with pytest.raises(ResourceChangedError, match="'a'"):
                resource.read_at(len(LARGE) - 5, 5)
        assert_same_bytes(content(connector, "a"), LARGE[1:])


@pytest.mark.parametrize("store", ["mongodb", "s3"])
def test_a_connector_for_reading_sends_nothing_that_writes(
    store: str, request: pytest.FixtureRequest
) -> None:
    connector: Any = STORES[store](request.getfixturevalue)
    if store == "mongodb":
        reader: Any = MongoDBStorageConnector(
            request.getfixturevalue("mongodb_uri"), read_only=True
        )
    else:
        options = request.getfixturevalue("s3_server").options()
        reader = FsspecStorageConnector(connector._files.place, read_only=True, **options)

    def create() -> None:
        with reader.create("new") as file:
            file.write(b"x")

    connector.set_resource("large", LARGE)
    connector.set_resource("small", b"small")
    before = (
        connector._files.files("") if store == "s3" else None
    )  # of a database, the commands tell

    with SentCommands() as sent:
        assert_same_bytes(content(reader, "large"), LARGE)
        assert reader.read_ranges("large", [(5, 5)]) == [LARGE[5:10]]
        assert reader.list_resources() == ["large", "small"]
        assert (reader.stat("large").size, reader.verify_resource("large").size) == (
            len(LARGE),
        ) * 2
        assert reader.collect_garbage(0, dry_run=True) == []
        with reader.lease("large") as lease:
            assert lease.acquire()
        writing: list[Callable[[], object]] = [
            lambda: reader.set_resource("new", b"x"),
            lambda: reader.set_resource("new", [LARGE]),
            create,
            lambda: reader.delete_resource("small"),
            lambda: reader.collect_garbage(0),
        ]
        for write in writing:
            with pytest.raises(ReadOnlyStorageError):
                write()

    assert sent.writing == []
    assert before is None or connector._files.files("") == before
    for each in (connector, reader) if store == "mongodb" else ():
        each.close()
