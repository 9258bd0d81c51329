"""A declared dataset keeps the contract of datasets, and the suite finds one that does not."""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from data_stack.dataset.declarative import DatasetCard, DatasetFactory, PreparedResources, Resources
from data_stack.dataset.iterator import DatasetIteratorIF, SequenceDatasetIterator
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.storage_connectors.connector import StorageConnector
from data_stack.io.storage_connectors.memory import InMemoryStorageConnector
from data_stack.testing import DatasetFactoryContract

ROWS = bytes(range(10))
_counter = itertools.count()


class RowsFactory(DatasetFactory):
    """Ten numbers."""

    card = DatasetCard(name="rows", version="1.0.0", license="CC0-1.0")
    sources: ClassVar[list[ResourceDefinition]] = []
    splits = ("train", "test")

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        with raw["raw/rows.bin"] as resource:
            rows = resource.read()
        for split, part in (("train", rows[:7]), ("test", rows[7:])):
            with prepared.create(f"preprocessed/{split}.bin") as file:
                file.write(part)

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        with prepared[f"preprocessed/{split}.bin"] as resource:
            values = np.frombuffer(resource.read(), np.uint8)
        return SequenceDatasetIterator([values, values % 2, values])


class CarelessFactory(RowsFactory):
    """Never the same twice."""

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        for split in self.splits:
            with prepared.create(f"preprocessed/{split}.bin") as file:
                file.write(bytes([next(_counter)] * 5))


@pytest.fixture(scope="session", autouse=True)
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("source") / "rows.bin"
    path.write_bytes(ROWS)
    RowsFactory.sources[:] = [ResourceDefinition("raw/rows.bin", str(path), sha256=hashlib.sha256(ROWS).hexdigest())]
    return path


class TestRows(DatasetFactoryContract):
    factory_class = RowsFactory
    n_samples: ClassVar[dict[str, int]] = {"train": 7, "test": 3}


class _OfCareless(DatasetFactoryContract):
    factory_class = CarelessFactory
    n_samples: ClassVar[dict[str, int]] = {"train": 7, "test": 3}


def prepared() -> tuple[DatasetFactory, StorageConnector]:
    connector = InMemoryStorageConnector()
    factory = CarelessFactory(connector)
    factory.prepare(progress=False)
    return factory, connector


def test_the_suite_finds_a_wrong_number_of_samples() -> None:
    with pytest.raises(AssertionError):
        _OfCareless().test_each_split_has_its_samples(prepared()[0])
