"""Datasets of plugins, catalogues of plugins."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

import data_stack
from data_stack import CatalogueName
from data_stack.cli.main import main
from data_stack.exception import (
    CatalogueUnavailableError,
    ConfigError,
    DatasetNotFoundError,
    MalformedIdentifierError,
    PluginError,
)
from data_stack.plugins import PluginManager, default_manager
from data_stack.repository.catalogues import find_catalogue, search_catalogues
from data_stack.reproduce.lock_file import LockFile

Site = Any  # the class in conftest.py, which cannot be imported from here


def test_a_split_knows_which_dataset_it_is_of(site: Site) -> None:
    site.install_dataset("numbers")

    train = data_stack.load("numbers", "train", start=5)

    assert len(train) == 10
    assert train[-1] == (14, 14, 14)
    meta = train.dataset_meta
    assert (meta.identifier, meta.dataset_name, meta.dataset_tag) == (
        "numbers/train",
        "numbers",
        "train",
    )
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
def test_a_dataset_is_kept_where_the_user_says(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    (tmp_path / "source").write_text("abc")
    site.install_dataset("stored", STORED.replace("SOURCE", str(tmp_path / "source")))
    folder = tmp_path / "a folder"
    monkeypatch.setenv("DATA_STACK_HOME", str(folder if kind == "home" else tmp_path / "home"))
    storage: Any = {"path": folder, "url": folder.as_uri(), "home": None}[kind]

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
    described = data_stack.DatasetDescription(
        "old", distribution="old-plugin", distribution_version="1.0"
    )
    assert data_stack.describe("old") == described


def test_a_factory_returning_no_samples_is_its_plugins_error(site: Site) -> None:
    start, end = (
        LEGACY.index("SequenceDatasetIterator([["),
        LEGACY.index("\n\n        def get_dataset"),
    )
    site.install_dataset(
        "old", LEGACY[:start] + "(5, MetaFactory.get_iterator_meta())" + LEGACY[end:]
    )

    with pytest.raises(PluginError, match="must return"):
        data_stack.load("old", "train")


CATALOGUE = """
    import io

    from data_stack import Catalogue, CatalogueDataset, CatalogueEntry, DatasetCard, SequenceDatasetIterator
    from data_stack.exception import CatalogueUnavailableError, DatasetNotFoundError
    from data_stack.plugins import hookimpl

    LATEST, ASKED = ["v1"], []

    class Squares(CatalogueDataset):
        def preprocess(self, raw, prepared):
            with prepared.create("numbers.txt") as file:
                file.write(self.card.version.encode())

        def open(self, split, prepared, *, factor=1):
            with prepared["numbers.txt"] as file:
                n = int(file.read()[1:])
            return SequenceDatasetIterator([[factor * n * i for i in range(3)], list(range(3)), list(range(3))])

    class Numbers(Catalogue):
        def find(self, name, store=None):
            ASKED.append(str(name))
            if name.name != "team/squares":
                raise DatasetNotFoundError(f"no {name}; there is calc:team/squares")
            version = LATEST[0] if name.version in (None, "main") else name.version
            card = DatasetCard(name.folder, version, license="CC0-1.0")
            return Squares(card, ("train", "test"), description="Squares.")

        def search(self, text, limit=20):
            if text == "down":
                raise CatalogueUnavailableError("the server is down")
            return [CatalogueEntry("calc:team/squares", "Squares.", "CC0-1.0", 2_000)] * limit

    @hookimpl
    def data_stack_catalogues():
        return {"calc": Numbers()}
