"""What lies in a store, how much of it, and whether it is whole, asked from Python; no plugin is needed for it."""

from __future__ import annotations

from pathlib import Path

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


def test_versions_and_bytes_are_told_and_what_belongs_to_none(tmp_path: Path) -> None:
    connector = FileStorageConnector(tmp_path)
    LettersFactory(connector).prepare()
    connector.set_resource("loose/notes.txt", [b"xyz"])

    inventory, usage = data_stack.take_inventory(tmp_path), data_stack.disk_usage(tmp_path)

    assert inventory.prepared_versions == {"letters": ["1.0.0"]}
    assert inventory.loose == ["loose/notes.txt"]
    rows = {row.name: row for row in usage.datasets}
    assert (rows["letters"].version, rows["letters"].preprocessed) == ("1.0.0", 5)
    assert usage.unique == usage.total == sum(row.total for row in usage.datasets)
    assert (rows["loose"].version, rows["loose"].other) == (None, 3)
