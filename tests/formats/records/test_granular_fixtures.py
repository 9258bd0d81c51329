"""Datasets written by the real Granular, of all its layouts, read equal to what it decoded itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from granular_fixtures import expected_of, fixture_folder

from data_stack.formats import records
from data_stack.testing.iterators import assert_same

NAMES = ["small_new", "small_old", "resumed", "sharded"]


def assert_same_but_for_jpeg(actual: dict[str, Any], expected: dict[str, Any]) -> None:
    """JPEG decoders differ in the last bits; that the bytes are right, another test says."""
    assert list(actual) == list(expected)
    for name, value in expected.items():
        if name == "abc":
            assert actual[name].shape == value.shape
            assert np.abs(actual[name].astype(int) - value).max() <= 3
        else:
            assert_same(actual[name], value)


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("name", NAMES)
def test_a_dataset_of_granular_reads_equal_to_its_truth(name: str, mapped: bool) -> None:
    expected = expected_of(name)

    with records.open(fixture_folder(name), mapped=mapped) as reader:
        assert reader.spec == expected["spec"]
        assert len(reader) == expected["length"]
        for position, sample in enumerate(expected["decoded"]):
            assert_same_but_for_jpeg(reader[position], sample)
        for actual, sample in zip(reader, expected["decoded"], strict=True):
            assert_same_but_for_jpeg(actual, sample)
        for actual, sample in zip(reader.__getitems__(range(len(reader))), expected["decoded"], strict=True):
            assert_same_but_for_jpeg(actual, sample)
