"""Values of datasets as JSON of limited size."""

from __future__ import annotations

import datetime
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_stack.agents.limits import Limits
from data_stack.agents.plain_values import LEFT_OUT, PlainValues

LIMITS = Limits()


def convert(value: Any, limits: Limits = LIMITS) -> Any:
    """The value as an agent reads it from JSON."""
    text = json.dumps(PlainValues(limits).convert(value), allow_nan=False, ensure_ascii=False)
    assert len(text.encode()) <= limits.max_answer_bytes
    return json.loads(text)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (np.bool_(True), True),
        (np.int8(-3), -3),
        (2**60, str(2**60)),
        (np.float32(0.5), 0.5),
        (float("nan"), "NaN"),
        (np.float64("-inf"), "-Infinity"),
        (np.datetime64("NaT"), "NaT"),
        (datetime.date(2026, 11, 29), "2026-11-29"),
        ("Grüße\n", "Grüße\n"),
        ("\x1b[31mred\u202e", "\\x1b[31mred\\u202e"),
        ("\ud800", "\\ud800"),
        ((1, "a"), [1, "a"]),
        ({"a": {"b": [1]}}, {"a": {"b": [1]}}),
        ({1: "x", "1": "y"}, {"1": "x", "1'": "y"}),
    ],
)
def test_a_small_value_stays(value: Any, expected: Any) -> None:
    assert convert(value) == expected


def test_a_long_text_is_cut_and_says_its_length() -> None:
    converted = convert("x" * 10_000_000)

    assert converted == {"text": "x" * 2_000, "n_characters": 10_000_000, "is_cut": True}


def test_bytes_are_their_length_and_digest() -> None:
    converted = convert(b"abc")

    assert converted["n_bytes"] == 3
    assert converted["sha256"].startswith("ba7816bf")


def test_an_array_is_its_shape_statistics_and_first_values() -> None:
    array = np.arange(1_000, dtype=np.float32).reshape(10, 100)
    array[0, 0] = np.nan

    converted = convert(array)

    assert converted["dtype"] == "float32"
    assert converted["shape"] == [10, 100]
    assert (converted["min"], converted["max"], converted["n_not_finite"]) == (1, 999, 1)
    assert converted["first_values"] == ["NaN", *range(1, 64)]


def test_a_small_array_is_shown_whole() -> None:
    assert convert(np.eye(2, dtype=np.int64))["values"] == [[1, 0], [0, 1]]


def test_many_columns_are_counted_not_shown() -> None:
    converted = convert({f"column {number}": number for number in range(10_000)})

    assert len(converted) == 101
    assert converted["…"] == "9,900 more entries are left out"


def test_deep_nesting_ends() -> None:
    value: Any = "bottom"
    for _ in range(100_000):
        value = [value]

    assert "nested too deep" in json.dumps(convert(value))


def test_a_value_that_raises_does_not_fail_the_answer() -> None:
    class Broken:
        def __repr__(self) -> str:
            raise RuntimeError("no")

        @property
        def __array__(self) -> None:
            raise RuntimeError("no")

    assert convert([1, Broken()])[0] == 1


def test_a_full_answer_says_what_is_left_out() -> None:
    limits = replace(LIMITS, max_answer_bytes=10_000)

    converted = convert(["x" * 1_000] * 20, limits)

    assert converted[0] == "x" * 1_000
    assert LEFT_OUT in converted
    assert "more values are left out" in converted[-1]


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=3_000)
    | st.binary(max_size=100)
    | st.just(np.arange(5_000)),
    lambda inner: (
        st.lists(inner, max_size=40) | st.dictionaries(st.text(max_size=300), inner, max_size=40)
    ),
    max_leaves=60,
)


@given(values)
def test_any_value_becomes_json_within_the_limit(value: Any) -> None:
    convert(value, replace(LIMITS, max_answer_bytes=10_000))
