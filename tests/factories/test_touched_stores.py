"""A prepared store that something else copied, edited or damaged is noticed at its next use."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from data_stack.dataset.iterator import DatasetIteratorIF, SequenceDatasetIterator
from data_stack.factories.declarative import DatasetCard, DatasetFactory, PreparedResources, Resources
from data_stack.io.storage_connectors import FileStorageConnector

RIGHT = b"0123456789" * 100


class Factory(DatasetFactory):
    """A thousand bytes, each a sample."""

    card = DatasetCard(name="bytes", version="1")
    splits = ("all",)
    n_prepared = 0

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        Factory.n_prepared += 1
        with prepared.create("preprocessed/data") as file:
            file.write(RIGHT)

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        with prepared["preprocessed/data"] as resource:
            return SequenceDatasetIterator([list(resource.read())])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    Factory(FileStorageConnector(root)).prepare()
    Factory.n_prepared = 0
    return root


def samples(root: Path) -> bytes:
    iterator, _ = Factory(FileStorageConnector(root)).get_dataset_iterator()
    return bytes(value for (value,) in iterator)


@pytest.mark.parametrize("name", ["bytes/1/manifest.json", "bytes/1/preprocessed/data"])
@pytest.mark.parametrize(
    "damage", [lambda data: data[:99] + bytes([data[99] ^ 1]) + data[100:], lambda data: data[:10], lambda data: data + b"\0"]
)
def test_a_damaged_resource_is_never_served_but_made_anew(root: Path, name: str, damage: Callable[[bytes], bytes]) -> None:
    (root / name).write_bytes(damage((root / name).read_bytes()))

    assert not Factory(FileStorageConnector(root)).is_ready()
    assert samples(root) == RIGHT
    assert Factory.n_prepared == 1
    assert Factory(FileStorageConnector(root)).verify() == []


def test_a_copied_store_is_known_again_by_reading_each_byte_once(root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(root, copy)
    assert samples(copy) == RIGHT
    notes = {path: path.stat().st_mtime_ns for path in (copy / ".data_stack/digests").rglob("*") if path.is_file()}

    assert samples(copy) == RIGHT

    # nothing had to be noted a second time, so nothing was read in full again
    assert notes == {path: path.stat().st_mtime_ns for path in (copy / ".data_stack/digests").rglob("*") if path.is_file()}
    assert Factory.n_prepared == 0
