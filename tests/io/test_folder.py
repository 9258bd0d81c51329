"""Where datasets lie: folders, stores, resources of a dataset, and what a caller lends."""

from __future__ import annotations

import contextlib
import io
import os
from pathlib import Path
from typing import Any

import pytest
from plain_connector import MinimalConnector

from data_stack.exception import (
    DatasetFileCorruptError,
    DataStackError,
    MaliciousFilePathError,
    ResourceNotFoundError,
    StorageError,
    UnsupportedStorageOperationError,
)
from data_stack.io.folder import Folder, folder_of
from data_stack.io.local_files import open_local_file
from data_stack.io.location import location_of
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors import (
    CachedStorageConnector,
    FileStorageConnector,
    InMemoryStorageConnector,
)
from data_stack.io.versions import is_same_version, version_of


@pytest.fixture(params=["folder", "store", "files"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    sources: dict[str, Any] = {
        "folder": str(tmp_path / "data"),
        "store": InMemoryStorageConnector(),
        "files": FileStorageConnector(tmp_path),
    }
    return folder_of(sources[request.param], prefix="train/images")


def put(folder: Folder, *names: str) -> None:
    for name in names:
        with folder.create(name) as file:
            file.write(b"x")


def test_what_is_created_is_there_whole(folder: Folder) -> None:
    assert folder.list_names() == []
    assert not folder.has_file("a.bag")

    with folder.create("a.bag") as file:
        file.write(b"one")
        assert not folder.has_file("a.bag")
    with folder.subfolder("000000").create("b.bag") as file:
        file.write(b"two")

    assert folder.has_file("a.bag")
    assert not folder.has_file("000000")
    assert folder.list_names() == ["000000", "a.bag"]
    assert folder.subfolder("000000").list_names() == ["b.bag"]
    assert folder.read("a.bag") == b"one"
    with folder.subfolder("000000").open("b.bag") as resource:
        assert (resource.read(), resource.size, resource.read_at(1, 5)) == (b"two", 3, b"wo")


def test_what_fails_to_be_created_leaves_nothing_behind(folder: Folder) -> None:
    put(folder, "a.bag")

    with pytest.raises(ZeroDivisionError):
        with folder.create("a.bag") as file:
            file.write(b"new")
            raise ZeroDivisionError

    assert folder.read("a.bag") == b"x"
    assert folder.list_names() == ["a.bag"]


def test_what_is_not_there_is_not_found(folder: Folder) -> None:
    for way in (folder.open, folder.read):
        with pytest.raises(ResourceNotFoundError, match=r"a\.bag"):
            way("a.bag")
    put(folder.subfolder("folder"), "a.bag")
    with pytest.raises(ResourceNotFoundError):
        folder.read("folder")
    with pytest.raises(ResourceNotFoundError):
        folder.subfolder("folder").subfolder("a.bag").read("b")


@pytest.mark.parametrize("content", [b"", b"x", b"ab" * 100_000])
def test_a_file_is_read_whole_with_its_version(folder: Folder, content: bytes) -> None:
    with folder.create("a.jpg") as file:
        file.write(content)

    data, version = folder.read_whole("a.jpg")

    assert data == content
    with folder.open("a.jpg") as opened:
        assert is_same_version(version, version_of(opened)) is not False
    with folder.create("a.jpg") as file:
        file.write(b"another")
    assert is_same_version(version, folder.read_whole("a.jpg")[1]) is False


def test_a_file_that_changes_size_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(b"123456")

    with contextlib.closing(open_local_file(str(path))) as opened:
        path.write_bytes(b"12")
        assert opened.read_all() == b"12"
        path.write_bytes(b"123456789")
        assert opened.read_all() == b"123456789"


def test_no_file_is_read_whole_through_a_link_leading_out(tmp_path: Path) -> None:
    place = tmp_path / "data"
    place.mkdir()
    (tmp_path / "secret").write_bytes(b"secret")
    (place / "a.jpg").symlink_to(tmp_path / "secret")

    with pytest.raises(MaliciousFilePathError):
        folder_of(str(place)).read_whole("a.jpg")
    with pytest.raises(ResourceNotFoundError):
        folder_of(str(place)).read_whole("b.jpg")


def test_what_claims_to_be_small_and_is_not_is_refused(tmp_path: Path) -> None:
    with open(tmp_path / "spec.json", "wb") as file:
        file.truncate(65 << 20)

    with pytest.raises(DatasetFileCorruptError, match="more than"):
        folder_of(tmp_path).read("spec.json")


def test_errors_of_the_operating_system_are_ours(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "folder" / "a.bag").mkdir(parents=True)
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(StorageError):
        put(folder_of(tmp_path, "folder"), "a.bag")  # a folder is in the way
    assert folder_of(tmp_path, "folder").list_names() == ["a.bag"]
    with pytest.raises(StorageError):
        with folder_of(tmp_path, "file/below").create("a.bag"):
            pass
    with pytest.raises(ResourceNotFoundError):
        folder_of(tmp_path).read("pipe")


# ------------------------------------------------------------------ names, files below, deletion


@pytest.mark.parametrize("name", ["../a", "a/../../b", "/etc/passwd", "..", "a\0b"])
def test_no_name_leads_out_of_a_folder(tmp_path: Path, name: str) -> None:
    for folder in (folder_of(tmp_path), folder_of(InMemoryStorageConnector())):
        for way in (
            folder.open,
            folder.has_file,
            lambda name, folder=folder: folder.subfolder(name).open("x"),
        ):
            with pytest.raises(DataStackError):
                way(name)
        with pytest.raises(DataStackError):
            put(folder, name)


def test_deep_files_are_listed_and_leave_no_empty_folders(
    folder: Folder,
) -> None:
    assert folder.list_files() == []
    put(folder, "b", "x/c", "x/y/a")

    assert folder.list_files() == ["b", "x/c", "x/y/a"]
    assert folder.list_names() == ["b", "x"]
    assert folder.read("x/y/a") == b"x"

    folder.delete("x/y/a")
    folder.delete("x/y/a")

    assert folder.can_delete
    assert folder.list_files() == ["b", "x/c"]
    assert folder.subfolder("x").list_names() == ["c"]


def test_a_cache_cannot_delete_where_the_store_behind_it_cannot(tmp_path: Path) -> None:
    for remote, can_delete in ((MinimalConnector(), False), (InMemoryStorageConnector(), True)):
        cached = CachedStorageConnector(remote, tmp_path / "cache")
        twice = CachedStorageConnector(cached, tmp_path / "second")

        assert [folder_of(store).can_delete for store in (remote, cached, twice)] == [
            can_delete
        ] * 3
    with pytest.raises(UnsupportedStorageOperationError):
        folder_of(CachedStorageConnector(MinimalConnector(), tmp_path / "cache")).list_files()


def test_a_folder_is_leased_by_one_at_a_time(tmp_path: Path) -> None:
    folder, other = folder_of(tmp_path), folder_of(tmp_path)

    with folder.lease(".lock") as lease, other.lease(".lock") as second:
        assert lease.acquire()
        assert lease.acquire()
        assert not second.acquire()
    with other.lease(".lock") as again:
        assert again.acquire()
    assert folder.list_names() == []


# ------------------------------------------------------------------ what a caller lends


def test_a_lent_resource_is_neither_moved_nor_closed() -> None:
    lent = StreamedResource("a.tar", io.BytesIO(b"0123456789"))
    lent.seek(3)
    folder = location_of(lent).folder

    with folder.open("a.tar") as first, folder.open("a.tar") as second:
        assert (first.read(4), second.read(2), first.read()) == (b"0123", b"01", b"456789")
        assert second.read_ranges([(8, 5), (0, 1)]) == [b"89", b"0"]

    assert (lent.tell(), lent.closed, lent.read()) == (3, False, b"3456789")
    assert (folder.list_names(), folder.has_file("a.tar"), folder.has_file("b")) == (
        ["a.tar"],
        True,
        False,
    )
    with pytest.raises(ResourceNotFoundError):
        folder.open("b")
    with pytest.raises(UnsupportedStorageOperationError, match="for reading"):
        folder.create("b")


# ------------------------------------------------------------------ one file or folder in it


def test_what_a_user_means_is_a_name_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "train.h5").write_bytes(b"x")
    connector = InMemoryStorageConnector()
    connector.set_resource("sets/train.h5", b"y")

    for source, content in (
        (tmp_path / "train.h5", b"x"),
        (str(tmp_path / "train.h5"), b"x"),
        (f"file://{tmp_path}/train.h5", b"x"),
        ((folder_of(tmp_path), "train.h5"), b"x"),
        ((connector, "sets/train.h5"), b"y"),
        (io.BytesIO(b"z"), b"z"),
    ):
        location = location_of(source)
        assert location.is_file()
        with location.open() as resource:
            assert resource.read() == content

    assert location_of(tmp_path).is_folder()
    assert not location_of(tmp_path / "other").is_folder()
    assert location_of((connector, "sets")).as_folder().list_names() == ["train.h5"]
