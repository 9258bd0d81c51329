"""A loaded dataset is what was prepared of it: its recipe and fingerprint tell other content under the same version."""

from __future__ import annotations

import hashlib
import io
import json
from typing import Any

import numpy as np
import pytest

from data_stack.dataset.factory import BaseDatasetFactory
from data_stack.dataset.iterator import DatasetIteratorIF, SequenceDatasetIterator
from data_stack.dataset.meta import IteratorMeta
from data_stack.exception import ConfigError, LoaderStateError, RecipeError
from data_stack.factories.declarative import DatasetCard, DatasetFactory, PreparedResources, Resources
from data_stack.formats.numpy_arrays import NumpyDatasetIterator, write_npy
from data_stack.io.storage_connectors import InMemoryStorageConnector
from data_stack.loader import Loader
from data_stack.repository.repository import DatasetRepository
from data_stack.reproduce.recipes import from_recipe
from data_stack.stores.splits import load_splits, save_splits


class Labels(DatasetFactory):
    """The numbers to 240 modulo another one, in one file a split."""

    card = DatasetCard(name="labels", version="1.0.0")
    sources = ()
    splits = ("train", "test")
    modulus = 5

    def preprocess(self, raw: Resources, prepared: PreparedResources) -> None:
        for split in self.splits:
            with prepared.create(f"{split}.npy") as file:
                write_npy(file, np.arange(240) % (self.modulus if split == "train" else 7))

    def open(self, split: str, prepared: Resources) -> DatasetIteratorIF:
        return NumpyDatasetIterator([prepared[f"{split}.npy"]])


class MadeOtherwise(Labels):
    """As it was made by code that has changed since, under the same version."""

    modulus = 3


def repository_with(factory: Any) -> DatasetRepository:
    repository = DatasetRepository(storage=InMemoryStorageConnector())
    repository.register("labels", factory)
    return repository


def npy_digest(values: Any) -> str:
    file = io.BytesIO()
    write_npy(file, values)
    return hashlib.sha256(file.getvalue()).hexdigest()


def test_a_recipe_on_other_content_is_an_error_that_names_the_resource_and_both_digests() -> None:
    one, other = (repository_with(each).load("labels", "train") for each in (Labels, MadeOtherwise))
    recipe = json.dumps(one.shuffle(seed=1).take(10).recipe())

    with pytest.raises(RecipeError, match=r"resource 'train\.npy' of dataset 'labels'") as caught:
        from_recipe(recipe, repository=repository_with(MadeOtherwise))

    assert (caught.value.node, caught.value.layer) == (0, "dataset")
    assert npy_digest(np.arange(240) % 5) in str(caught.value)
    assert npy_digest(np.arange(240) % 3) in str(caught.value)
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
