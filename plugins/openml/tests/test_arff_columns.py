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
    ],
)
def test_a_column_has_a_type_that_holds_its_numbers(texts: Any, expected: Any) -> None:
    assert column_of(NUMBER, texts).equals(expected)


def test_missing_numbers_are_nan_and_missing_codes_are_minus_one() -> None:
    assert math.isnan(column_of(NUMBER, ["1", None])[1].as_py())
    assert codes_of(["b", None, "a"], ["a", "b"]).to_pylist() == [1, -1, 0]
    with pytest.raises(ValueError, match="unknown class 'c'"):
        codes_of(["c"], ["a", "b"])
