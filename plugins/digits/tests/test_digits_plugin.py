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

    train, test = (factory.get_dataset_iterator({"split": split})[0] for split in ("train", "test"))

    assert (len(train), len(test)) == (1437, 360)
    images = np.concatenate([train.read_column(0), test.read_column(0)])
    assert images.dtype == np.uint8
    assert np.array_equal(images, expected.images)
    assert np.array_equal(np.concatenate([train.read_column(1), test.read_column(1)]), expected.target)


def test_a_sample_is_an_image_and_twice_its_digit(factory: DigitsFactory) -> None:
    iterator, meta = factory.get_dataset_iterator({"split": "test"})

    image, target, tag = iterator[0]

    assert (image.shape, image.dtype, image.max()) == ((8, 8), np.uint8, 16)
    assert (meta.sample_pos, meta.target_pos, meta.tag_pos) == (0, 1, 2)
    assert (type(target), target, tag) == (int, 2, 2)


def test_other_bytes_under_the_name_are_found(factory: DigitsFactory) -> None:
    factory.prepare()
    assert factory.verify() == []

    with factory.storage_connector.create("digits/1.0.0/preprocessed/test/targets.npy") as file:
        file.write(b"other bytes")

    assert [finding.identifier for finding in factory.verify()] == ["digits/1.0.0/preprocessed/test/targets.npy"]
