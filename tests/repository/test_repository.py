"""Datasets by name; advice about names that nothing has; licenses, versions and digests of
datasets.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pluggy
import pytest
from process_harness import run_python
from written_dataset import Written

import data_stack
from data_stack import BaseDatasetFactory, DatasetCard, DatasetFactory
from data_stack.dataset.iterator import (
    CombinedDatasetIterator,
    DatasetIteratorIF,
    InformedDatasetIterator,
    SequenceDatasetIterator,
)
from data_stack.dataset.meta import IteratorMeta, MetaFactory
from data_stack.exception import (
    ConfigError,
    DatasetNotFoundError,
    LoaderStateError,
    RecipeError,
)
from data_stack.io.storage_connectors import InMemoryStorageConnector
from data_stack.loader import Loader
from data_stack.plugins.manager import default_manager
from data_stack.repository.named_dataset import NamedDataset
from data_stack.repository.places import Place
from data_stack.repository.published import PublishedDataset
from data_stack.repository.repository import DatasetRepository
from data_stack.reproduce.recipes import from_recipe
from data_stack.stores.splits import load_splits, save_splits


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


def test_the_configuration_arrives_as_it_was_given_and_positionally(
    repository: DatasetRepository,
) -> None:
    repository.register(identifier="generator", dataset_factory=GeneratorFactory())  # type: ignore[arg-type]  # a duck

    returned: Any = repository.get(identifier="generator", config={"split": "train"})

    assert next(returned) == {"split": "train"}


def test_a_taken_name_needs_replace(
    repository: DatasetRepository,
) -> None:
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
def test_what_is_no_factory_is_refused_when_it_is_registered(
    repository: DatasetRepository, factory: Any
) -> None:
    with pytest.raises(ConfigError, match="factory"):
        repository.register("numbers", factory)

    assert repository.list() == []


# ---------------------------------------------------------------------- classes and stores


class FlexibleFactory(NumbersFactory):
    """Passes all arguments on."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)


@pytest.mark.parametrize("factory_class", [NumbersFactory, FlexibleFactory])
def test_a_class_is_made_with_the_store_of_each_call(
    factory_class: type[BaseDatasetFactory],
) -> None:
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


def test_load_keeps_meta_and_methods_of_an_informed_iterator(
    repository: DatasetRepository,
) -> None:
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

    names = [
        "numbers",
        "iris",
        f"iris@{repository.describe('iris').version}",
        str(tmp_path / "numbers.npy"),
    ]
    resolved = [repository.resolve(name) for name in [*names, str(tmp_path / "iris")]]

    assert [type(each) for each in resolved] == [
        NamedDataset,
        NamedDataset,
        NamedDataset,
        Place,
        PublishedDataset,
    ]
    assert [each.version is None for each in resolved] == [True, False, False, True, False]
    assert [each.describe().name for each in resolved] == [*names, names[2]]
    assert list(resolved[3].load()) == [(0,), (1,), (2,)]


@pytest.mark.parametrize("progress", [True, False, None])
def test_load_draws_bars_of_steps_where_they_are_wanted(
    capfd: pytest.CaptureFixture[str], progress: bool | None
) -> None:
    repository = DatasetRepository()
    repository.register("slow", Written)

    repository.load("slow", "all", InMemoryStorageConnector(), progress=progress)

    assert ("written: preparing" in capfd.readouterr().err) == (
        progress is True
    )  # the standard error of tests is not a terminal


PLUGINS = Path(__file__).parents[2] / "plugins"


def message(name: str) -> str:
    with pytest.raises(DatasetNotFoundError) as caught:
        data_stack.load(name)
    return str(caught.value)


