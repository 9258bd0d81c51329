"""Where record datasets lie: folders, stores, resources of a dataset."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from data_stack.exception import (
    ConfigError,
    DatasetFileCorruptError,
    DataStackError,
    MalformedIdentifierError,
    ResourceNotFoundError,
    StorageError,
    UnsupportedStorageOperationError,
)
from data_stack.formats.records.place import Place, place_of
from data_stack.io.storage_connectors import FileStorageConnector, InMemoryStorageConnector


@pytest.fixture(params=["folder", "path", "store", "files", "url"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    sources: dict[str, Any] = {
        "folder": str(tmp_path / "data"),
        "path": tmp_path / "data",
        "store": InMemoryStorageConnector(),
        "files": FileStorageConnector(tmp_path),
        "url": f"file://{tmp_path}/data",
    }
    return place_of(sources[request.param], prefix="train/images")


def test_what_is_created_is_there_whole(place: Place) -> None:
    assert place.names() == []
    assert not place.exists("a.bag")

    with place.create("a.bag") as file:
        file.write(b"one")
        assert not place.exists("a.bag")
    with place.child("000000").create("b.bag") as file:
        file.write(b"two")

    assert place.exists("a.bag")
    assert not place.exists("000000")
    assert place.names() == ["000000", "a.bag"]
    assert place.child("000000").names() == ["b.bag"]
    assert place.read("a.bag") == b"one"
    with place.child("000000").open("b.bag") as resource:
        assert (resource.read(), resource.size, resource.read_at(1, 5)) == (b"two", 3, b"wo")


def test_what_fails_to_be_created_leaves_nothing_behind(place: Place) -> None:
    with place.create("a.bag") as file:
        file.write(b"old")

    with pytest.raises(ZeroDivisionError):
        with place.create("a.bag") as file:
            file.write(b"new")
            raise ZeroDivisionError

    assert place.read("a.bag") == b"old"
    assert place.names() == ["a.bag"]


def test_what_is_not_there_is_not_found(place: Place) -> None:
    for way in (place.open, place.read):
        with pytest.raises(ResourceNotFoundError, match=r"a\.bag"):
            way("a.bag")
    with place.child("folder").create("a.bag") as file:
        file.write(b"x")
    with pytest.raises(ResourceNotFoundError):
        place.read("folder")
    with pytest.raises(ResourceNotFoundError):
        place.child("folder").child("a.bag").read("b")


def test_a_place_pickles_small(place: Place) -> None:
    with place.create("a.bag") as file:
        file.write(b"one")

    copy = pickle.loads(pickle.dumps(place))

    assert (copy.name, copy.path, copy.read("a.bag")) == (place.name, place.path, b"one")
    assert len(pickle.dumps(place)) < 1000


def test_a_resource_of_a_place_pickles(place: Place) -> None:
    with place.create("a.bag") as file:
        file.write(b"one")

    with place.open("a.bag") as resource, pickle.loads(pickle.dumps(resource)) as copy:
        assert copy.read() == b"one"


def test_a_place_is_a_source_too(place: Place) -> None:
    with place.child("b").create("c") as file:
        file.write(b"x")

    assert place_of(place) is place
    assert place_of(place, "b").read("c") == b"x"


def test_a_folder_is_found_from_wherever_the_process_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    place = place_of("data", "train")
    monkeypatch.chdir("/")

    assert place.path == tmp_path / "data" / "train"
    assert place.name == str(tmp_path / "data" / "train")


@pytest.mark.parametrize("source", [None, 3, b"x", "", "a\0b", [], object()])
def test_what_is_no_place_is_refused(source: Any) -> None:
    with pytest.raises(ConfigError):
        place_of(source)


@pytest.mark.parametrize("prefix", [3, None, b"x"])
def test_what_is_no_prefix_is_refused(tmp_path: Path, prefix: Any) -> None:
    with pytest.raises(ConfigError, match="prefix"):
        place_of(tmp_path, prefix)


def test_a_store_has_no_folders_outside_of_its_grammar() -> None:
    with pytest.raises(MalformedIdentifierError):
        place_of(InMemoryStorageConnector(), "a b")
    with pytest.raises(DataStackError):
        place_of(InMemoryStorageConnector(), "../a").open("x")


def test_what_claims_to_be_small_and_is_not_is_refused(tmp_path: Path) -> None:
    with open(tmp_path / "spec.json", "wb") as file:
        file.truncate(65 << 20)

    with pytest.raises(DatasetFileCorruptError, match="more than"):
        place_of(tmp_path).read("spec.json")


def test_errors_of_the_operating_system_are_ours(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "folder" / "a.bag").mkdir(parents=True)
    os.mkfifo(tmp_path / "pipe")

    with pytest.raises(StorageError):
        with place_of(tmp_path, "folder").create("a.bag") as file:  # a folder is in the way
            file.write(b"x")
    assert place_of(tmp_path, "folder").names() == ["a.bag"]
    with pytest.raises(StorageError):
        with place_of(tmp_path, "file/below").create("a.bag"):
            pass
    with pytest.raises(ResourceNotFoundError):
        place_of(tmp_path).read("pipe")


class _BareConnector:
    """What a third party's connector must have, and no more."""

    def __init__(self) -> None:
        self.store = InMemoryStorageConnector()

    def get_resource(self, identifier: str) -> Any:
        return self.store.get_resource(identifier)

    def set_resource(self, identifier: str, resource: Any) -> None:
        self.store.set_resource(identifier, resource)

    def has_resource(self, identifier: str) -> bool:
        return self.store.has_resource(identifier)


def test_a_store_that_cannot_list_says_so() -> None:
    connector = _BareConnector()
    connector.set_resource("data/a.bag", [b"x"])

    place = place_of(connector, "data")

    assert place.read("a.bag") == b"x"
    with pytest.raises(UnsupportedStorageOperationError):
        place.names()
