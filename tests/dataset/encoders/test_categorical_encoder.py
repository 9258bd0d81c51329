"""Categories: equal as in Python, found in columns of any dtype, unknown ones by policy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from layer_laws import object_column
from torch_or_stand_in import torch

from data_stack.dataset.encoders import (
    CategoricalEncoder,
    EncodingError,
    OneHotEncoder,
    encoder_from_state,
)
from data_stack.dataset.encoders.class_mapping import ClassMapping
from data_stack.dataset.encoders.encoder import Fitting
from data_stack.exception import ConfigError

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.sampled_from([0.0, 1.0, -0.0, 2.0**63, 2.0**53, 2**53 + 1, math.inf]),
    st.text(max_size=3),
    st.binary(max_size=2),
    st.tuples(st.integers(0, 2), st.text(max_size=1)),
)


@given(learned=st.lists(scalars, min_size=1, max_size=8), asked=st.lists(scalars, max_size=8))
def test_values_are_found_as_a_python_list_finds_them(learned: list[Any], asked: list[Any]) -> None:
    encoder = CategoricalEncoder("ordinal", unknown="index").fit(object_column(*learned))
    categories = list(encoder.categories)

    codes = encoder.transform(object_column(*learned, *asked))

    expected = [
        categories.index(value) if value in categories else len(categories)
        for value in [*learned, *asked]
    ]
    assert codes.tolist() == expected
    assert len(categories) == len(set(learned))


@given(
    categories=st.lists(
        st.one_of(st.integers(-5, 5), st.floats(allow_nan=False), st.integers(-(2**64), 2**64)),
        min_size=1,
        unique=True,
    ),
    asked=st.lists(st.one_of(st.integers(-6, 6), st.integers(-(2**63), 2**63 - 1)), max_size=8),
    dtype=st.sampled_from(
        ["int8", "uint8", "int64", "uint64", "float32", "float64", "bool", "object", "longdouble"]
    ),
)
def test_columns_of_numbers_are_compared_as_exactly_as_python_does(
    categories: list[Any], asked: list[int], dtype: str
) -> None:
    encoder = CategoricalEncoder("ordinal", unknown="index", categories=categories)
    column = np.array(asked, dtype=np.int64).astype(dtype)

    codes = encoder.transform(column)

    exact = [
        value if dtype == "object" else int(value) if dtype == "longdouble" else value.item()
        for value in column
    ]
    assert codes.tolist() == [
        categories.index(value) if value in categories else len(categories) for value in exact
    ]


def test_one_hot_vectors_are_float32_and_have_one_one() -> None:
    encoder = CategoricalEncoder().fit(["b", "a", "c", "a"])

    vectors = encoder.transform(["c", "a"])

    assert vectors.dtype == np.float32
    assert vectors.tolist() == [[0, 0, 1], [1, 0, 0]]
    assert encoder.output_names == ("a", "b", "c")
    assert encoder.class_names == ("a", "b", "c")
    assert encoder.inverse(vectors).tolist() == ["c", "a"]


def test_nan_is_one_category_and_none_another() -> None:
    encoder = CategoricalEncoder("ordinal").fit(np.array([np.nan, 1.0, -np.nan, np.inf]))
    objects = CategoricalEncoder("ordinal").fit([float("nan"), None, "x", np.float32("nan")])

    assert encoder.transform(np.array([np.nan, np.inf, 1], dtype=np.float32)).tolist() == [2, 1, 0]
    assert np.isnan(encoder.inverse([2])[0])
    assert len(objects.categories) == 3
    assert objects.transform([math.nan, "x", None]).tolist() == [0, 1, 2]
    assert encoder_from_state(objects.state()).transform([float("nan")]).tolist() == [0]


def test_learned_categories_are_sorted_numbers_first() -> None:
    encoder = CategoricalEncoder().fit(object_column("b", 10, None, b"x", 9.5, "a", (2, 1), True))

    assert encoder.categories == (True, 9.5, 10, "a", "b", b"x", (2, 1), None)


def test_unknown_values_are_errors_zeros_or_one_more_position() -> None:
    zeros = CategoricalEncoder(unknown="zeros").fit(["a", "b"])
    index = CategoricalEncoder(unknown="index").fit(["a", "b"])
    ordinal = CategoricalEncoder("ordinal", unknown="index").fit(["a", "b"])

    with pytest.raises(
        EncodingError, match=r"^at position 2, 'z' is an unknown category: known are 'a', 'b'$"
    ) as caught:
        CategoricalEncoder().fit(["a", "b"]).transform(["a", "b", "z", "y"])
    assert caught.value.position == 2
    assert zeros.transform(["z", "b", None]).tolist() == [[0, 0], [0, 1], [0, 0]]
    assert zeros.inverse(zeros.transform(["z", "b"])).tolist() == [None, "b"]
    assert index.transform(["z", "b"]).tolist() == [[0, 0, 1], [0, 1, 0]]
    assert (index.output_names, index.class_names) == (("a", "b", "?"), ("a", "b", None))
    assert ordinal.transform(["z", "b"]).tolist() == [2, 1]
    assert ordinal.inverse([2, 1]).tolist() == [None, "b"]
    for codes in ([0, 3], [-1], [0.5]):
        with pytest.raises(ConfigError):
            ordinal.inverse(codes)


@pytest.mark.parametrize("value", [np.array([1, 2]), 1j, (1, [2])])
def test_an_unsupported_value_is_named_by_its_position(value: Any) -> None:
    column = object_column("a", "b", value)

    for encode in (
        CategoricalEncoder().fit,
        CategoricalEncoder(unknown="index", categories=["a", "b"]).transform,
    ):
        with pytest.raises(EncodingError) as caught:
            encode(column)
        assert caught.value.position == 2


@pytest.mark.parametrize(
    "column", [np.array(["2020-01-01"], dtype="M8[D]"), "abc", torch.tensor(3)]
)
def test_times_and_single_values_are_no_column_of_categories(column: Any) -> None:
    for encode in (CategoricalEncoder().fit, CategoricalEncoder(categories=[3]).transform):
        with pytest.raises(ConfigError):
            encode(column)


def test_one_hot_labels_are_classes_or_their_numbers() -> None:
    encoder = OneHotEncoder(["b", "a"])
    mapped = OneHotEncoder(ClassMapping({(0, 1): "rest", 2: "first"}))

    assert (
        encoder.transform(["a", "b"]).tolist()
        == encoder.transform([1, 0]).tolist()
        == [[0, 1], [1, 0]]
    )
    for label in (2, -1):
        with pytest.raises(EncodingError):
            encoder.transform([label])
    assert mapped.transform(["first", "rest"]).tolist() == [[0, 1], [1, 0]]
    assert mapped.inverse([[0, 1]]).tolist() == ["first"]


def test_an_encoder_of_given_categories_cannot_be_fitted_in_blocks() -> None:
    with pytest.raises(ConfigError, match="nothing to learn"):
        Fitting(CategoricalEncoder(categories=[1, 2]))
