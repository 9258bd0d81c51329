"""What lies in a store, how much of it, and whether it is whole, asked from Python; no plugin is needed for it."""

from __future__ import annotations

from pathlib import Path

import pytest

import data_stack
from data_stack import DatasetCard, DatasetFactory, FileStorageConnector, PreparedResources, Resources
from data_stack.dataset.iterator import DatasetIteratorIF, SequenceDatasetIterator


class LettersFactory(DatasetFactory):
    """Five letters; no plugin brings them."""

    card = DatasetCard(name="letters", version="1.0.0")
    splits = ("train",)

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        with prepared.create("preprocessed/letters.txt") as file:
            file.write(b"abcde")

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        with prepared["preprocessed/letters.txt"] as resource:
            return SequenceDatasetIterator([list(resource.read())])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store with the letters, and with a resource that belongs to nothing."""
    connector = FileStorageConnector(tmp_path)
    LettersFactory(connector).prepare()
    connector.set_resource("loose/notes.txt", [b"xyz"])
    return tmp_path


def test_an_inventory_tells_versions_and_what_belongs_to_none(folder: Path) -> None:
    inventory = data_stack.take_inventory(folder)

    assert inventory.prepared_versions == {"letters": ["1.0.0"]}
    assert inventory.loose == ["loose/notes.txt"]


def test_disk_usage_counts_bytes_by_version_and_kind(folder: Path) -> None:
    usage = data_stack.disk_usage(folder)

    rows = {row.name: row for row in usage.datasets}
    assert (rows["letters"].version, rows["letters"].preprocessed) == ("1.0.0", 5)
    assert usage.unique == usage.total == sum(row.total for row in usage.datasets)
    assert (rows["loose"].version, rows["loose"].other) == (None, 3)
