"""The datasets of scikit-learn's package by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.datasets
from data_stack_sklearn import ScikitLearnCatalogue, ScikitLearnDataset

import data_stack
from data_stack import CatalogueName
from data_stack.exception import DatasetNotFoundError, RevisionNotFoundError

NAMES = ["breast_cancer", "diabetes", "digits", "iris", "linnerud", "wine"]


@pytest.mark.parametrize("name", NAMES)
def test_the_samples_are_scikit_learns(name: str) -> None:
    theirs: Any = getattr(sklearn.datasets, f"load_{name}")()

    ours: Any = data_stack.load(f"sklearn:{name}", split="all")
    features, targets, tags = ours.read_batch(range(len(ours)))

    np.testing.assert_array_equal(features, theirs.data)
    np.testing.assert_array_equal(targets, theirs.target)
    np.testing.assert_array_equal(tags, theirs.target)
    if targets.dtype == np.int64:
        class_names = [str(class_name) for class_name in theirs.target_names]
        assert list(ours.dataset_meta.class_names or ()) == class_names


@pytest.mark.parametrize("name", NAMES)
def test_a_recipe_gives_the_same_samples(name: str) -> None:
    dataset = data_stack.load(f"sklearn:{name}", split="all")

    rebuilt = data_stack.from_recipe(dataset.recipe())

    assert rebuilt.fingerprint() == dataset.fingerprint()


def test_a_dataset_is_found_by_its_version() -> None:
    version = data_stack.describe("sklearn:wine").version

    wine = data_stack.load(f"sklearn:wine@{version}", split="all")

    assert wine[0][1] == 0


def test_a_plan_works_without_network(tmp_path: Path) -> None:
    assert data_stack.plan("sklearn:wine", tmp_path).works


def test_another_version_is_an_error() -> None:
    with pytest.raises(RevisionNotFoundError, match="values differ"):
        data_stack.load("sklearn:wine@0123456789ab", split="all")


@pytest.mark.parametrize("name", ["vine", "wine#red"])
def test_an_unknown_dataset_is_an_error_that_lists_all(name: str) -> None:
    with pytest.raises(DatasetNotFoundError, match="it has breast_cancer"):
        data_stack.load(f"sklearn:{name}", split="all")


def test_the_class_refuses_an_unknown_dataset() -> None:
    with pytest.raises(DatasetNotFoundError, match="it has breast_cancer"):
        ScikitLearnDataset(CatalogueName("sklearn", "vine"))


def test_a_search_finds_words_of_name_and_title() -> None:
    entries = ScikitLearnCatalogue().search("chemical wine")

    assert [entry.name for entry in entries] == ["sklearn:wine"]


def test_the_code_of_the_readme_runs() -> None:
    page = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    exec(page.split("```python\n")[1].split("```")[0], {})
