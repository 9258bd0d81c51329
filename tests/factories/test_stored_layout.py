"""Versions of a dataset lie side by side in a store."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from data_stack.dataset.iterator import DatasetIteratorIF, SequenceDatasetIterator
from data_stack.exception import ConfigError
from data_stack.factories.declarative import DatasetCard, DatasetFactory, PreparedResources, Resources
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.storage_connectors import FileStorageConnector


class Older(DatasetFactory):
    """Its only sample says which version made it."""

    card = DatasetCard(name="letters", version="1.0")
    splits = ("all",)
    prepared_resources = ("prepared/letters.txt",)

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        for step in prepared.steps(["one"]):
            with prepared.create("prepared/letters.txt") as file:
                file.write(f"{self.card.version} {step}".encode())

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        return SequenceDatasetIterator([[prepared["prepared/letters.txt"].read().decode()]])


class Newer(Older):
    card = DatasetCard(name="letters", version="2.0")


def sample(factory: DatasetFactory) -> str:
    iterator, _ = factory.get_dataset_iterator()
    (value,) = iterator[0]
    return str(value)


@pytest.fixture
def store(tmp_path: Path) -> FileStorageConnector:
    return FileStorageConnector(tmp_path / "store")


def test_versions_used_by_turns_are_prepared_once_each(store: FileStorageConnector) -> None:
    reports = [kind(store).prepare() for kind in (Older, Newer, Older, Newer)]

    assert [report.already_ready for report in reports] == [False, False, True, True]
    assert (sample(Older(store)), sample(Newer(store))) == ("1.0 one", "2.0 one")
    assert Older(store).verify() == Newer(store).verify() == []
    assert {name.rpartition("/")[0] for name in store.list_resources() if name.endswith("manifest.json")} == {
        "letters/1.0",
        "letters/2.0",
    }


def test_a_source_that_another_version_has_is_not_retrieved_again(store: FileStorageConnector, tmp_path: Path) -> None:
    source = tmp_path / "letters.txt"
    source.write_bytes(b"abc")
    kept = (ResourceDefinition("raw/letters.txt", str(source), sha256=hashlib.sha256(b"abc").hexdigest()),)
    old, new = (type(f"With{kind.__name__}", (kind,), {"sources": kept}) for kind in (Older, Newer))
    old(store).prepare()
    source.unlink()

    new(store).prepare()

    assert store.get_resource("letters/2.0/raw/letters.txt").read() == b"abc"
    assert new(store).verify() == []


@pytest.mark.parametrize("version", ["1/0", "../1", "manifest.json", "Journal.json", "preparing@1", "ä"])
def test_a_version_that_cannot_be_a_folder_is_refused(store: FileStorageConnector, version: str) -> None:
    kind: type[DatasetFactory] = type("Wrong", (Older,), {"card": DatasetCard(name="letters", version=version)})

    with pytest.raises(ConfigError):
        kind(store).prepare()
