"""Datasets of plugins, loaded by name as a user does it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import data_stack
from data_stack.exception import PluginError

Site = Any  # the class in conftest.py, which cannot be imported from here


def test_a_split_knows_which_dataset_it_is_of(site: Site) -> None:
    site.install_dataset("numbers")

    train = data_stack.load("numbers", "train", start=5)

    assert len(train) == 10
    assert train[-1] == (14, 14, 14)
    meta = train.dataset_meta
    assert (meta.identifier, meta.dataset_name, meta.dataset_tag) == ("numbers/train", "numbers", "train")
    splits = data_stack.load("numbers", step=2)

    assert list(splits) == ["train", "test"]
    assert [split.dataset_meta.dataset_tag for split in splits.values()] == ["train", "test"]
    assert splits["test"][1] == (2, 2, 2)


def test_a_description_says_what_the_author_declares(site: Site) -> None:
    site.install_dataset("numbers")

    description = data_stack.describe("numbers")

    assert description == data_stack.DatasetDescription(
        name="numbers",
        version="2.0",
        description="Numbers in order.",
        license="CC0-1.0",
        homepage="https://example.org",
        citation="A. Author",
        splits=("train", "test"),
        options=("start=0", "step=1"),
        distribution="numbers-plugin",
        distribution_version="1.0",
    )


STORED = """
    from data_stack import DatasetCard, DatasetFactory, ResourceDefinition, SequenceDatasetIterator

    class Factory(DatasetFactory):
        card = DatasetCard(name="stored", version="1")
        sources = [ResourceDefinition("raw/text", "SOURCE")]
        splits = ("all",)

        def preprocess(self, raw, prepared):
            with raw["raw/text"] as resource, prepared.create("text") as file:
                file.write(resource.read().upper())

        def open(self, split, prepared):
            with prepared["text"] as resource:
                return SequenceDatasetIterator([resource.read().decode()])
"""


@pytest.mark.parametrize("kind", ["path", "url", "home"])
def test_a_dataset_is_kept_where_the_user_says(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    (tmp_path / "source").write_text("abc")
    site.install_dataset("stored", STORED.replace("SOURCE", str(tmp_path / "source")))
    folder = tmp_path / "a folder"
    monkeypatch.setenv("DATA_STACK_HOME", str(folder if kind == "home" else tmp_path / "home"))
    storage: Any = {
        "path": folder,
        "url": folder.as_uri(),
        "home": None,
    }[kind]

    samples = data_stack.load("stored", "all", storage)

    assert list(samples) == [("A",), ("B",), ("C",)]
    assert (folder / "stored" / "1" / "text").read_text() == "ABC"
    assert (tmp_path / "home").exists() is False


def test_a_dataset_may_come_from_a_plugins_retriever(site: Site) -> None:
    site.install_dataset("stored", STORED.replace("SOURCE", "shouting:abc"))
    site.install_hooks(
        "shouting",
        """
        from data_stack.plugins import hookimpl

        def fetch(source, transfer):
            transfer.write(source.partition(":")[2].encode() * 2)

        @hookimpl
        def data_stack_retrievers():
            return {"shouting": fetch}
        """,
    )

    samples = data_stack.load("stored", "all", storage="memory://")

    assert "".join(sample for (sample,) in samples) == "ABCABC"


LEGACY = """
    from data_stack.dataset.factory import BaseDatasetFactory
    from data_stack.dataset.iterator import SequenceDatasetIterator
    from data_stack.dataset.meta import MetaFactory

    class Factory(BaseDatasetFactory):
        def __init__(self, storage_connector):
            self.splits = ["train", "test"]
            super().__init__(storage_connector)

        def _get_iterator(self, split="train", n=3):
            return SequenceDatasetIterator([[split] * n, range(n), range(n)]), MetaFactory.get_iterator_meta(0, 2, 1)

        def get_dataset_iterator(self, config=None):
            return self._get_iterator(**config)
"""


def test_a_legacy_factory_is_loaded_by_name(site: Site) -> None:
    site.install_dataset("old", LEGACY)

    whole: Any = data_stack.load("old")
    test = data_stack.load("old", "test", n=5)

    assert (len(whole), whole[0]) == (3, ("train", 0, 0))
    assert (whole.dataset_meta.identifier, whole.dataset_meta.dataset_tag) == ("old", None)
    assert (len(test), test[0], test.dataset_meta.target_pos) == (5, ("test", 0, 0), 2)
    assert data_stack.describe("old") == data_stack.DatasetDescription(
        "old", distribution="old-plugin", distribution_version="1.0"
    )


def test_a_factory_that_returns_no_samples_is_an_error_of_its_plugin(site: Site) -> None:
    start, end = LEGACY.index("SequenceDatasetIterator([["), LEGACY.index("\n\n        def get_dataset")
    site.install_dataset("old", LEGACY[:start] + "(5, MetaFactory.get_iterator_meta())" + LEGACY[end:])

    with pytest.raises(PluginError, match="must return"):
        data_stack.load("old", "train")
