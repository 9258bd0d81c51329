"""Progress bars of ``load``: where they are drawn, and of what."""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

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


NOTEBOOK_DATASET = """
import data_stack

class Slow(data_stack.DatasetFactory):
    card = data_stack.DatasetCard(name="slow", version="1")
    splits = ("train", "test")

    def preprocess(self, raw, prepared):
        for split in prepared.steps(self.splits):
            with prepared.create(split) as file:
                file.write(b"123")

    def open(self, split, prepared):
        return data_stack.SequenceDatasetIterator([b"123"])

"""


class RecordingClient(NotebookClient):
    """Keeps what each cell sent, for a finished bar leaves nothing."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.messages: dict[int, list[Any]] = defaultdict(list)

    def process_message(self, msg: Any, cell: Any, cell_index: int) -> Any:
        self.messages[cell_index].append(msg["content"])
        return super().process_message(msg, cell, cell_index)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Jupyter's own modules
def test_a_notebook_shows_bars_unless_it_says_no_and_a_finished_one_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATA_STACK_OFFLINE", "1")
    cells = [
        f"data_stack.default_repository().register('slow', Slow, replace=True)\n"
        f"data_stack.load('slow', storage='memory://', progress={said}).keys()"
        for said in ("None", "False")
    ]
    cells[0] = f"{NOTEBOOK_DATASET}{cells[0]}"
    notebook: Any = nbformat.v4.new_notebook(  # type: ignore[no-untyped-call]
        cells=list(map(nbformat.v4.new_code_cell, cells))
    )

    client = RecordingClient(notebook, timeout=60, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}})

    client.execute()

    shown, silent = (str(client.messages[number]) for number in (0, 1))
    assert ("slow: preparing" in shown, "slow: preparing" in silent) == (True, False)
    bars, *results = notebook.cells[0].outputs
    assert (bars.output_type, bars.data) == ("display_data", {"text/plain": "", "text/html": ""})
    assert [each.output_type for each in (*results, *notebook.cells[1].outputs)] == ["execute_result"] * 2
