"""Classes as other classes: one dictionary, looked up once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch_or_stand_in import torch

from data_stack.dataset.encoders import ClassMapping, EncodingError
from data_stack.exception import ConfigError

labels = st.one_of(st.integers(0, 6), st.sampled_from("abc"), st.none())


@given(mapping=st.dictionaries(labels, labels, max_size=5), column=st.lists(labels, max_size=8))
def test_each_label_is_looked_up_once(mapping: dict[Any, Any], column: list[Any]) -> None:
    mapped = ClassMapping(mapping).transform(np.fromiter(column, dtype=object, count=len(column)))

    assert mapped.tolist() == [mapping.get(label, label) for label in column]


def test_integers_stay_integers_and_strings_strings() -> None:
    assert ClassMapping({1: 300}).transform(np.array([1, 2], dtype=np.uint8)).tolist() == [300, 2]
    assert ClassMapping({1: 0}, unmapped="error").transform(torch.tensor([1, 1])).dtype == np.int64
    assert ClassMapping({"a": "b"}).transform(np.array(["a", "c"])).tolist() == ["b", "c"]
    assert ClassMapping({"a": 1}).transform(["a", "b"]).tolist() == [1, "b"]
    assert ClassMapping({0: 0.5}).transform([0, 1]).tolist() == [0.5, 1]
    assert ClassMapping({2: 2**62}).transform(
        np.array([2, 2**64 - 1], dtype=np.uint64)
    ).tolist() == [2**62, 2**64 - 1]


def test_several_labels_become_one_class() -> None:
    mapping = ClassMapping({(0, 1, 2): "low", (3,): "mid", 4: "high"}, unmapped="error")

    assert mapping.transform([0, 3, 2, 4]).tolist() == ["low", "mid", "low", "high"]
    assert mapping.classes == ("low", "mid", "high")
    assert ClassMapping({"a": 2, "b": 0, "c": 1}).classes == (0, 1, 2)
    with pytest.raises(ConfigError, match="no inverse"):
        mapping.inverse(["low"])


def test_an_unmapped_label_is_named_with_its_position() -> None:
    with pytest.raises(
        EncodingError,
        match=r"at position 1, the label 7 is not in the class mapping: known are 1, 2",
    ):
        ClassMapping({1: 0, 2: 1}, unmapped="error").transform([1, 7])


def test_a_mapping_of_one_to_one_has_an_inverse() -> None:
    mapping = ClassMapping({"cat": 0, "dog": 1}, unmapped="error")

    assert mapping.inverse(mapping.transform(["dog", "cat"])).tolist() == ["dog", "cat"]
    assert ClassMapping({1: 2, 2: 1}).inverse([2, 1, 3]).tolist() == [1, 2, 3]
    with pytest.raises(EncodingError, match="the label 5 is not in"):
        mapping.inverse([5])
