"""Progress bars of ``load``: where they are drawn, and of what."""

from __future__ import annotations

import time

import pytest

from data_stack.dataset.factory import DatasetCard, DatasetFactory
from data_stack.dataset.iterator import DatasetIteratorIF, SequenceDatasetIterator
from data_stack.factories.prepared import PreparedResources, Resources
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.retriever import register_scheme
from data_stack.io.retriever.transfer import Transfer
from data_stack.io.storage_connectors import InMemoryStorageConnector
from data_stack.repository.repository import DatasetRepository


def fetch_slowly(source: str, transfer: Transfer) -> None:
    """Fetch, with time for a bar to be drawn."""
    transfer.expected_size = 10
    transfer.write(b"12345")
    time.sleep(0.4)
    transfer.write(b"67890")


class SlowFactory(DatasetFactory):
    """Ten bytes from a slow source, in a step for each split; opening them shows a bar where one is wanted."""

    card = DatasetCard(name="slow", version="1")
    sources = (ResourceDefinition("raw/slow.bin", "test-slow:x"),)
    splits = ("train", "test")
    prepared_resources = ("train.bin", "test.bin")

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        for split in prepared.steps(self.splits):
            with raw["raw/slow.bin"] as source, prepared.create(f"{split}.bin") as file:
                file.write(source.read())

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        with prepared[f"{split}.bin"] as file:
            return SequenceDatasetIterator([list(file.read())])


@pytest.fixture
def repository() -> DatasetRepository:
    register_scheme("test-slow", fetch_slowly)
    return DatasetRepository()


@pytest.mark.parametrize("progress", [True, False, None])
def test_load_draws_bars_of_retrieval_and_of_steps_where_they_are_wanted(
    repository: DatasetRepository, capfd: pytest.CaptureFixture[str], progress: bool | None
) -> None:
    repository.register("slow", SlowFactory)

    repository.load("slow", "train", InMemoryStorageConnector(), progress=progress)

    drawn = capfd.readouterr().err
    bars = ["retrieving:  50%" in drawn, "slow: preparing" in drawn]
    assert bars == [progress is True] * 2  # the standard error of tests is not a terminal
