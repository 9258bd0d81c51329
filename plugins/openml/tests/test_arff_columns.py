"""ARFF files as columns, without a server."""

from __future__ import annotations

import math
from typing import Any

import pyarrow as pa
import pytest
from data_stack_openml.arff_file import Attribute, read_arff
from data_stack_openml.columns import codes_of, column_of

NUMBER = Attribute("x", "number")


def test_declared_kinds_and_exact_texts() -> None:
    text = "@relation r\n@attribute 'a b' REAL % c\n@attribute d date 'y'\n@attribute n {x, y}\n"

    file = read_arff(f"{text}@data\n9007199254740993, 2020, y\n?, ?, ?\n", is_sparse=False)

    assert file.attributes == [
        Attribute("a b", "number"),
        Attribute("d", "text"),
        Attribute("n", "nominal"),
    ]
    assert file.values(0) == ["9007199254740993", None]
    assert file.values(2) == ["y", None]


def test_a_sparse_file_omits_zeros_and_first_categories() -> None:
    text = "@relation r\n@attribute a numeric\n@attribute n {x, y}\n@data\n{0 2}\n{1 y}\n"

    file = read_arff(text, is_sparse=True)

    assert [file.values(position) for position in (0, 1)] == [["2", "0"], ["x", "y"]]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["1", "2.5"], pa.array([1.0, 2.5], pa.float64())),
        (["900719925474099"], pa.array([900719925474099.0], pa.float64())),
        (["9007199254740993", None], pa.array([9007199254740993, None], pa.int64())),
        (["18446744073709551615"], pa.array([18446744073709551615], pa.uint64())),
        (["99999999999999999999999"], pa.array(["99999999999999999999999"], pa.string())),
        (["9007199254740993", "0.5"], pa.array(["9007199254740993", "0.5"], pa.string())),
        (["9" * 5000], pa.array(["9" * 5000], pa.string())),
        (["-5", "+5", "1e3", ".5", "5."], pa.array([-5.0, 5.0, 1000.0, 0.5, 5.0], pa.float64())),
        (["-inf", "Infinity"], pa.array([-math.inf, math.inf], pa.float64())),
        (["1e400", "1"], pa.array(["1e400", "1"], pa.string())),
        (["1e-400", "1"], pa.array(["1e-400", "1"], pa.string())),
        ([None, "-9007199254740993"], pa.array([None, -9007199254740993], pa.int64())),
    ],
)
def test_a_column_has_a_type_that_holds_its_numbers(texts: Any, expected: Any) -> None:
    assert column_of(NUMBER, texts).equals(expected)


@pytest.mark.parametrize("text", ["1_000", "\u0661\u0662", "0x10", "1d", "", "1,5", "one"])
def test_a_text_that_is_no_number_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number"):
        column_of(NUMBER, ["1", text])


def test_a_missing_number_is_nan() -> None:
    column = column_of(NUMBER, ["1", None])

    assert math.isnan(column[1].as_py())


def test_a_missing_code_is_minus_one() -> None:
    codes = codes_of(["b", None, "a"], ["a", "b"])

    assert codes.to_pylist() == [1, -1, 0]


def test_an_unlisted_category_is_an_error() -> None:
    with pytest.raises(ValueError, match="unknown class 'c'"):
        codes_of(["c"], ["a", "b"])
