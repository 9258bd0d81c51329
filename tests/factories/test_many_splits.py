"""Opening all splits of a dataset costs what its splits cost, not the square of it."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import data_stack
from data_stack import DatasetCard, DatasetFactory, DatasetIteratorIF, PreparedResources, Resources
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors import InMemoryStorageConnector
from data_stack.io.storage_connectors.connector import ResourceInfo

N_SPLITS = 30


class ManySplits(DatasetFactory):
    """A resource for each split."""

    card = DatasetCard("many-splits", "1.0.0", license="CC0-1.0")
    splits = tuple(f"part{number}" for number in range(N_SPLITS))

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        for split in self.splits:
            with prepared.create(f"{split}.txt") as file:
                file.write(split.encode())

    def open(self, split: str, prepared: Resources, *, times: int = 1) -> DatasetIteratorIF:
        with prepared[f"{split}.txt"] as resource:
            return data_stack.from_numpy(np.array([resource.read().decode()] * times))


class CountingConnector(InMemoryStorageConnector):
    """Counts the questions for a resource."""

    def __init__(self) -> None:
        super().__init__()
        self.n_stats = 0

    def stat(self, identifier: str) -> ResourceInfo:
        self.n_stats += 1
        return super().stat(identifier)


@pytest.fixture
def repository() -> data_stack.DatasetRepository:
    repository = data_stack.DatasetRepository()
    repository.register("many-splits", ManySplits)
    return repository


def test_each_resource_is_looked_at_a_few_times(repository: Any) -> None:
    store = CountingConnector()
    repository.load("many-splits", storage=store)
    store.n_stats = 0

    splits = repository.load("many-splits", storage=store)

    assert [samples[0][0] for samples in splits.values()] == list(ManySplits.splits)
    assert store.n_stats <= 3 * N_SPLITS


def test_splits_opened_together_are_those_opened_alone(repository: Any) -> None:
    store = InMemoryStorageConnector()

    together = repository.load("many-splits", storage=store, times=2)

    for split, samples in together.items():
        alone = repository.load("many-splits", split, storage=store, times=2)
        assert samples.recipe() == alone.recipe()
        assert samples.dataset_meta == alone.dataset_meta
        assert list(samples) == list(alone)


def test_splits_share_what_recipes_say_of_the_dataset(repository: Any) -> None:
    splits = repository.load("many-splits", storage=InMemoryStorageConnector())

    assert len({id(samples._origin["resources"]) for samples in splits.values()}) == 1


def test_a_damaged_resource_is_repaired_when_all_splits_are_opened(repository: Any) -> None:
    store = InMemoryStorageConnector()
    repository.load("many-splits", storage=store)
    name = "many-splits/1.0.0/part7.txt"
    store.set_resource(name, StreamedResource(name, io.BytesIO(b"other")))

    splits = repository.load("many-splits", storage=store)

    assert splits["part7"][0][0] == "part7"
