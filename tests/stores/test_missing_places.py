"""A place that does not exist is no empty store: a folder, bucket, database or server's folder
whose name is misspelt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mongodb_server import MongoDBServer
from scripted_s3 import ScriptedS3
from sftp_server import SFTPServer

from data_stack.exception import StorageError
from data_stack.io.storage_connectors import FileStorageConnector, InMemoryStorageConnector
from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.io.storage_connectors.mongodb import MongoDBStorageConnector
from data_stack.io.storage_connectors.object_store import FsspecStorageConnector
from data_stack.stores.copies import copy_datasets
from data_stack.stores.disk_usage import disk_usage
from data_stack.stores.garbage import collect_garbage
from data_stack.stores.verification import verify_storage

#: By kind of a store: makes one at a place that does not exist, by the fixture of its server, and a
#: folder.
MISSING: dict[str, tuple[str, Callable[..., StorageConnector]]] = {
    "folder": ("tmp_path", lambda folder: FileStorageConnector(str(folder / "missing"))),
    "file system of fsspec": (
        "tmp_path",
        lambda folder: FsspecStorageConnector(f"file://{folder}/missing"),
    ),
    "sftp": (
        "sftp_server",
        lambda server: FsspecStorageConnector("sftp://127.0.0.1/missing", **server.options()),
    ),
    "mongodb": (
        "mongodb_server",
        lambda server: MongoDBStorageConnector(server.uri(), database="missing"),
    ),
    "s3": ("s3", lambda server: server.store("misspelt/f")),
}


@pytest.fixture
def s3() -> Iterator[ScriptedS3]:
    with ScriptedS3() as server:
        yield server


@pytest.fixture(params=MISSING)
def missing(request: pytest.FixtureRequest) -> StorageConnector:
    """A store at a place that does not exist."""
    fixture, make = MISSING[request.param]
    return make(request.getfixturevalue(fixture))


def test_no_command_takes_a_missing_place_for_an_empty_store(missing: StorageConnector) -> None:
    for ask in (
        lambda: verify_storage(missing, progress=False),
        lambda: collect_garbage(missing, dry_run=True),
        lambda: collect_garbage(missing),
        lambda: copy_datasets(missing, InMemoryStorageConnector()),
    ):
        with pytest.raises(StorageError, match="does not exist"):
            ask()


def test_the_first_resource_makes_a_folder_or_database(
    tmp_path: Path, sftp_server: SFTPServer, mongodb_uri: str
) -> None:
    stores: list[StorageConnector] = [
        FsspecStorageConnector(f"file://{tmp_path}/new"),
        FsspecStorageConnector(f"sftp://127.0.0.1/{tmp_path.name}", **sftp_server.options()),
        MongoDBStorageConnector(mongodb_uri),
    ]

    for store in stores:
        assert store.missing_place() is not None
        store.set_resource("a", b"a")
        assert store.missing_place() is None
        store.delete_resource("a")
        assert store.missing_place() is None
        assert verify_storage(store, progress=False).n_resources == 0
        assert disk_usage(store).total == 0


def test_a_user_who_may_not_list_collections_is_believed(
    mongodb_with_auth: MongoDBServer,
) -> None:
    """The right to read a collection does not bring the right to list them."""
    with mongodb_with_auth.client() as client:
        database = client["restricted"]
        privilege = {"resource": {"db": "restricted", "collection": "other"}, "actions": ["find"]}
        database.command("createRole", "reader_of_other", privileges=[privilege], roles=[])
        database.command("createUser", "reader", pwd="secret", roles=["reader_of_other"])
    uri = f"mongodb://reader:secret@127.0.0.1:{mongodb_with_auth.port}/restricted?authSource=restricted"

    assert MongoDBStorageConnector(uri).missing_place() is None
