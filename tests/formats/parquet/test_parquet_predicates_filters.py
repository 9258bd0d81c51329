"""Filters and expressions of pyarrow select the rows that pyarrow selects."""

from __future__ import annotations

import operator
import pickle
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_stack.exception import ConfigError
from data_stack.formats.parquet.selecting import (
    ArrowPredicate,
    ColumnStatistics,
    PredicateError,
    as_predicate,
    col,
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
        [("speed", ">", 3)],
        [("speed", ">=", 3), ("name", "!=", "b")],
        [[("speed", "=", 1)], [("name", "==", "c"), ("x", "<", 3)]],
        [("name", "in", ["a", "c"])],
        [("name", "not in", {"a", "c"})],
        [("name", "in", ["a", None])],
        [("name", "not in", ["a", None])],
        [("x", "<=", 1), ("x", "<", 1.5)],
        [("x", "!=", 1)],
    ],
    ids=repr,
)
def test_filters_select_what_pyarrow_selects(filters: Any) -> None:
    assert predicate_of_filters(filters).mask(COLUMNS).tolist() == selected_by_pyarrow(filters)


def test_filters_become_expressions() -> None:
    assert predicate_of_filters([("a", ">", 3), ("b", "in", [1])]) == (col("a") > 3) & col("b").isin([1])
    assert predicate_of_filters([[("a", ">", 3)], [("b", "=", "x")]]) == (col("a") > 3) | (col("b") == "x")
    assert as_predicate(("a", ">", 3)) == (col("a") > 3)


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ([], "filters are a list"),
        ([[]], "empty list"),
        ([("a", ">")], r"\('a', '>'\) is no condition"),
        ([("a", "~", 3)], "unknown operator '~'; there are =, ==,"),
        ([("a", "=", None)], r"condition \('a', '=', None\).*is_null"),
        ([("a", "in", 3)], r"condition \('a', 'in', 3\).*takes a list"),
        ([("a", "in", "abc")], r"write \['abc'\]"),
        ([("a", ">", 3), [("b", ">", 3)]], "is no condition"),
        ([(3, ">", 3)], "is no condition"),
        ("a > 3", "filters are a list"),
    ],
)
def test_wrong_filters_are_errors_that_show_what_is_wrong(filters: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        predicate_of_filters(filters)


EXPRESSIONS = [
    pc.field("speed") > 3,
    pc.scalar(3) >= pc.field("speed"),
    (pc.field("speed") > 3) & (pc.field("name") == "b") | pc.field("x").is_null(),
    ~(pc.field("speed") > 3),
    pc.field("name").isin(["a", "b"]),
    pc.field("name").isin(["a", None]),
    pc.field("x").is_null(nan_is_null=True),
    pc.field("x").is_valid(),
    pc.match_substring_regex(pc.field("name"), "^[ab]$"),
    pc.field("speed") * 2 - 1 > pc.field("x"),
    pc.field("speed") == pa.scalar(None, pa.int64()),
]


@pytest.mark.parametrize("expression", EXPRESSIONS, ids=str)
def test_expressions_of_pyarrow_select_what_pyarrow_selects(expression: pc.Expression) -> None:
    predicate = as_predicate(expression)

    assert predicate.mask(COLUMNS).tolist() == selected_by_pyarrow(expression)
    assert (~predicate).mask(COLUMNS).tolist() == selected_by_pyarrow(~expression)
    assert pickle.loads(pickle.dumps(predicate)) == predicate


def test_the_fields_of_an_expression_are_found() -> None:
    expression = (
        (pc.field("b") > 1) & pc.field("a").isin(["x"]) | pc.field("n", "c").is_null() | (pc.field("o'd: name") == "it's")
    )

    assert ArrowPredicate(expression).fields == ("a", "b", "n", "o'd: name")
    assert ArrowPredicate(pc.field("a") > 1, fields=["b", "a"]).fields == ("a", "b")


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
        (lambda: ArrowPredicate(3), ConfigError, "no expression"),
        (lambda: as_predicate(pc.scalar(True)), ConfigError, "needs no field"),
        (lambda: as_predicate(pc.field("speed") > "x").mask(COLUMNS), PredicateError, "pyarrow cannot evaluate"),
        (lambda: as_predicate(pc.field("speed") + 1).mask(COLUMNS), PredicateError, "not bools"),
        (lambda: as_predicate(pc.field("other") > 1).mask(COLUMNS), ConfigError, "'other'"),
        (lambda: ArrowPredicate(pc.field("speed") > 1, fields=["x"]).mask(COLUMNS), PredicateError, "speed"),
    ],
)
def test_expressions_that_cannot_be_evaluated_are_errors(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("expression", "could", "must"),
    [
        (pc.field("a") > 3, False, False),
        (pc.scalar(3) >= pc.field("a"), True, True),
        (~(pc.field("a") > 3), True, True),
        (pc.field("a").isin([4, 5]), False, False),
        (pc.field("a").is_null(), False, False),
        (pc.field("a").is_valid(), True, True),
        ((pc.field("a") > 3) & (pc.field("b") > 3), False, False),
        ((pc.field("a") > 3) | (pc.field("b") > 3), True, False),
        (pc.field("a") * 2 > 9, True, False),
        (pc.field("a") > 3.5, False, False),
        (pc.field("a") > 2.0**60, True, False),  # pyarrow rounds here
    ],
    ids=str,
)
def test_statistics_spare_reading_for_expressions_of_pyarrow(expression: pc.Expression, could: bool, must: bool) -> None:
    statistics = {"a": ColumnStatistics(0, 3, 0, 5, True)}
    predicate = as_predicate(expression)

    assert (predicate.could_match(statistics), predicate.must_match(statistics)) == (could, must)


