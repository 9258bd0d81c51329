"""Progress bars of ``load``: where they are drawn, what of, and that a dataset's own option of that name stays its own."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from data_stack.dataset.factory import BaseDatasetFactory, DatasetCard, DatasetFactory
from data_stack.dataset.iterator import DatasetIteratorIF, InformedDatasetIteratorIF, SequenceDatasetIterator
from data_stack.dataset.meta import IteratorMeta
from data_stack.dataset.prepared import PreparedResources, Resources
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


def _config_of(loaded: Any) -> dict[str, Any]:
    config: dict[str, Any] = loaded._arguments()["origin"]["config"]
    return config


@pytest.fixture
def repository() -> DatasetRepository:
    register_scheme("test-slow", fetch_slowly)
    return DatasetRepository()


@pytest.mark.parametrize("progress", [True, False, None])
def test_load_draws_bars_of_retrieval_and_of_steps_where_they_are_wanted(
    repository: DatasetRepository, capfd: pytest.CaptureFixture[str], progress: bool | None
) -> None:
    repository.register("slow", SlowFactory)

    train = repository.load("slow", "train", InMemoryStorageConnector(), progress=progress)

    drawn = capfd.readouterr().err
    bars = ["slow/1/raw/slow.bin:  50%" in drawn, "slow: preparing" in drawn]
    assert bars == [progress is True] * 2  # the standard error of tests is no terminal
    assert _config_of(train) == {}


def test_load_draws_a_bar_of_the_digests_that_a_found_store_needs(
    repository: DatasetRepository, capfd: pytest.CaptureFixture[str]
) -> None:
    repository.register("slow", SlowFactory)
    store = InMemoryStorageConnector()
    for split in SlowFactory.splits:
        store.set_resource(f"slow/{split}.bin", [b"67890"])

    repository.load("slow", storage=store, progress=True)

    assert "slow: taking digests" in capfd.readouterr().err


class OptionFactory(DatasetFactory):
    """Has an option of its own that is called progress."""

    card = DatasetCard(name="option", version="1")
    splits = ("train",)

    def open(self, split: str, prepared: Resources, *, progress: bool = False) -> DatasetIteratorIF:
        return SequenceDatasetIterator([[progress]])


class LegacyFactory(BaseDatasetFactory):
    """A legacy factory, which takes what it likes."""

    def get_dataset_iterator(self, config: Any = None) -> tuple[DatasetIteratorIF, IteratorMeta]:
        return SequenceDatasetIterator([[config.get("progress", "nothing")]]), IteratorMeta(0, 0, 0)


@pytest.mark.parametrize("factory", [OptionFactory, LegacyFactory])
def test_an_option_of_the_dataset_that_is_called_progress_is_handed_to_it(
    repository: DatasetRepository, factory: type[BaseDatasetFactory]
) -> None:
    repository.register("own", factory)

    given = repository.load("own", "train", InMemoryStorageConnector(), progress=True)
    left_out = repository.load("own", "train", InMemoryStorageConnector())

    assert (given[0], left_out[0]) == ((True,), (False,) if factory is OptionFactory else ("nothing",))
    assert _config_of(given) == {"progress": True}


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


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Jupyter's own modules
def test_a_notebook_shows_bars_unless_it_says_no(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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

    NotebookClient(notebook, timeout=60, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}).execute()

    shown, silent = (str(cell.outputs) for cell in notebook.cells)
    assert ("slow: preparing" in shown, "slow: preparing" in silent) == (True, False)
    assert "IProgress" not in shown


def test_types_tell_an_iterator_from_a_dict_of_them() -> None:
    def checked_by_mypy(repository: DatasetRepository, name: str | None) -> None:
        train: InformedDatasetIteratorIF = repository.load("digits", "train")
        splits: dict[str, InformedDatasetIteratorIF] = repository.load("digits", progress=True)
        splits = repository.load("digits", "train")  # type: ignore[assignment]  # an error, or mypy says that this is unused
        train = repository.load("digits")  # type: ignore[assignment]
        train = repository.load("digits", name)  # type: ignore[assignment]
        train, splits  # noqa: B018

    assert callable(checked_by_mypy)
