"""One rule says which texts are numbers."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_stack.values.text_numbers import (
    decimal_of,
    float_of,
    integer_of,
    is_number,
    numbers_of,
)


@pytest.mark.parametrize(
    ("texts", "numbers"),
    [
        (["1", " -2\t", "007"], [1, -2, 7]),
        (["1", "2.5"], [1.0, 2.5]),
        (["+5"], [5.0]),
        ([".5", "5.", "1e3", "-Infinity"], [0.5, 5.0, 1000.0, -math.inf]),
        (["18446744073709551615", "0"], [2**64 - 1, 0]),
        (["9007199254740994", "0.5"], [9007199254740994.0, 0.5]),
        (["0.0", "0e-999", "-0"], [0.0, 0.0, -0.0]),
    ],
)
def test_texts_that_say_numbers_become_these(texts: list[str], numbers: list[Any]) -> None:
    assert repr(numbers_of(texts)) == repr(numbers)


@pytest.mark.parametrize(
    "texts",
    [
        ["0001_02"],
        ["1_5.0"],
        ["0x10"],
        ["٣"],
        ["\xa07"],
        [""],
        ["true", "1"],
        ["1e400"],
        ["1e-400"],
        ["-0." + "0" * 400 + "1"],
        ["1d5"],
        ["12345678901234567890", "-1"],
        ["9007199254740993", "0.5"],
        ["18446744073709551617"],
        ["9" * 100_000],
    ],
)
def test_texts_that_a_number_would_change_stay_text(texts: list[str]) -> None:
    assert numbers_of(texts) is None


@given(st.decimals(allow_nan=False, allow_infinity=False))
def test_decimals_keep_all_of_their_digits(number: Decimal) -> None:
    assert str(decimal_of(f" {number}\t")) == str(number)


@pytest.mark.parametrize("text", ["1_0", "٣", "0x10", "nan", "-inf", "", "1e99999999999999999999"])
def test_other_texts_are_no_decimals(text: str) -> None:
    assert decimal_of(text) is None


@given(st.integers(-(2**63), 2**64 - 1))
def test_integers_of_64_bits_come_back(number: int) -> None:
    assert integer_of(f" {number}") == number
    assert is_number(str(number))


@given(st.floats())
def test_floats_come_back_as_they_print(number: float) -> None:
    assert repr(float_of(repr(number))) == repr(number)