def test_statistics_of_partitions_spare_reading_for_expressions_of_pyarrow() -> None:
    day, flag = as_predicate(pc.field("day") == 3), as_predicate(pc.field("flag"))

    assert day.must_match({"day": ColumnStatistics(np.int16(3), np.int16(3), 0, 5, True)})
    assert not day.could_match({"day": ColumnStatistics(np.int16(4), np.int16(4), 0, 5, True)})
    assert flag.must_match({"flag": ColumnStatistics(True, True, 0, 5, True)})
    assert not flag.could_match({"flag": ColumnStatistics(False, False, 0, 5, True)})


COMPARISONS = st.builds(
    lambda compare, number: compare(pc.field("a"), number),
    st.sampled_from([pc.less, pc.greater_equal, pc.equal, pc.not_equal]),
    st.integers(-2, 2) | st.sampled_from([0.5, -1.0]),
)
CONDITIONS = st.recursive(
    st.one_of(
        COMPARISONS,
        st.lists(st.none() | st.integers(-2, 2)).map(lambda values: pc.field("a").isin(pa.array(values, pa.int64()))),
        st.booleans().map(lambda nan_is_null: pc.field("a").is_null(nan_is_null=nan_is_null)),
    ),
    lambda inner: st.one_of(
        st.builds(operator.and_, inner, inner),
        st.builds(operator.or_, inner, inner),
        inner.map(operator.invert),
    ),
    max_leaves=5,
)


@given(expression=CONDITIONS, values=st.lists(st.none() | st.integers(-3, 3), min_size=1, max_size=5))
def test_statistics_leave_out_no_row_that_an_expression_selects(expression: pc.Expression, values: list[int | None]) -> None:
    predicate = as_predicate(expression)
    there = [value for value in values if value is not None]
    low, high = (min(there), max(there)) if there else (None, None)
    statistics = {"a": ColumnStatistics(low, high, values.count(None), len(values), True)}

    mask = predicate.mask({"a": objects(values)})

    assert predicate.could_match(statistics) or not mask.any()
    assert mask.all() or not predicate.must_match(statistics)
