"""Copies arrive whole and verified or not at all, send nothing twice, and go on where they were
interrupted.
"""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from plain_connector import MinimalConnector
from process_harness import flip_file, flipped

from data_stack import (
    FileStorageConnector,
    InMemoryStorageConnector,
    StorageConnector,
    copy_datasets,
)
from data_stack.exception import (
    ConfigError,
    DatasetNotFoundError,
    IncompleteCopyError,
    PreparationError,
    StorageError,
    StorageUnavailableError,
    UnsupportedStorageOperationError,
)
from data_stack.io.copying import CopyGroup, CopyItem, copy_groups
from data_stack.io.resources import Storable, StreamedResource, SupportedStreamedResourceTypes
from data_stack.io.storage_connectors.connector import BINARY
from data_stack.repository.repository import default_repository
from data_stack.testing.storage_connector import content

MiB = 1 << 20


class Watched(InMemoryStorageConnector):
    """Notes what is read from it and stored in it, in order; ``before`` is called with each
    beforehand.
    """

    def __init__(
        self, before: Callable[[str, str], None] = lambda action, identifier: None
    ) -> None:
        super().__init__()
        self.actions: list[tuple[str, str]] = []
        self.before = before

    def get_resource(
        self, identifier: str, resource_type: SupportedStreamedResourceTypes = BINARY
    ) -> StreamedResource:
        self._note("get", identifier)
        return super().get_resource(identifier, resource_type)

    def set_resource(self, identifier: str, resource: Storable) -> None:
        self._note("set", identifier)
        super().set_resource(identifier, resource)

    def delete_resource(self, identifier: str) -> None:
        self._note("delete", identifier)
        super().delete_resource(identifier)

    def identifiers(self, action: str) -> list[str]:
        """What an action was done to."""
        return [identifier for each, identifier in self.actions if each == action]

    def _note(self, action: str, identifier: str) -> None:
        self.before(action, identifier)
        self.actions.append((action, identifier))


def contents(connector: StorageConnector) -> dict[str, bytes]:
    """All that is stored."""
    return {identifier: content(connector, identifier) for identifier in connector.list_resources()}


def is_ready(name: str, connector: StorageConnector) -> bool:
    """Whether a dataset needs no preparation there."""
    factory: Any = default_repository().get_factory(name, connector)
    return bool(factory.is_ready() and factory.prepare().already_ready)


# ------------------------------------------------------------------ whole and valid


def test_a_copied_store_has_all_bytes_and_needs_no_preparation(
    prepared: FileStorageConnector,
) -> None:
    target = InMemoryStorageConnector()

    report = copy_datasets(prepared, target, n_threads=16)

    assert contents(target) == contents(prepared)
    assert (report.complete, report.faults, report.skipped) == (
        ("digits/1.0.0", "iris/1.0.0"),
        (),
        (),
    )
    assert is_ready("digits", target)
    assert is_ready("iris", target)


def test_a_store_of_three_methods_can_only_be_a_target(
    prepared: FileStorageConnector,
) -> None:
    minimal = MinimalConnector()

    copy_datasets(prepared, minimal, ["digits"])

    assert is_ready("digits", minimal)
    with pytest.raises(UnsupportedStorageOperationError, match="cannot list"):
        copy_datasets(minimal, InMemoryStorageConnector(), ["digits"])


def test_a_missing_folder_is_not_an_empty_store(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="does not exist"):
        copy_datasets(tmp_path / "misspelt", InMemoryStorageConnector())


# ------------------------------------------------------------------ order


@pytest.mark.parametrize(
    "n_actions", range(8)
)  # journal, five resources, manifest, away with the journal
def test_an_interrupted_copy_never_looks_ready_and_goes_on(
    prepared: FileStorageConnector, n_actions: int
) -> None:
    target = Watched()

    def break_off(action: str, identifier: str) -> None:
        if action != "get" and sum(each != "get" for each, _ in target.actions) == n_actions:
            raise StorageUnavailableError("gone")

    target.before = break_off
    with pytest.raises(StorageUnavailableError):
        copy_datasets(prepared, target, ["digits"], n_threads=1)
    target.before = lambda action, identifier: None
    there = set(target.list_resources())

    factory: Any = default_repository().get_factory("digits", target)
    looks_ready = factory.is_ready()
    report = copy_datasets(prepared, target, ["digits"])

    assert looks_ready == ("digits/1.0.0/manifest.json" in there) == (n_actions == 7)
    assert not there or "digits/1.0.0/journal.json" in there
    assert report.count("present") == len(there - {"digits/1.0.0/journal.json"})
    assert is_ready("digits", target)
    assert not target.has_resource("digits/1.0.0/journal.json")
    assert contents(target) == {
        each: data for each, data in contents(prepared).items() if each.startswith("digits/")
    }


