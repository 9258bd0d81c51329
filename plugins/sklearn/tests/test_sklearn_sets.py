"""The datasets of scikit-learn's package by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.datasets

import data_stack
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
    assert data_stack.from_recipe(ours.recipe()).fingerprint() == ours.fingerprint()
    if targets.dtype == np.int64:
        assert list(ours.dataset_meta.class_names or ()) == list(map(str, theirs.target_names))


def test_names_versions_and_words(tmp_path: Path) -> None:
    version = data_stack.describe("sklearn:wine").version
    assert data_stack.load(f"sklearn:wine@{version}", split="all")[0][1] == 0
    assert data_stack.plan("sklearn:wine", tmp_path).works
    with pytest.raises(RevisionNotFoundError, match="values differ"):
        data_stack.load("sklearn:wine@0123456789ab", split="all")
    with pytest.raises(DatasetNotFoundError, match="it has breast_cancer"):
        data_stack.load("sklearn:vine", split="all")
    from data_stack_sklearn import ScikitLearnCatalogue

    assert [entry.name for entry in ScikitLearnCatalogue().search("chemical wine")] == [
        "sklearn:wine"
    ]


def test_the_code_of_the_readme_runs() -> None:
    page = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    exec(page.split("```python\n")[1].split("```")[0], {})
