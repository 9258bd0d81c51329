"""The flowers are those of scikit-learn, without a network."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from data_stack_iris import IrisFactory
from sklearn.datasets import load_iris

from data_stack.io.storage_connectors import FileStorageConnector
from data_stack.testing import DatasetContract


class TestIris(DatasetContract):
    factory = IrisFactory
    n_samples: ClassVar[dict[str, int]] = {"all": 150}


@pytest.fixture
def factory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> IrisFactory:
    monkeypatch.setenv("DATA_STACK_OFFLINE", "1")
    return IrisFactory(FileStorageConnector(tmp_path))


def test_flowers_and_names_are_those_of_the_file(factory: IrisFactory) -> None:
    expected = load_iris()

    iterator, _ = factory.get_dataset_iterator()

    assert np.array_equal(iterator.read_column(0), expected.data)
    assert np.array_equal(iterator.read_column(1), expected.target)
    assert factory.class_names == tuple(expected.target_names)
    assert [f"{name} (cm)" for name in factory.feature_names] == expected.feature_names


def test_a_sample_is_four_lengths_and_twice_the_species(factory: IrisFactory) -> None:
    features, target, tag = factory.get_dataset_iterator({"split": "all"})[0][149]

    assert (features.dtype, features.tolist()) == (np.float64, [5.9, 3.0, 5.1, 1.8])
    assert (type(target), target, tag) == (int, 2, 2)
