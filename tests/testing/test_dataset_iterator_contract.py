"""The iterators of data_stack, and one of a third party, keep the contract of dataset iterators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from data_stack.dataset.iterator import (
    CombinedDatasetIterator,
    DatasetIteratorIF,
    SequenceDatasetIterator,
)
from data_stack.testing import DatasetIteratorContract
from data_stack.testing.iterators import assert_same
from data_stack.testing.layers import PlainIterator

IMAGES = np.arange(7 * 4, dtype=np.float32).reshape(7, 2, 2)
TARGETS = np.array([0, 1, 1, 0, 2, 2, 1])
TAGS = ["a", "b", "c", "d", "e", "f", "g"]
SAMPLES = list(zip(IMAGES, TARGETS, TAGS, strict=True))


def test_an_unknown_number_equals_itself_alone() -> None:
    assert_same({"age": float("nan")}, {"age": float("nan")})

    with pytest.raises(AssertionError):
        assert_same({"age": float("nan")}, {"age": 7.0})


def source() -> SequenceDatasetIterator:
    return SequenceDatasetIterator([IMAGES, TARGETS, TAGS])


class TestSequenceDatasetIteratorOfTensors(DatasetIteratorContract):
    @pytest.fixture
    def iterator(self) -> DatasetIteratorIF:
        return SequenceDatasetIterator([torch.from_numpy(IMAGES), torch.from_numpy(TARGETS)])

    @pytest.fixture
    def expected(self) -> list[Any]:
        return [(torch.from_numpy(image), torch.tensor(target)) for image, target in zip(IMAGES, TARGETS, strict=True)]


class TestCombinedDatasetIterator(DatasetIteratorContract):
    @pytest.fixture
    def iterator(self) -> DatasetIteratorIF:
        return CombinedDatasetIterator([source()[:2], source()[2:2], PlainIterator(SAMPLES[2:6]), source()[6:]])

    @pytest.fixture
    def expected(self) -> list[Any]:
        return SAMPLES


class TestDictSamplesOfAThirdParty(DatasetIteratorContract):
    has_views = False

    @pytest.fixture
    def iterator(self) -> DatasetIteratorIF:
        return PlainIterator([{"image": image, "label": int(target)} for image, target, _ in SAMPLES])

    @pytest.fixture
    def expected(self) -> list[Any]:
        return [{"image": image, "label": int(target)} for image, target, _ in SAMPLES]
