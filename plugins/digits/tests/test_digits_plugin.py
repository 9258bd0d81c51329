"""The digits are those of scikit-learn, in every process, and without a network."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from data_stack_digits import DigitsFactory
from sklearn.datasets import load_digits

from data_stack.io.storage_connectors import FileStorageConnector
from data_stack.testing import DatasetContract


class TestDigits(DatasetContract):
    factory = DigitsFactory
    n_samples: ClassVar[dict[str, int]] = {"train": 1437, "test": 360}


@pytest.fixture
def factory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DigitsFactory:
    monkeypatch.setenv("DATA_STACK_OFFLINE", "1")
    return DigitsFactory(FileStorageConnector(tmp_path))


def test_the_splits_are_the_rows_of_the_file_in_order(factory: DigitsFactory) -> None:
    expected = load_digits()

    train, _ = factory.get_dataset_iterator({"split": "train"})
    test, _ = factory.get_dataset_iterator({"split": "test"})
    images = np.concatenate([train.read_column(0), test.read_column(0)])
    labels = np.concatenate([train.read_column(1), test.read_column(1)])

    assert images.dtype == np.uint8
    assert images.shape == (1797, 8, 8)
    assert np.array_equal(images, expected.images)
    assert np.array_equal(labels, expected.target)
    assert test[0][1:] == (2, 2)
