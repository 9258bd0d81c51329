"""What lies in a store is told; a removal frees what it says, leaves nothing that looks ready, and
touches nothing else.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest
from plain_connector import PlainConnector
from written_dataset import Written

import data_stack
from data_stack import DatasetCard, DatasetFactory
from data_stack.exception import (
    ConfigError,
    DatasetNotFoundError,
    LeftOutWarning,
    StorageConflictError,
    UnsupportedStorageOperationError,
)
from data_stack.factories.journal import Journal
from data_stack.io.storage_connectors import (
    CachedStorageConnector,
    FileStorageConnector,
    StorageConnector,
)
from data_stack.io.storage_connectors.owners import this_machine
from data_stack.stores.removal import remove_dataset
from data_stack.stores.verification import StorageVerification, verify_storage
from data_stack.testing.storage_connector import content


class Letters(Written):
    card = DatasetCard(name="letters", version="1.0")
    splits = ("a", "b")
    files = {"a": b"1.0" * 1000, "b": b"1.0" * 1000}
    prepared_resources = ("a", "b")


class Newer(Letters):
    card = DatasetCard(name="letters", version="2.0")


class Flat(Letters):
    card = DatasetCard(name="letters", version="0.9", keeps_versions=False)


class Neighbour(Letters):
    card = DatasetCard(name="letters-large", version="1.0")


@pytest.fixture(params=["file", "cached", "mongodb"])
def any_store(
    request: pytest.FixtureRequest, store: FileStorageConnector, tmp_path: Path
) -> StorageConnector:
    if request.param == "mongodb":
        return data_stack.storage_connector_from_url(request.getfixturevalue("mongodb_uri"))
    return CachedStorageConnector(store, tmp_path / "cache") if request.param == "cached" else store


def test_a_version_goes_with_its_bytes_and_all_else_stays(any_store: StorageConnector) -> None:
    for kind in (Letters, Newer, Neighbour, Flat):
        kind(any_store).prepare()
    size = sum(any_store.stat(each).size for each in any_store.list_resources("letters/1.0/"))

    would = remove_dataset("letters", any_store, version="1.0", dry_run=True)
    assert Letters(any_store).is_ready()
    report = remove_dataset("letters", any_store, version="1.0")

    assert (report.n_resources, report.n_bytes) == (would.n_resources, would.n_bytes) == (4, size)
    assert any_store.list_resources("letters/1.0/") == []
    assert not Letters(any_store).is_ready()
    assert [kind(any_store).verify() for kind in (Newer, Neighbour, Flat)] == [[], [], []]


@pytest.mark.parametrize(
    ("kind", "folder", "is_left"),
    # Other versions may be prepared in a folder that is not of this version alone.
    [(Letters, "letters/1.0", False), (Flat, "letters", True)],
)
def test_the_leavings_of_a_dead_writer_go_with_their_version(
    store: FileStorageConnector, kind: type[Letters], folder: str, is_left: bool
) -> None:
    kind(store).prepare()
    left = Path(store.root_path) / folder / f".~{this_machine()}-1-0-deadbeef"
    left.write_bytes(b"half")

    remove_dataset("letters", store, version=kind.card.version)

    assert left.exists() == is_left


def test_a_version_must_be_named_only_among_several(
    store: FileStorageConnector,
) -> None:
    for kind in (Letters, Newer):
        kind(store).prepare()

    with pytest.raises(ConfigError, match=r"several versions .* 1\.0, 2\.0"):
        remove_dataset("letters", store)
    with pytest.raises(DatasetNotFoundError, match=r"no version '3' .* it has: 1\.0, 2\.0"):
        remove_dataset("letters", store, version="3")
    with pytest.raises(ConfigError, match="exclude each other"):
        remove_dataset("letters", store, version="1.0", all_versions=True)
    remove_dataset("letters", store, version="2.0")
    store.set_resource("letters/notes.txt", b"abc")
    remove_dataset("letters", store)
    assert store.list_resources() == ["letters/notes.txt"]  # it belongs to no version
    remove_dataset("letters", store)
    with pytest.raises(DatasetNotFoundError, match="'letters'"):
        remove_dataset("letters", store)


def test_all_versions_go_with_files_that_belong_to_none(
    store: FileStorageConnector,
) -> None:
    for kind in (Letters, Newer):
        kind(store).prepare()
    store.set_resource("letters/notes.txt", b"abc")

    report = remove_dataset("letters", store, all_versions=True)

    assert [(each.version, each.n_resources) for each in report.removed] == [
        ("1.0", 4),
        ("2.0", 4),
        (None, 1),
    ]
    assert (report.n_resources, report.removed[2].n_bytes, store.list_resources()) == (9, 3, [])
    store.set_resource("letters/a", b"a")
    assert remove_dataset("letters", store).n_resources == 1
    assert store.list_resources() == []


class DyingConnector(FileStorageConnector):
    """Dies at the n-th deletion."""

    n_left = 0

    def delete_resource(self, identifier: str) -> None:
        if self.n_left == 0:
            raise KeyboardInterrupt
        self.n_left -= 1
        super().delete_resource(identifier)


@pytest.mark.parametrize("kind", [Letters, Flat])
@pytest.mark.parametrize("n_deleted", range(4))
def test_a_removal_killed_anywhere_is_finished_by_the_same_call(
    store: FileStorageConnector, kind: type[DatasetFactory], n_deleted: int
) -> None:
    kind(store).prepare()
    dying = DyingConnector(store.root_path)
    dying.n_left = n_deleted
    with pytest.raises(KeyboardInterrupt):
        remove_dataset("letters", dying)

    assert kind(store).is_ready() == (n_deleted == 0)
    (mark,) = [each for each in store.list_resources() if each.endswith("journal.json")]
    assert Journal.from_json(content(store, mark), "letters").steps == ()
    assert n_deleted == 0 or not kind(store).prepare().adopted
    remove_dataset("letters", store)

    assert store.list_resources() == []


def test_what_is_being_prepared_is_not_removed(store: FileStorageConnector) -> None:
    Letters(store).prepare()

    with FileStorageConnector(store.root_path).lease("letters/1.0/manifest.json") as lease:
        assert lease.acquire()
        with pytest.raises(StorageConflictError):
            remove_dataset("letters", store)

    assert Letters(store).is_ready()


def test_a_store_that_cannot_delete_is_refused_beforehand(tmp_path: Path) -> None:
    store = PlainConnector(tmp_path)
    Letters(store).prepare()

    with pytest.raises(
        UnsupportedStorageOperationError,
        match="cannot delete resources; remove those below 'letters/'",
    ):
        remove_dataset("letters", store)

    assert Letters(store).is_ready()


class LeavingConnector(FileStorageConnector):
    """Cannot be reached any more."""

    def verify_resource(self, identifier: str, sha256: str | None = None) -> NoReturn:
        raise data_stack.exception.StorageUnavailableError("gone")


def test_verifying_a_store_that_does_not_exist_is_an_error(store: FileStorageConnector) -> None:
    with pytest.raises(data_stack.exception.StorageError, match="does not exist"):
        verify_storage(store)


def test_verifying_a_store_that_goes_away_is_an_error(store: FileStorageConnector) -> None:
    Letters(store).prepare()

    with pytest.raises(data_stack.exception.StorageUnavailableError, match="gone"):
        verify_storage(LeavingConnector(store.root_path))


def test_all_resources_of_a_store_are_verified(store: FileStorageConnector) -> None:
    Letters(store).prepare()
    store.set_resource("loose/notes.txt", b"xyz")
    Path(store.root_path, "loose/by-hand.txt").write_bytes(b"abcd")  # has no digest
    size = 6007
    for of_data_stack in ("manifest.json", "opening@files"):
        size += store.stat(f"letters/1.0/{of_data_stack}").size

    report = verify_storage(store)

    assert replace(report, seconds=0.0) == StorageVerification(
        repr(store), "ok", 6, size, 1, (), 0.0
    )


def test_versions_and_bytes_are_told_and_what_belongs_to_none(tmp_path: Path) -> None:
    connector = FileStorageConnector(tmp_path)
    Letters(connector).prepare()
    connector.set_resource("loose/notes.txt", [b"xyz"])

    inventory, usage = data_stack.take_inventory(tmp_path), data_stack.disk_usage(tmp_path)

    assert inventory.prepared_versions == {"letters": ["1.0"]}
    assert inventory.loose == ["loose/notes.txt"]
    rows = {row.name: row for row in usage.datasets}
    assert (rows["letters"].version, rows["letters"].preprocessed) == ("1.0", 6000)
    assert (
        usage.unique + 3000 == usage.total == sum(row.total for row in usage.datasets)
    )  # two files are equal
    assert (rows["loose"].version, rows["loose"].other) == (None, 3)


def test_files_of_other_tools_are_named_by_walks_of_stores(tmp_path: Path) -> None:
    store = FileStorageConnector(tmp_path / "store")
    store.set_resource("a/b", b"x")
    (tmp_path / "store" / "New York").mkdir()
    (tmp_path / "store" / "New York" / "part(2).csv").write_bytes(b"x\n1\n")
    (tmp_path / "store" / ".DS_Store").write_bytes(b"")

    for go_over in (verify_storage, data_stack.disk_usage):
        with pytest.warns(LeftOutWarning, match=r"1 of .*'New York/part\(2\)\.csv'"):
            go_over(store)
    report = data_stack.copy_datasets(store, FileStorageConnector(tmp_path / "copy"))

    assert [fault.identifier for fault in report.skipped] == ["New York/part(2).csv"]
    assert data_stack.take_inventory(store).others == [".DS_Store", "New York/part(2).csv"]
    assert FileStorageConnector(tmp_path / "copy").list_keys() == ["a/b"]
