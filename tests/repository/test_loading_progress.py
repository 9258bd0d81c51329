"""Progress bars of ``load``: where they are drawn, and of what."""

from __future__ import annotations

import pytest

from data_stack.dataset.factory import DatasetCard, DatasetFactory
from data_stack.dataset.iterator import DatasetIteratorIF, SequenceDatasetIterator
from data_stack.factories.prepared import PreparedResources, Resources
from data_stack.io.storage_connectors import InMemoryStorageConnector
from data_stack.repository.repository import DatasetRepository


class SlowFactory(DatasetFactory):
    """Two splits, a step each."""

    card = DatasetCard(name="slow", version="1")
    splits = ("train", "test")

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        for split in prepared.steps(self.splits):
            with prepared.create(f"{split}.bin") as file:
                file.write(b"1")

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        with prepared[f"{split}.bin"] as file:
            return SequenceDatasetIterator([list(file.read())])


@pytest.mark.parametrize("progress", [True, False, None])
def test_load_draws_bars_of_steps_where_they_are_wanted(capfd: pytest.CaptureFixture[str], progress: bool | None) -> None:
    repository = DatasetRepository()
    repository.register("slow", SlowFactory)

    repository.load("slow", "train", InMemoryStorageConnector(), progress=progress)

    assert ("slow: preparing" in capfd.readouterr().err) == (progress is True)  # the standard error of tests is not a terminal
