"""Categories: equal as in Python, found in columns of any dtype, unknown ones by policy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from data_stack.dataset.encoders import CategoricalEncoder, EncodingError, OneHotEncoder, TextLabelEncoder
from data_stack.dataset.encoders.class_mapping import ClassMapping
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


def column_of(values: Sequence[Any]) -> Any:
    """Objects as a column."""
    return np.fromiter(values, dtype=object, count=len(values))


@given(learned=st.lists(scalars, min_size=1, max_size=8), asked=st.lists(scalars, max_size=8))
def test_values_are_found_as_a_python_list_finds_them(learned: list[Any], asked: list[Any]) -> None:
    encoder = CategoricalEncoder("ordinal", unknown="index").fit(column_of(learned))
    categories = list(encoder.categories)

    codes = encoder.transform(column_of([*learned, *asked]))

    expected = [categories.index(value) if value in categories else len(categories) for value in [*learned, *asked]]
    assert codes.tolist() == expected
    assert len(categories) == len(set(learned))


@given(
    categories=st.lists(
        st.one_of(st.integers(-5, 5), st.floats(allow_nan=False), st.integers(-(2**64), 2**64)), min_size=1, unique=True
    ),
    asked=st.lists(st.one_of(st.integers(-6, 6), st.integers(-(2**63), 2**63 - 1)), max_size=8),
    dtype=st.sampled_from(["int8", "uint8", "int64", "uint64", "float32", "float64", "bool", "object", "longdouble"]),
)
def test_columns_of_numbers_are_compared_as_exactly_as_python_does(categories: list[Any], asked: list[int], dtype: str) -> None:
    encoder = CategoricalEncoder("ordinal", unknown="index", categories=categories)
    column = np.array(asked, dtype=np.int64).astype(dtype)

    codes = encoder.transform(column)

    exact = [value if dtype == "object" else int(value) if dtype == "longdouble" else value.item() for value in column]
    assert codes.tolist() == [categories.index(value) if value in categories else len(categories) for value in exact]


@pytest.mark.parametrize(
    "column",
    [
        [1, 0, 2],
        [1.0, 0.0, 2.0],
        [True, False, 2],
        np.array([1, 0, 2], dtype=np.uint8),
        np.array([1, 0, 2], dtype=np.float16),
        np.array([np.int64(1), np.float32(0), 2], dtype=object),
        torch.tensor([1, 0, 2]),
        [torch.tensor(1), torch.tensor(0), torch.tensor(2)],
        [np.array(1), np.array(0), np.array(2)],
    ],
)
def test_equal_numbers_are_one_category_whatever_their_type(column: Any) -> None:
    encoder = CategoricalEncoder("ordinal", categories=[0, 1, 2])

    assert encoder.transform(column).tolist() == [1, 0, 2]


def test_one_hot_vectors_are_float32_and_have_one_one() -> None:
    encoder = CategoricalEncoder().fit(["b", "a", "c", "a"])

    vectors = encoder.transform(["c", "a"])

    assert vectors.dtype == np.float32
    assert vectors.tolist() == [[0, 0, 1], [1, 0, 0]]
    assert encoder.output_names == ("a", "b", "c")
    assert encoder.class_names == ("a", "b", "c")
    assert encoder.inverse(vectors).tolist() == ["c", "a"]


def test_values_of_more_dimensions_get_one_axis_more() -> None:
    column = np.array([[3, 5], [5, 5], [3, 3]])

    encoder = CategoricalEncoder().fit(column)

    assert encoder.transform(column).shape == (3, 2, 2)
    assert encoder.inverse(encoder.transform(column)).tolist() == column.tolist()
    with pytest.raises(EncodingError, match=r"at position 1, 4 is an unknown category: known are 3, 5"):
        encoder.transform(np.array([[3, 5], [4, 5]]))


def test_an_unknown_value_is_an_error_that_names_it_and_its_position() -> None:
    encoder = CategoricalEncoder().fit(["a", "b"])

    with pytest.raises(EncodingError, match=r"^at position 2, 'z' is an unknown category: known are 'a', 'b'$") as caught:
        encoder.transform(["a", "b", "z", "y"])

    assert caught.value.position == 2


def test_unknown_values_can_be_vectors_of_zeros() -> None:
    encoder = CategoricalEncoder(unknown="zeros").fit(["a", "b"])

    vectors = encoder.transform(["z", "b", None])

    assert vectors.tolist() == [[0, 0], [0, 1], [0, 0]]
    assert encoder.inverse(vectors).tolist() == [None, "b", None]
    assert encoder.unknown == "zeros"


def test_unknown_values_can_have_a_position_of_their_own() -> None:
    encoder = CategoricalEncoder(unknown="index").fit(["a", "b"])
    ordinal = CategoricalEncoder("ordinal", unknown="index").fit(["a", "b"])

    assert encoder.transform(["z", "b"]).tolist() == [[0, 0, 1], [0, 1, 0]]
    assert encoder.output_names == ("a", "b", "?")
    assert encoder.class_names == ("a", "b", None)
    assert ordinal.transform(["z", "b"]).tolist() == [2, 1]
    assert ordinal.inverse([2, 1]).tolist() == [None, "b"]


def test_nan_is_one_category_and_none_another() -> None:
    encoder = CategoricalEncoder("ordinal").fit(np.array([np.nan, 1.0, -np.nan, np.inf]))
    objects = CategoricalEncoder("ordinal").fit([float("nan"), None, "x", np.float32("nan")])

    assert encoder.transform(np.array([np.nan, np.inf, 1], dtype=np.float32)).tolist() == [2, 1, 0]
    assert np.isnan(encoder.inverse([2])[0])
    assert len(objects.categories) == 3
    assert objects.transform([math.nan, "x", None]).tolist() == [0, 1, 2]
    assert CategoricalEncoder.from_state(objects.state()).transform([float("nan")]).tolist() == [0]


@pytest.mark.parametrize("codes", [[0, 2], [-1], [0.5]])
def test_numbers_that_no_category_has_have_no_inverse(codes: list[Any]) -> None:
    encoder = CategoricalEncoder("ordinal").fit(["a", "b"])

    with pytest.raises(ConfigError, match=r"no category number (2|-1)|are integers"):
        encoder.inverse(codes)


@pytest.mark.parametrize("value", [[1, 2], {"a": 1}, {1}, np.array([1, 2]), object(), 1j, (1, [2])])
def test_what_is_no_category_is_an_error_that_names_its_position(value: Any) -> None:
    column = column_of(["a", "b", value])

    with pytest.raises(EncodingError, match=r"at position 2.*is no category"):
        CategoricalEncoder().fit(column)
    with pytest.raises(EncodingError, match=r"at position 2.*is no category"):
        CategoricalEncoder(unknown="index", categories=["a", "b"]).transform(column)


def test_dates_are_refused() -> None:
    with pytest.raises(ConfigError, match="dtype datetime64"):
        CategoricalEncoder().fit(np.array(["2020-01-01"], dtype="M8[D]"))
    with pytest.raises(ConfigError, match="dtype datetime64"):
        CategoricalEncoder(categories=[1]).transform(np.array(["2020-01-01"], dtype="M8[D]"))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"output": "onehot"}, "output must be one of 'one_hot', 'ordinal', got 'onehot'"),
        ({"unknown": "ignore"}, "unknown must be one of"),
        ({"output": "ordinal", "unknown": "zeros"}, "0 is the first category"),
        ({"categories": [1, 2, True]}, "the category True is there twice, at 0 and at 2"),
        ({"categories": [1, [2]]}, "category number 1: a list is no category"),
        ({"categories": "abc"}, "a list of values, not 'abc'"),
        ({"categories": 3}, "a list of values, not 3"),
    ],
)
def test_wrong_options_are_refused_when_it_is_made(arguments: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        CategoricalEncoder(**arguments)


def test_learned_categories_are_sorted_numbers_first() -> None:
    encoder = CategoricalEncoder().fit(column_of(["b", 10, None, b"x", 9.5, "a", (2, 1), True]))

    assert encoder.categories == (True, 9.5, 10, "a", "b", b"x", (2, 1), None)


@pytest.mark.parametrize("value", [3, np.int64(3), "abc", b"abc", {"a": 1}, None, torch.tensor(3)])
def test_a_single_value_is_no_column(value: Any) -> None:
    with pytest.raises(ConfigError, match="not the single value"):
        CategoricalEncoder(categories=[3]).transform(value)


# ---------------------------------------------------------------------- labels


def test_text_labels_are_numbers_of_their_classes() -> None:
    encoder = TextLabelEncoder().fit(["dog", "cat", "dog"])

    ids = encoder.transform(np.array(["dog", "cat"]))

    assert (ids.tolist(), ids.dtype) == ([1, 0], np.dtype(np.int64))
    assert encoder.class_names == ("cat", "dog")
    assert encoder.inverse(ids).tolist() == ["dog", "cat"]
    assert encoder.target_kind == "label"


@pytest.mark.parametrize("column", [[1, 2], ["a", 1], ["a", None]])
def test_what_is_no_text_is_no_text_label(column: list[Any]) -> None:
    with pytest.raises(ConfigError, match="is no string"):
        TextLabelEncoder().fit(column)


def test_one_hot_labels_take_their_classes_from_a_list() -> None:
    encoder = OneHotEncoder(["b", "a"])

    assert encoder.transform(["a", "b"]).tolist() == [[0, 1], [1, 0]]
    assert encoder.transform([1, 0]).tolist() == [[0, 1], [1, 0]]  # labels that are numbered
    assert encoder.output_size == 2
    with pytest.raises(EncodingError, match=r"at position 0, 2 is an unknown class"):
        encoder.transform([2])
    with pytest.raises(EncodingError, match="-1 is an unknown class"):
        encoder.transform([-1])


def test_one_hot_labels_take_their_classes_from_a_class_mapping() -> None:
    encoder = OneHotEncoder(ClassMapping({(0, 1): "rest", 2: "first"}))

    assert encoder.transform(["first", "rest"]).tolist() == [[0, 1], [1, 0]]
    assert encoder.class_names == ("rest", "first")
    assert encoder.inverse([[0, 1]]).tolist() == ["first"]