def test_an_old_manifest_goes_before_anything_is_replaced(
    prepared: FileStorageConnector,
) -> None:
    target = Watched()
    copy_datasets(prepared, target, ["digits"])
    target.set_resource("digits/1.0.0/manifest.json", b'{"of": "another version"}')
    target.set_resource("digits/1.0.0/preprocessed/test/targets.npy", b"of another version")
    target.actions.clear()

    copy_datasets(prepared, target, ["digits"])

    replaced = target.actions.index(("set", "digits/1.0.0/preprocessed/test/targets.npy"))
    assert ("delete", "digits/1.0.0/manifest.json") in target.actions[:replaced]
    assert is_ready("digits", target)


def test_an_old_manifest_that_cannot_go_is_made_void(
    prepared: FileStorageConnector,
) -> None:
    target = MinimalConnector()
    target.set_resource("digits/1.0.0/manifest.json", b"of another version")
    seen = []
    store = target.set_resource

    def watching(identifier: str, resource: Storable) -> None:
        seen.append(target.stored["digits/1.0.0/manifest.json"])
        store(identifier, resource)

    target.set_resource = watching  # type: ignore[method-assign]
    copy_datasets(prepared, target, ["digits"])

    assert set(seen[2:]) == {b"{}\n"}
    assert is_ready("digits", target)


# ------------------------------------------------------------------ nothing twice


def test_what_is_there_is_neither_read_nor_sent_again(prepared: FileStorageConnector) -> None:
    source, target = Watched(), Watched()
    copy_datasets(prepared, source)
    copy_datasets(source, target)
    source.actions.clear()
    target.actions.clear()

    report = copy_datasets(source, target)

    assert report.count("present") == len(report.resources) == 8
    manifests = {"digits/1.0.0/manifest.json", "iris/1.0.0/manifest.json"}
    assert {*source.identifiers("get")} == {*target.identifiers("get")} == manifests
    assert not target.identifiers("set")


def test_a_deep_copy_replaces_what_is_damaged(tmp_path: Path) -> None:
    source, target = InMemoryStorageConnector(), FileStorageConnector(tmp_path / "target")
    for identifier in ("a", "b"):
        source.set_resource(identifier, os.urandom(MiB))
    copy_datasets(source, target)
    flip_file(tmp_path / "target" / "a", 8 * MiB - 1, keep_time=True)

    report = copy_datasets(source, target, deep=True)

    assert {each.identifier: each.outcome for each in report.resources} == {
        "a": "copied",
        "b": "present",
    }
    assert contents(target) == contents(source)


def test_a_dry_run_stores_nothing(
    prepared: FileStorageConnector,
) -> None:
    target = Watched()

    report = copy_datasets(prepared, target, dry_run=True)

    assert target.actions == []
    assert (report.dry_run, report.complete, report.count("copied")) == (
        True,
        ("digits/1.0.0", "iris/1.0.0"),
        8,
    )
    assert report.size("copied") == sum(map(len, contents(prepared).values()))


# ------------------------------------------------------------------ damage


def test_a_damaged_resource_leaves_only_its_dataset_unready(
    prepared: FileStorageConnector, tmp_path: Path
) -> None:
    damaged = "digits/1.0.0/preprocessed/test/images.npy"
    copy_datasets(prepared, tmp_path / "source")
    flip_file(tmp_path / "source" / damaged, 5000, keep_time=True)
    target = InMemoryStorageConnector()

    with pytest.raises(IncompleteCopyError, match=damaged) as caught:
        copy_datasets(tmp_path / "source", target)

    report = caught.value.report
    assert [fault.identifier for fault in report.faults] == [damaged]
    assert report.complete == ("iris/1.0.0",)
    assert not target.has_resource(damaged)
    assert not target.has_resource("digits/1.0.0/manifest.json")
    assert target.has_resource("digits/1.0.0/preprocessed/train/images.npy")
    assert is_ready("iris", target)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.parametrize(
    "change", [lambda data: flipped(data, 0), lambda data: data[:-1]], ids=["flipped", "cut"]
)
@pytest.mark.parametrize("make", [InMemoryStorageConnector, MinimalConnector])
def test_bytes_of_another_digest_are_not_published(change: Any, make: Any) -> None:
    class Lying(InMemoryStorageConnector):
        def get_resource(
            self, identifier: str, resource_type: SupportedStreamedResourceTypes = BINARY
        ) -> StreamedResource:
            with super().get_resource(identifier) as resource:
                return StreamedResource(identifier, io.BytesIO(change(resource.read())))

    source, target = Lying(), make()
    source.set_resource("a", os.urandom(3 * MiB))
    target.set_resource("a", b"before")

    with pytest.raises(IncompleteCopyError):
        copy_groups(source, target, [CopyGroup("loose", (CopyItem("a"),))])

    assert content(target, "a") == b"before"