def test_a_missing_package_is_named_with_its_command(
    tmp_path: Path,
) -> None:
    for found in Path(pluggy.__file__).parents[1].iterdir():
        if (
            not found.name.lower().startswith(("lazy_data_stack", "data_stack", "__"))
            and found.suffix != ".pth"
        ):
            (tmp_path / found.name).symlink_to(found)
    code = "import data_stack, sys\nfor name in sys.argv[1:]:\n  try: data_stack.load(name)\n  except LookupError as e: print(e)"

    said, _ = run_python(
        "-S", "-c", code, "cifar10", "hf:owner/name", PYTHONPATH=f"{tmp_path}:{PLUGINS.parent}"
    )

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
        data_stack.load("./other.npz")
    assert str(caught.value) == f"there is nothing at {tmp_path / 'other.npz'}"
    (tmp_path / "nothing").mkdir()
    with pytest.raises(ConfigError) as caught:
        data_stack.load("./nothing")
    assert str(caught.value) == f"the folder {tmp_path / 'nothing'} is empty"
    (tmp_path / "words.txt").write_text("a")
    with pytest.raises(ConfigError) as caught:
        data_stack.load("./words.txt")
    for suffix in (".csv", ".jsonl", ".npy", ".bin", ".parquet", ".npz", ".h5", ".tar", ".pt"):
        assert suffix in str(caught.value).partition("known: ")[2]


# ---------------------------------------------------------------------- licenses, versions, digests


class Labels(Written):
    """The numbers to 240 modulo another one."""

    card = DatasetCard(name="labels", version="1.0.0")
    splits = ("train", "test")
    files = {"train": bytes(number % 5 for number in range(240)), "test": bytes(range(7))}


class MadeOtherwise(Labels):
    """As it was made by code that has changed since, under the same version."""

    files = {"train": bytes(number % 3 for number in range(240)), "test": bytes(range(7))}


def repository_with(factory: Any) -> DatasetRepository:
    repository = DatasetRepository(storage=InMemoryStorageConnector())
    repository.register("labels", factory)
    return repository


def test_a_recipe_on_other_content_names_resource_and_digests() -> None:
    one, other = (repository_with(each).load("labels", "train") for each in (Labels, MadeOtherwise))
    recipe = json.dumps(one.shuffle(seed=1).take(10).recipe())

    with pytest.raises(RecipeError, match="resource 'train' of dataset 'labels'") as caught:
        from_recipe(recipe, repository=repository_with(MadeOtherwise))

    assert (caught.value.node, caught.value.layer) == (0, "dataset")
    for factory in (Labels, MadeOtherwise):
        assert hashlib.sha256(factory.files["train"]).hexdigest() in str(caught.value)
    assert len(from_recipe(recipe, repository=repository_with(Labels))) == 10
    assert one.fingerprint() != other.fingerprint()


# ---------------------------------------------------------------------- where no manifest tells


class Scaled(BaseDatasetFactory):
    """In the manner of the original, with an argument of its own; stores nothing."""

    def __init__(self, factor: int) -> None:
        super().__init__(None)
        self.factor = factor

    def get_dataset_iterator(self, config: Any = None) -> tuple[DatasetIteratorIF, IteratorMeta]:
        values = np.arange(1000)
        values[503] *= self.factor
        return SequenceDatasetIterator([values]), IteratorMeta(0, 0, 0)


def test_a_factory_that_is_registered_again_starts_anew() -> None:
    repository, store = DatasetRepository(), InMemoryStorageConnector()
    repository.register("scaled", Scaled(2))
    old: Any = repository.load("scaled")
    old.cache(storage=store, identifier="x")[0]
    save_splits(store, "splits.json", old.split([0.5, 0.5]))
    state, recipe = Loader(old, 8).state_dict(), old.recipe()

    repository.register("scaled", Scaled(3), replace=True)
    new: Any = repository.load("scaled")

    assert list(new.cache(storage=store, identifier="x")) == list(new)
    with pytest.raises(LoaderStateError, match="another dataset"):
        Loader(new, 8).load_state_dict(state)
    with pytest.raises(ConfigError, match="these splits are of a dataset"):
        load_splits(store, "splits.json", new)
    with pytest.raises(RecipeError, match="dataset 'scaled' have the fingerprint"):
        from_recipe(recipe, repository=repository)


