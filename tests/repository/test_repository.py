"""Datasets by name; advice about names that nothing has."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pluggy
import pytest
from written_dataset import Written

import data_stack
from data_stack.dataset.factory import BaseDatasetFactory
from data_stack.dataset.iterator import (
    DatasetIteratorIF,
    InformedDatasetIterator,
    SequenceDatasetIterator,
)
from data_stack.dataset.meta import IteratorMeta, MetaFactory
from data_stack.exception import ConfigError, DatasetNotFoundError
from data_stack.io.storage_connectors import InMemoryStorageConnector
from data_stack.plugins.manager import default_manager
from data_stack.repository.catalogues import FOLDERS, SCHEME_FOLDERS
from data_stack.repository.places import Place
from data_stack.repository.repository import DatasetRepository
from data_stack.repository.resolved import NamedDataset, Published


class NumbersFactory(BaseDatasetFactory):
    """Three numbers."""

    def get_dataset_iterator(self, config: Any = None) -> tuple[DatasetIteratorIF, IteratorMeta]:
        return SequenceDatasetIterator([[1, 2, 3]]), MetaFactory.get_iterator_meta(0, 0, 0)


class GeneratorFactory:
    """As in the original's own tests: another parameter name, no base class, a bare generator."""

    def get_dataset_iterator(self, split: Any = None) -> Iterator[Any]:
        return iter([split])


@pytest.fixture
def repository() -> DatasetRepository:
    return DatasetRepository()


def test_the_configuration_arrives_as_it_was_given_and_positionally(repository: DatasetRepository) -> None:
    repository.register(identifier="generator", dataset_factory=GeneratorFactory())  # type: ignore[arg-type]  # a duck

    returned: Any = repository.get(identifier="generator", config={"split": "train"})

    assert next(returned) == {"split": "train"}


def test_a_taken_name_needs_replace_but_for_a_class_that_is_defined_again(repository: DatasetRepository) -> None:
    def cell() -> type[BaseDatasetFactory]:
        class WineFactory(BaseDatasetFactory):
            pass

        return WineFactory

    repository.register("wine", cell())
    repository.register("wine", again := cell())
    with pytest.raises(ConfigError, match="replace=True"):
        repository.register("wine", other := NumbersFactory())
    assert type(repository.get_factory("wine", InMemoryStorageConnector())) is again

    repository.register("wine", other, replace=True)
    assert repository.get_factory("wine") is other


@pytest.mark.parametrize("factory", [None, lambda: NumbersFactory(), int])
def test_what_is_no_factory_is_refused_when_it_is_registered(repository: DatasetRepository, factory: Any) -> None:
    with pytest.raises(ConfigError, match="factory"):
        repository.register("numbers", factory)

    assert repository.list() == []


# ---------------------------------------------------------------------- classes and stores


