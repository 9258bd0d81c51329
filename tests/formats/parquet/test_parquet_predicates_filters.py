"""Filters and expressions of pyarrow select the rows that pyarrow selects."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from data_stack.exception import ConfigError
from data_stack.formats.parquet.selecting import (
    ArrowPredicate,
    PredicateError,
    as_predicate,
    predicate_of_filters,
)


def objects(items: list[Any]) -> npt.NDArray[Any]:
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array


ROWS: dict[str, list[Any]] = {
    "speed": [1, 4, None, 7, 3],
    "name": ["a", "b", "c", None, "a"],
    "x": [0.5, float("nan"), 2.0, 1.0, None],
}
COLUMNS = {name: objects(values) for name, values in ROWS.items()}


def selected_by_pyarrow(filters: Any) -> list[bool]:
    table = pa.table({**{name: pa.array(values) for name, values in ROWS.items()}, "row": range(5)})
    kept = set(table.filter(pq.filters_to_expression(filters) if isinstance(filters, list) else filters)["row"].to_pylist())
    return [row in kept for row in range(5)]


@pytest.mark.parametrize(
    "filters",
    [
        [("speed", ">=", 3), ("name", "!=", "b")],
        [[("speed", "=", 1)], [("name", "==", "c"), ("x", "<", 3)]],
        [("name", "in", ["a", "c"])],
        [("name", "not in", {"a", "c"})],
        [("name", "in", ["a", None])],
        [("name", "not in", ["a", None])],
        [("x", "!=", 1)],
    ],
)
def test_filters_select_what_pyarrow_selects(filters: Any) -> None:
    assert predicate_of_filters(filters).mask(COLUMNS).tolist() == selected_by_pyarrow(filters)


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ([], "filters are a list"),
        ([[]], "empty list"),
        ([("a", ">")], r"\('a', '>'\) is no condition"),
        ([("a", "~", 3)], "unknown operator '~'; there are =, ==,"),
        ([("a", "=", None)], r"condition \('a', '=', None\).*is_null"),
        ([("a", "in", 3)], r"condition \('a', 'in', 3\).*takes a list"),
    ],
)
def test_wrong_filters_are_errors_that_show_what_is_wrong(filters: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        predicate_of_filters(filters)


EXPRESSIONS = [
    pc.field("speed") > 3,
    (pc.field("speed") > 3) & (pc.field("name") == "b") | pc.field("x").is_null(),
    pc.field("name").isin(["a", "b"]),
    pc.field("name").isin(["a", None]),
    pc.field("x").is_null(nan_is_null=True),
    pc.match_substring_regex(pc.field("name"), "^[ab]$"),
    pc.field("speed") * 2 - 1 > pc.field("x"),
    pc.field("speed") == pa.scalar(None, pa.int64()),
]


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=str)
def test_expressions_of_pyarrow_select_what_pyarrow_selects(expression: pc.Expression) -> None:
    predicate = as_predicate(expression)

    assert predicate.mask(COLUMNS).tolist() == selected_by_pyarrow(expression)
    assert (~predicate).mask(COLUMNS).tolist() == selected_by_pyarrow(~expression)
    assert pickle.loads(pickle.dumps(predicate)).content() == predicate.content()


def test_the_fields_of_an_expression_are_found() -> None:
    expression = (
        (pc.field("b") > 1) & pc.field("a").isin(["x"]) | pc.field("n", "c").is_null() | (pc.field("o'd: name") == "it's")
    )

    assert ArrowPredicate(expression).fields == ("a", "b", "n", "o'd: name")


def test_expressions_see_columns_of_all_kinds() -> None:
    columns = {
        "t": np.array(["2020-01-01", "NaT"], dtype="M8[us]"),
        "i": np.array([1, 2], dtype=np.uint8),
        "n": objects([None, None]),
    }
    moment = pa.scalar(np.datetime64("2019-01-01", "us").item())

    assert as_predicate(pc.field("t") > moment).mask(columns).tolist() == [True, False]
    assert as_predicate((pc.field("i") > 1) & pc.field("t").is_null()).mask(columns).tolist() == [False, True]
    assert as_predicate(pc.match_substring(pc.field("n"), "x")).mask(columns).tolist() == [False, False]
    assert as_predicate(pc.field("i") > 1).mask({"i": np.zeros(0, dtype=np.int64)}).tolist() == []


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: as_predicate(pc.field(0) > 1), ConfigError, "are named"),
        (lambda: as_predicate(pc.scalar(True)), ConfigError, "needs no field"),
        (lambda: as_predicate(pc.field("speed") > "x").mask(COLUMNS), PredicateError, "pyarrow cannot evaluate"),
        (lambda: as_predicate(pc.field("speed") + 1).mask(COLUMNS), PredicateError, "not bools"),
        (lambda: as_predicate(pc.field("other") > 1).mask(COLUMNS), ConfigError, "'other'"),
    ],
)
def test_expressions_that_cannot_be_evaluated_are_errors(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()
