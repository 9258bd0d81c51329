"""Files of other tools in a store, whose names need not be identifiers, are listed, read and
deleted.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from s3_server import ACCESS_KEY, SECRET_KEY, S3Server
from sftp_server import SFTPServer

import data_stack
from data_stack.exception import (
    MalformedIdentifierError,
    MaliciousFilePathError,
    ResourceNotFoundError,
)
from data_stack.io.folder import folder_of
from data_stack.io.identifiers import check_key, check_key_prefix, is_key
from data_stack.io.location import location_of
from data_stack.io.storage_connectors import (
    CachedStorageConnector,
    FileStorageConnector,
    FsspecStorageConnector,
    InMemoryStorageConnector,
    StorageConnector,
)
from data_stack.io.tree import LINK_OF_STORE, LeftOut
from data_stack.io.url import split_url

#: Names that no identifier can have, but files on any POSIX system.
NAMES = [
    "a b", " a", "ü", "a(1)", "50%", "a%20b", "12:30", "~a", "a&b", "q?x=1", "hash#1", "a~", ".hidden", "-a", "a.", "CON",
    "*", "[a]", "a\\b", "x" * 255, "d/e f/g", "city=São Paulo/part 0.parquet",
]  # fmt: skip

HOSTILE_KEYS: list[Any] = [
    "", "..", "../up", "a/../b", ".", "a/./b", "a/", "a\0b", ".data_stack/resources/a~", "a/.~half", "x" * 4097,
    None, 1, b"a", Path("a"),
]  # fmt: skip

Put = Callable[[str, bytes], object]


@pytest.fixture(params=["folder", "s3", "file://", "cached folder", "cached s3"])
def store(
    request: pytest.FixtureRequest, tmp_path: Path, s3_server: S3Server
) -> tuple[StorageConnector, Put]:
    """A store, and how another tool puts a file into it."""

    def put_file(name: str, data: bytes) -> None:
        path = tmp_path / "store" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

    bucket = s3_server.new_bucket()

    def put_object(name: str, data: bytes) -> None:
        s3_server.client.put_object(Bucket=bucket, Key=name, Body=data)

    kind = request.param.removeprefix("cached ")
    connector: StorageConnector
    if kind == "s3":
        connector = FsspecStorageConnector(f"s3://{bucket}", **s3_server.options())
    elif kind == "folder":
        connector = FileStorageConnector(tmp_path / "store")
    else:
        connector = FsspecStorageConnector(f"file://{tmp_path}/store")
    if request.param != kind:
        connector = CachedStorageConnector(connector, tmp_path / "cache")
    return connector, put_object if kind == "s3" else put_file


def test_files_of_other_tools_are_listed_read_and_deleted(
    store: tuple[StorageConnector, Put],
) -> None:
    connector, put = store
    connector.set_resource("ours/x", b"x")
    for name in NAMES:
        put(name, name.encode())

    assert connector.list_keys() == sorted([*NAMES, "ours/x"])
    assert connector.list_resources() == ["ours/x"]
    assert connector.list_keys("city=S") == ["city=São Paulo/part 0.parquet"]
    for name in [*NAMES, "ours/x"]:
        assert connector.has_key(name)
        with connector.open_key(name) as resource:
            assert resource.read() == (name.encode() if name in NAMES else b"x")
    for name in [*NAMES, "ours/x"]:
        connector.delete_key(name)
        assert not connector.has_key(name)
        with pytest.raises(ResourceNotFoundError):
            connector.delete_key(name)
    assert connector.list_keys() == []


def test_nothing_is_stored_under_a_key_that_is_no_identifier(
    store: tuple[StorageConnector, Put],
) -> None:
    connector, _ = store

    for name in NAMES:
        with pytest.raises(MalformedIdentifierError):
            connector.set_resource(name, b"x")

    assert connector.list_keys() == []


def test_no_key_leads_out_or_to_the_stores_own_files(store: tuple[StorageConnector, Put]) -> None:
    connector, put = store
    connector.set_resource("a", b"x")
    put("b", b"y")

    for key in HOSTILE_KEYS:
        for method in (connector.open_key, connector.has_key, connector.delete_key):
            with pytest.raises(MalformedIdentifierError):
                method(key)

    assert connector.list_keys() == ["a", "b"]


def test_a_folder_reads_foreign_names_in_any_process(
    store: tuple[StorageConnector, Put],
) -> None:
    connector, put = store
    put("sets/New York/part(2).csv", b"0123456789")
    folder = folder_of(connector, "sets/New York")

    assert folder_of(connector).list_files() == ["sets/New York/part(2).csv"]
    assert folder_of(connector, "sets").list_names() == ["New York"]
    assert folder.has_file("part(2).csv")
    with folder.open("part(2).csv") as resource:
        assert resource.read_at(3, 4) == b"3456"
        assert resource.size == 10
        with pickle.loads(pickle.dumps(resource)) as again:
            assert again.read() == b"0123456789"
    folder.delete("part(2).csv")
    assert folder.list_files() == []


def test_object_stores_have_keys_that_no_file_system_has(s3_server: S3Server) -> None:
    bucket = s3_server.new_bucket()
    keys = ["a//b.csv", "/c.csv", "a/" + "x" * 300, "?versionId=1"]
    for key in keys:
        s3_server.client.put_object(Bucket=bucket, Key=key, Body=key.encode())
    connector = FsspecStorageConnector(f"s3://{bucket}", **s3_server.options())

    assert folder_of(connector, "a").list_files() == ["/b.csv", "x" * 300]
    for key in keys[:3]:
        with connector.open_key(key) as resource:
            assert resource.read() == key.encode()


def test_links_that_stay_in_the_store_are_read(tmp_path: Path) -> None:
    root = tmp_path / "store"
    (root / "real").mkdir(parents=True)
    (root / "real" / "x").write_bytes(b"x")
    (tmp_path / "secret").write_bytes(b"secret")
    (root / "file").symlink_to("real/x")
    (root / "folder").symlink_to("real")
    (root / "out").symlink_to(tmp_path / "secret")
    connector = FileStorageConnector(root)

    assert connector.list_keys() == ["file", "folder/x", "out", "real/x"]
    for key in ("file", "folder/x", "real/x"):
        with connector.open_key(key) as resource:
            assert resource.read() == b"x"
    with pytest.raises(MaliciousFilePathError, match="out of"):
        connector.open_key("out")
    connector.delete_key("file")
    assert (root / "real" / "x").read_bytes() == b"x"
    assert connector.list_resources() == ["real/x"]


def test_no_prefix_lists_what_lies_outside(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    root = tmp_path / "store"
    root.mkdir()
    (root / "linked").symlink_to(outside)
    connector = FileStorageConnector(root)

    for prefix in (f"{outside}/", f"{outside}/s", "linked/", "linked/s"):
        assert connector.list_keys(prefix) == []
        assert connector.list_links(prefix) == []
    assert connector.list_links("l") == ["linked"]


def test_a_store_without_files_of_others_knows_identifiers() -> None:
    connector = InMemoryStorageConnector()
    connector.set_resource("a/b", b"x")

    assert connector.list_keys("a/") == ["a/b"]
    assert connector.has_key("a/b")
    with connector.open_key("a/b") as resource:
        assert resource.read() == b"x"
    with pytest.raises(MalformedIdentifierError):
        folder_of(connector, "New York")
    connector.delete_key("a/b")
    assert connector.list_keys() == []


@pytest.mark.parametrize("key", HOSTILE_KEYS)
def test_a_hostile_key_is_refused(key: Any) -> None:
    assert not is_key(key)
    with pytest.raises(MalformedIdentifierError):
        check_key(key)


@pytest.mark.parametrize("name", NAMES)
def test_a_key_is_any_name_of_a_file(name: str) -> None:
    assert check_key(name) == name
    assert check_key_prefix(f"{name}/") == f"{name}/"


# ------------------------------------------------------------------ keys in URLs

#: The last part of a URL is the key, character by character.
NAMED_DIRECTLY = [
    "sp ace.csv", "hash#1.csv", "q?x.csv", "a%20b.csv", "ü.csv", "part(2).csv", "a&b=c.csv", "12:30.csv", "a//b.csv",
    "dir#1/what? /x.csv",
]  # fmt: skip


@pytest.mark.parametrize("key", NAMED_DIRECTLY)
def test_a_url_names_any_key(
    key: str, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    bucket = s3_server.new_bucket()
    s3_server.client.put_object(Bucket=bucket, Key=key, Body=b"id\n1\n2\n")

    loaded: Any = data_stack.load(f"s3://{bucket}/{key}?endpointUrl={s3_server.endpoint_url}")

    assert [int(row["id"]) for row in loaded] == [1, 2]


def test_options_follow_a_question_mark_as_name_and_value() -> None:
    assert split_text("s3://bucket/a?b/c#d.csv?region=eu&cache=/x") == (
        "s3://bucket/a?b?region=eu&cache=/x",
        "c#d.csv",
    )
    assert split_text("s3://bucket/a//b") == ("s3://bucket/a", "/b")
    assert split_text("s3://bucket//b") == ("s3://bucket", "/b")
    assert split_text("gs://bucket/x/y.csv/") == ("gs://bucket/x", "y.csv")
    assert split_text("mongodb://h/db/a/b?x=y") == ("mongodb://h/db?x=y", "a/b")


def split_text(url: str) -> tuple[str, str]:
    store, name = split_url(url)
    return str(store), name


def test_a_location_keeps_empty_segments_of_a_key() -> None:
    location = location_of("s3://bucket/a//b.csv")

    assert "s3://bucket/a" in location.folder.describe("")
    assert location.folder.full_name(location.name) == "/b.csv"


def test_links_that_a_store_does_not_follow_are_named(
    tmp_path: Path, sftp_server: SFTPServer
) -> None:
    name = f"links-{os.urandom(6).hex()}"
    remote = sftp_server.folder / name / "sets"
    local = tmp_path / "store" / "sets"
    for folder in (remote, local):
        (folder / "real").mkdir(parents=True)
        (folder / "real" / "a.csv").write_bytes(b"x")
        (folder / "out").symlink_to("/etc")
    (remote / "b.csv").symlink_to("real/a.csv")
    stores = {
        "sftp": FsspecStorageConnector(f"sftp://127.0.0.1/{name}", **sftp_server.options()),
        "folder": FileStorageConnector(tmp_path / "store"),
    }

    surveys = {kind: folder_of(store, "sets").survey() for kind, store in stores.items()}

    assert surveys["folder"] == (["real/a.csv"], [LeftOut("out", LINK_OF_STORE)])
    files, links = surveys["sftp"]
    assert files == ["real/a.csv"]
    assert [link.name for link in links] == ["b.csv", "out"]