class FlexibleFactory(NumbersFactory):
    """Passes all arguments on."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)


@pytest.mark.parametrize("factory_class", [NumbersFactory, FlexibleFactory])
def test_a_class_is_made_with_the_store_of_each_call(factory_class: type[BaseDatasetFactory]) -> None:
    default, other = InMemoryStorageConnector(), InMemoryStorageConnector()
    repository = DatasetRepository(storage=default)
    repository.register("numbers", factory_class)

    assert repository.get_factory("numbers").storage_connector is default
    assert repository.get_factory("numbers", other).storage_connector is other
    assert len(repository.get("numbers")[0]) == 3


def test_an_instance_keeps_its_own_store(repository: DatasetRepository) -> None:
    repository.register("numbers", NumbersFactory(InMemoryStorageConnector()))

    with pytest.raises(ConfigError, match="has its own store"):
        repository.load("numbers", "train", storage="memory://")


def test_load_keeps_the_meta_and_the_methods_of_an_iterator_that_is_informed_already(repository: DatasetRepository) -> None:
    class Own(InformedDatasetIterator):
        def greet(self) -> str:
            return "hello"

    informed = Own(SequenceDatasetIterator([[1]]), MetaFactory.get_dataset_meta(identifier="own"))

    class InformedFactory(BaseDatasetFactory):
        def get_dataset_iterator(self, config: Any = None) -> Any:
            return informed

    repository.register("own", InformedFactory())

    loaded = repository.load("own", "train")

    assert loaded.dataset_meta is informed.dataset_meta
    assert (list(loaded), loaded.greet()) == ([(1,)], "hello")
    assert loaded.recipe()["nodes"][0]["arguments"]["name"] == "own"
    assert informed._origin is None  # the factory's object stays as it is


# ---------------------------------------------------------------------- resolve


def test_a_name_is_resolved_to_what_it_leads_to(tmp_path: Path) -> None:
    repository = DatasetRepository(default_manager(), InMemoryStorageConnector())
    repository.register("numbers", NumbersFactory)
    np.save(tmp_path / "numbers.npy", np.arange(3))
    data_stack.publish("iris", tmp_path / "iris", InMemoryStorageConnector())

    names = ["numbers", "iris", f"iris@{repository.describe('iris').version}", str(tmp_path / "numbers.npy")]
    resolved = [repository.resolve(name) for name in [*names, str(tmp_path / "iris")]]

    assert [type(each) for each in resolved] == [NamedDataset, NamedDataset, NamedDataset, Place, Published]
    assert [each.version is None for each in resolved] == [True, False, False, True, False]
    assert [each.describe().name for each in resolved] == [*names, names[2]]
    assert list(resolved[3].load()) == [(0,), (1,), (2,)]


@pytest.mark.parametrize("progress", [True, False, None])
def test_load_draws_bars_of_steps_where_they_are_wanted(capfd: pytest.CaptureFixture[str], progress: bool | None) -> None:
    repository = DatasetRepository()
    repository.register("slow", Written)

    repository.load("slow", "all", InMemoryStorageConnector(), progress=progress)

    assert ("written: preparing" in capfd.readouterr().err) == (progress is True)  # the standard error of tests is not a terminal


if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PLUGINS = Path(__file__).parents[2] / "plugins"


def message(name: str) -> str:
    with pytest.raises(DatasetNotFoundError) as caught:
        data_stack.load(name)
    return str(caught.value)


def test_the_datasets_and_catalogues_of_our_packages_are_known() -> None:
    datasets: dict[str, str] = {}
    for path in PLUGINS.glob("*/pyproject.toml"):
        entry_points = tomllib.loads(path.read_text(encoding="utf-8"))["project"].get("entry-points", {})
        datasets.update(dict.fromkeys(entry_points.get("data_stack.datasets", ()), path.parent.name))
    modules = {
        scheme: type(each).__module__.partition(".")[0] for scheme, each in default_manager().provided("catalogues").items()
    }

    assert dict(FOLDERS) == datasets
    assert {scheme: f"data_stack_{folder}" for scheme, folder in SCHEME_FOLDERS.items()} == modules


def test_a_name_of_a_package_that_is_not_installed_names_it_and_how_to_install_it(tmp_path: Path) -> None:
    for found in Path(pluggy.__file__).parents[1].iterdir():
        if not found.name.lower().startswith(("lazy_data_stack", "data_stack", "__")) and found.suffix != ".pth":
            (tmp_path / found.name).symlink_to(found)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(PLUGINS.parent)))}
    code = "import data_stack, sys\nfor name in sys.argv[1:]:\n  try: data_stack.load(name)\n  except LookupError as e: print(e)"
    command = [sys.executable, "-S", "-c", code, "cifar10", "hf:owner/name"]

    said = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    for folder in ("classics", "huggingface"):
        how = f'which is not installed: `pip install "lazy-data-stack[{folder}]"`'
        assert f"is in the package lazy-data-stack-{folder}, {how}" in said


def test_other_names_say_what_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pets.csv").write_text("a\n1\n")

    assert "A dataset of the Hugging Face Hub is loaded by 'hf:owner/name'" in message("owner/name")
    assert message("pets.csv").endswith("write './pets.csv'")
    assert "A dataset of the catalogue is hf:name" in message("hf")
    with pytest.raises(ConfigError) as caught:
        data_stack.load("./nope.csv")
    assert str(caught.value) == f"there is nothing at {tmp_path / 'nope.csv'}"
