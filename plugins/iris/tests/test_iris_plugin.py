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
    assert iterator[149][1:] == (2, 2)