"""


@pytest.fixture
def catalogue(site: Site) -> Any:
    """The module of an installed catalogue."""
    site.install_hooks("calc", CATALOGUE)
    PluginManager().provided("catalogues")
    return sys.modules["calc_plugin_hooks"]


def test_the_recipe_of_a_catalogue_dataset_pins_its_version(catalogue: Any, tmp_path: Path) -> None:
    loaded = data_stack.load("calc:team/squares@main#part", split="test", factor=5)

    (origin,) = [
        node["arguments"] for node in loaded.recipe()["nodes"] if node["layer"] == "dataset"
    ]
    assert [loaded[i][0] for i in range(3)] == [0, 5, 10]
    assert (origin["name"], origin["version"]) == ("calc:team/squares#part", "v1")
    assert catalogue.ASKED == ["calc:team/squares#part@main"]  # once
    catalogue.LATEST[0] = "v2"
    assert data_stack.load("calc:team/squares#part", split="test")[1][0] == 2
    for storage in (None, tmp_path / "other"):
        again = data_stack.from_recipe(json.dumps(loaded.recipe()), storage=storage)
        assert [again[i][0] for i in range(3)] == [0, 5, 10]


def test_names_reach_descriptions_inventories_copies_and_removals(
    catalogue: Any, tmp_path: Path
) -> None:
    data_stack.load("calc:team/squares", split="train")
    data_stack.load("calc:team/squares@v7", split="train")

    description = data_stack.describe("calc:team/squares")

    assert (description.version, description.license, description.splits) == (
        "v1",
        "CC0-1.0",
        ("train", "test"),
    )
    assert (description.description, description.options) == ("Squares.", ("factor=1",))
    assert data_stack.default_repository().versions("calc:team/squares") == ["v1"]
    assert data_stack.take_inventory(names=["calc:team/squares"]).prepared_versions == {
        "calc+team+squares": ["v1", "v7"]
    }
    assert data_stack.copy_datasets(
        data_stack.default_storage(), tmp_path, ["calc:team/squares@v7"]
    ).complete
    removed = data_stack.remove_dataset("calc:team/squares@v1")
    assert [each.folder for each in removed.removed] == ["calc+team+squares/v1"]
    assert data_stack.take_inventory().prepared_versions == {"calc+team+squares": ["v7"]}


def test_a_lock_file_keeps_the_version(
    catalogue: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "data_stack.lock"
    data_stack.lock("calc:team/squares", path=path)
    catalogue.LATEST[0] = "v2"

    assert LockFile.read(path).datasets["calc:team/squares"]["version"] == "v1"
    assert LockFile.read(path).check() == []
    assert data_stack.load("calc:team/squares", split="train", lock=path)[1][0] == 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "cal:team/squares",
            r"No catalogue 'cal' is installed \(did you mean 'calc'\?\); installed are: (.*, )?calc",
        ),
        ("hf2:x", r"No catalogue 'hf2' is installed \(did you mean 'hf'\?\)"),
        ("calc:team/cubes", r"no calc:team/cubes; there is calc:team/squares"),
    ],
)
def test_an_unknown_name_or_scheme_says_what_there_is(
    catalogue: Any, name: str, message: str
) -> None:
    with pytest.raises(DatasetNotFoundError, match=message):
        data_stack.load(name)


def test_search_asks_the_catalogues_only_when_it_is_told_to(
    catalogue: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "DATA_STACK_DISABLE_PLUGINS", "lazy-data-stack-doi,huggingface,openml,sklearn"
    )

    assert main(["search", "squares", "--catalogue", "calc", "--limit", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split() == [
        "calc:team/squares",
        "Squares.",
        "CC0-1.0",
        "2.0",
        "kB",
    ]
    assert main(["search", "down", "--catalogues"]) == 0
    assert "calc could not be asked: the server is down" in capsys.readouterr().err
    assert main(["search", "squares", "--catalogue", "nosuch"]) == 2
    assert main(["search", "squares", "--catalogue", "calc", "--offline"]) == 1
    assert "offline" in capsys.readouterr().err
    with pytest.raises(CatalogueUnavailableError, match="down"):
        search_catalogues("down", "calc")


def test_a_card_of_another_name_is_the_plugins_error(site: Site) -> None:
    site.install_hooks(
        "calc", CATALOGUE.replace("DatasetCard(name.folder", 'DatasetCard("squares"')
    )

    with pytest.raises(PluginError, match=r"is not 'calc\+team\+squares'"):
        data_stack.load("calc:team/squares")


@pytest.mark.parametrize(
    ("text", "parts", "folder"),
    [
        ("hf:a/b", ("a/b", None, None), "hf+a+b"),
        ("hf:a/b@refs/pr/1#en~x", ("a/b", "refs/pr/1", "en~x"), "hf+a+b,en=7Ex"),
        ("hf:a/b#en@v1", ("a/b", "v1", "en"), "hf+a+b,en"),
        (
            "doi:10.5281/zenodo.1+ü%",
            ("10.5281/zenodo.1+ü%", None, None),
            "doi+10.5281+zenodo.1=2B=C3=BC=25",
        ),
    ],
)
def test_a_name_has_parts_and_a_folder_of_its_own(
    text: str, parts: tuple[Any, ...], folder: str
) -> None:
    name = CatalogueName.parse(text)

    assert name is not None
    assert (name.name, name.version, name.part) == parts
    assert name.folder == folder
    assert CatalogueName.parse(str(name)) == name == pickle.loads(pickle.dumps(name))


@pytest.mark.parametrize(
    "text",
    ["digits", "HF:a", "hf:", "mongodb://user:secret@host/sets", "hf:a@1#b@2", "hf:a#b#c", "a b:c"],
)
def test_other_texts_are_no_names_of_catalogues(text: str) -> None:
    assert CatalogueName.parse(text) is None


def test_a_name_that_no_folder_can_have_is_refused() -> None:
    with pytest.raises(MalformedIdentifierError, match="200"):
        data_stack.take_inventory("memory://", ["hf:" + "a" * 300])
    with pytest.raises(ConfigError, match="unknown catalogue"):
        search_catalogues("x", "nosuch")


def test_a_search_without_catalogues_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA_STACK_DISABLE_PLUGINS", "1")
    default_manager.cache_clear()

    try:
        with pytest.raises(ConfigError, match=r"no catalogue is installed.*\[huggingface\]"):
            search_catalogues("flowers")
    finally:
        default_manager.cache_clear()


def test_an_installed_catalogue_is_found_by_its_scheme() -> None:
    assert find_catalogue("hf") is default_manager().provided("catalogues")["hf"]
    with pytest.raises(ConfigError, match="No catalogue 'nosuch' is installed"):
        find_catalogue("nosuch")