# ------------------------------------------------------------------ what is not copied


def test_what_another_process_has_begun_stays_behind(prepared: FileStorageConnector) -> None:
    source, target, manifest = Watched(), InMemoryStorageConnector(), "digits/1.0.0/manifest.json"
    copy_datasets(prepared, source)
    # another process removes it meanwhile
    source.before = lambda action, each: (
        source.delete_resource(each) if (action, each) == ("get", manifest) else None
    )

    for _ in range(2):
        report = copy_datasets(source, target)

        assert [skipped.identifier for skipped in report.skipped] == ["digits/1.0.0"]
        assert {identifier.partition("/")[0] for identifier in target.list_resources()} == {"iris"}
        source.set_resource("digits/1.0.0/journal.json", b"{}")
    with pytest.raises(PreparationError, match=r"'digits' is not prepared in .* no manifest yet"):
        copy_datasets(source, target, ["digits"])
    source.set_resource(manifest, b"{")
    assert [skipped.identifier for skipped in copy_datasets(source, target).skipped] == [
        "digits/1.0.0"
    ]


@pytest.mark.parametrize("is_begun", [False, True])
def test_unnamed_files_are_copied_unless_a_preparation_has_begun(
    prepared: FileStorageConnector, is_begun: bool
) -> None:
    source, target = InMemoryStorageConnector(), InMemoryStorageConnector()
    copy_datasets(prepared, source)
    source.set_resource("digits/1.0.0/notes.txt", b"mine")
    if is_begun:
        source.set_resource("digits/1.0.0/journal.json", b"{}")

    copy_datasets(source, target, ["digits"])

    assert target.has_resource("digits/1.0.0/notes.txt") == (not is_begun)
    assert target.has_resource("digits/1.0.0/manifest.json")
    assert len(target.list_resources("digits/1.0.0/")) > 2


def test_a_damaged_manifest_does_not_stop_the_others(
    prepared: FileStorageConnector,
) -> None:
    source, target = InMemoryStorageConnector(), InMemoryStorageConnector()
    copy_datasets(prepared, source)
    source.set_resource("digits/1.0.0/manifest.json", b"{")
    source.set_resource("digits/notes.txt", b"abc")

    with pytest.raises(IncompleteCopyError, match="prepare the dataset again") as caught:
        copy_datasets(source, target, ["digits", "iris"])

    report = caught.value.report
    assert [fault.identifier for fault in report.faults] == ["digits/1.0.0/manifest.json"]
    assert report.complete == ("iris/1.0.0",)
    assert {each for each in target.list_resources() if each.startswith("digits/")} == {
        "digits/notes.txt"
    }


def test_an_unknown_dataset_is_answered_with_the_nearest(
    prepared: FileStorageConnector,
) -> None:
    target = Watched()

    with pytest.raises(DatasetNotFoundError, match=r"'digit'.*did you mean 'digits'.*digits, iris"):
        copy_datasets(prepared, target, ["iris", "digit"])

    assert target.actions == []


# ------------------------------------------------------------------ onto itself


def test_a_store_is_not_copied_onto_itself(prepared: FileStorageConnector, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(prepared.root_path)
    memory = InMemoryStorageConnector()

    same = [
        FileStorageConnector(prepared.root_path),
        tmp_path / "link",
        os.path.join(prepared.root_path, "below"),
    ]
    pairs: list[tuple[Any, Any]] = [
        (memory, memory),
        ("mongodb://127.0.0.1:1/x", "mongodb://127.0.0.1:1/x"),
    ]

    for source, target in [*pairs, *((prepared, each) for each in same)]:
        with pytest.raises(ConfigError):
            copy_datasets(source, target)