def dataset_class(
    name: str, license_name: str | None, citation: str | None = None, version: str = "1.0.0"
) -> type[DatasetFactory]:
    """A dataset in a store whose first sample says its version."""

    class Numbers(Written):
        card = DatasetCard(name, version, license=license_name, citation=citation)
        splits = ("train",)
        files = {"train": version.encode()}

    return Numbers


@pytest.fixture
def licensed() -> DatasetRepository:
    repository = DatasetRepository(storage=InMemoryStorageConnector())
    repository.register("open", dataset_class("open", "CC0-1.0", "A. Author: Numbers {1}. 2020"))
    repository.register(
        "shared",
        dataset_class("shared", "CC-BY-NC-SA-4.0", "@article{author20,\n  title={Numbers}\n}"),
    )
    repository.register(
        "silent", dataset_class("silent", None, "@article{author20,\n  title={Others}\n}")
    )
    repository.register("open@0.9.0", dataset_class("open", "CC0-1.0", version="0.9.0"))
    return repository


def test_a_mixed_stack_tells_the_licenses_of_all_its_datasets(licensed: DatasetRepository) -> None:
    parts = [licensed.load(name, "train") for name in ("open", "shared", "open")]
    own = SequenceDatasetIterator([[0]])

    licenses = CombinedDatasetIterator(parts).shuffle(seed=1).licenses()
    with_own = CombinedDatasetIterator([parts[0], own]).licenses()

    assert [each.name for each in licenses.datasets] == ["open", "shared"]
    assert [each.license for each in licenses.datasets] == ["CC0-1.0", "CC-BY-NC-SA-4.0"]
    assert "open@1.0.0    CC0-1.0" in str(licenses)
    assert "1 more source(s)" in str(with_own)
    assert licensed.load("silent", "train").licenses().datasets[0].license is None


def test_citations_are_bibtex_each_once(licensed: DatasetRepository) -> None:
    names = ("open", "shared", "open", "silent", "silent")
    stack = CombinedDatasetIterator([licensed.load(name, "train") for name in names])

    cited = stack.citation(with_data_stack=True)

    assert cited.count("@") == 4
    assert "note = {A. Author: Numbers {1}. 2020}" in cited
    assert "@article{author20," in cited
    assert "@article{author20_2,\n  title={Others}" in cited
    assert cited.split("\n\n")[-1].startswith("@software{data_stack")


def test_a_numbered_citation_keeps_its_type() -> None:
    repository = DatasetRepository()
    for name in ("first", "second"):
        entry = f"@article{{art,\n  title={{{name}}}\n}}"
        repository.register(name, dataset_class(name, None, entry))
    stack = CombinedDatasetIterator(
        [repository.load(name, "train") for name in ("first", "second")]
    )

    cited = stack.citation()

    assert "@article{art,\n  title={first}" in cited
    assert "@article{art_2,\n  title={second}" in cited


def test_provenance_is_plain_data_and_no_part_of_the_fingerprint(
    licensed: DatasetRepository,
) -> None:
    first, again = (licensed.load("open", "train", InMemoryStorageConnector()) for _ in range(2))

    (facts,) = first.take(2).provenance()

    assert json.loads(json.dumps(facts))["preparation"]["framework"].startswith("lazy-data-stack ")
    assert facts["preparation"]["seconds"] >= 0
    assert (facts["name"], facts["version"], facts["split"]) == ("open", "1.0.0", "train")
    assert first.fingerprint() == again.fingerprint()


def test_versions_lie_side_by_side_and_recipes_find_theirs(licensed: DatasetRepository) -> None:
    old, new = licensed.load("open@0.9.0", "train"), licensed.load("open@1.0.0", "train")

    assert (old[0], new[0]) == ((ord("0"),), (ord("1"),))
    assert licensed.versions("open") == ["1.0.0", "0.9.0"]
    assert new.fingerprint() == licensed.load("open", "train").fingerprint()
    assert new.dataset_meta.dataset_name == "open"
    again = data_stack.from_recipe(old.take(1).recipe(), repository=licensed)
    assert again[0] == old[0]
