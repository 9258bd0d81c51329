"""Licences, versions, digests of datasets."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np
import pytest
from written_dataset import Written

import data_stack
from data_stack.dataset.factory import BaseDatasetFactory
from data_stack.dataset.iterator import CombinedDatasetIterator, DatasetIteratorIF, SequenceDatasetIterator
from data_stack.dataset.meta import IteratorMeta
from data_stack.exception import ConfigError, LicenceDeniedError, LoaderStateError, RecipeError
from data_stack.factories.declarative import DatasetCard, DatasetFactory
from data_stack.io.storage_connectors import InMemoryStorageConnector
from data_stack.loader import Loader
from data_stack.repository.repository import DatasetRepository
from data_stack.repository.resolved import VARIABLE
from data_stack.reproduce.recipes import from_recipe
from data_stack.show.explanation import is_denied
from data_stack.stores.splits import load_splits, save_splits


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


def test_a_recipe_on_other_content_is_an_error_that_names_the_resource_and_both_digests() -> None:
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


def test_a_factory_that_is_registered_anew_with_other_arguments_gets_nothing_of_the_one_before() -> None:
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


def dataset_class(name: str, licence: str | None, citation: str | None = None, version: str = "1.0.0") -> type[DatasetFactory]:
    """A dataset in a store whose first sample says its version."""

    class Numbers(Written):
        card = DatasetCard(name, version, license=licence, citation=citation)
        splits = ("train",)
        files = {"train": version.encode()}

    return Numbers


@pytest.fixture
def repository() -> DatasetRepository:
    repository = DatasetRepository(storage=InMemoryStorageConnector())
    repository.register("open", dataset_class("open", "CC0-1.0", "A. Author: Numbers {1}. 2020"))
    repository.register("shared", dataset_class("shared", "CC-BY-NC-SA-4.0", "@article{author20,\n  title={Numbers}\n}"))
    repository.register("silent", dataset_class("silent", None, "@article{author20,\n  title={Others}\n}"))
    repository.register("open@0.9.0", dataset_class("open", "CC0-1.0", version="0.9.0"))
    return repository


@pytest.mark.parametrize(
    ("licence", "denied"),
    [
        ("CC0-1.0", False),
        ("CC-BY-NC-4.0 OR Apache-2.0", False),
        ("CC-BY-NC-4.0 AND Apache-2.0", True),
        ("GPL-2.0-only WITH Classpath-exception-2.0", False),
        ("Zlib", False),  # an SPDX identifier
        ("free for research", None),
        ("CC-BY-4.0 AND LicenseRef-own", None),
        ("CC-BY-4.0 OR LicenseRef-own", False),
        ("CC-BY-NC-4.0 OR LicenseRef-own", None),
        (None, None),
    ],
)
def test_what_an_expression_permits(licence: str | None, denied: bool | None) -> None:
    assert is_denied(licence, ["*-nc-*"]) is denied


def test_a_mixed_stack_tells_the_licences_of_all_its_datasets(repository: DatasetRepository) -> None:
    parts = [repository.load(name, "train") for name in ("open", "shared", "open")]
    own = SequenceDatasetIterator([[0]])

    licences = CombinedDatasetIterator(parts).shuffle(seed=1).licences()
    with_own = CombinedDatasetIterator([parts[0], own]).licences()

    assert [each.name for each in licences.datasets] == ["open", "shared"]
    assert [each.licence for each in licences.datasets] == ["CC0-1.0", "CC-BY-NC-SA-4.0"]
    assert "open@1.0.0    CC0-1.0" in str(licences)
    assert "1 more source(s)" in str(with_own)
    assert repository.load("silent", "train").licences().datasets[0].licence is None


def test_citations_are_bibtex_each_once(repository: DatasetRepository) -> None:
    stack = CombinedDatasetIterator([repository.load(name, "train") for name in ("open", "shared", "open", "silent")])

    cited = stack.citation(with_data_stack=True)

    assert cited.count("@") == 4
    assert "note = {A. Author: Numbers {1}. 2020}" in cited
    assert "@article{author20," in cited
    assert "@article{author20_2,\n  title={Others}" in cited
    assert cited.split("\n\n")[-1].startswith("@software{data_stack")


def test_provenance_is_plain_data_and_no_part_of_the_fingerprint(repository: DatasetRepository) -> None:
    first, again = (repository.load("open", "train", InMemoryStorageConnector()) for _ in range(2))

    (facts,) = first.take(2).provenance()

    assert json.loads(json.dumps(facts))["preparation"]["framework"].startswith("lazy-data-stack ")
    assert facts["preparation"]["seconds"] >= 0
    assert (facts["name"], facts["version"], facts["split"]) == ("open", "1.0.0", "train")
    assert first.fingerprint() == again.fingerprint()


def test_a_policy_refuses_before_anything_is_stored(repository: DatasetRepository, monkeypatch: pytest.MonkeyPatch) -> None:
    store = InMemoryStorageConnector()

    with data_stack.policy(deny=["*-NC-*"]):
        repository.load("open", "train")
        with pytest.raises(LicenceDeniedError, match=r"its licence is CC-BY-NC-SA-4\.0"):
            repository.load("shared", "train", store)
        with pytest.raises(LicenceDeniedError, match="has no licence"):
            repository.load("silent", "train", store)
        with pytest.raises(LicenceDeniedError):
            repository.get("shared", {"split": "train"})
    repository.load("shared", "train")
    monkeypatch.setenv(VARIABLE, "cc0-*, allow-unknown")
    repository.load("silent", "train")
    with pytest.raises(LicenceDeniedError, match="CC0"):
        repository.load("open", "train", store)

    assert not list(store.list_resources())


def test_versions_lie_side_by_side_and_recipes_find_theirs(repository: DatasetRepository) -> None:
    old, new = repository.load("open@0.9.0", "train"), repository.load("open@1.0.0", "train")

    assert (old[0], new[0]) == ((ord("0"),), (ord("1"),))
    assert repository.versions("open") == ["1.0.0", "0.9.0"]
    assert new.fingerprint() == repository.load("open", "train").fingerprint()
    assert new.dataset_meta.dataset_name == "open"
    again = data_stack.from_recipe(old.take(1).recipe(), repository=repository)
    assert again[0] == old[0]
