"""Predicates select the rows that Petastorm's and pyarrow's select."""

from __future__ import annotations

import datetime
import math
import pickle
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from data_stack_petastorm.predicates import (
    in_intersection,
    in_lambda,
    in_negate,
    in_pseudorandom_split,
    in_reduce,
    in_set,
)
from layer_laws import object_column

from data_stack.exception import ConfigError
from data_stack.formats.parquet.selecting import PredicateError, as_predicate, col


def selected(predicate: Any, **columns: Any) -> list[bool]:
    """Which rows of some columns a predicate selects; lists become columns of objects."""
    arrays = {}
    for name, values in columns.items():
        is_array = isinstance(values, np.ndarray)
        arrays[name] = values if is_array else object_column(*values)
    mask = as_predicate(predicate).mask(arrays)
    return [bool(answer) for answer in mask]


# -------------------------------------------------------------------- expressions of pyarrow

ROWS: dict[str, list[Any]] = {
    "speed": [1, 4, None, 7, 3],
    "name": ["a", "b", "c", None, "a"],
    "x": [0.5, math.nan, 2.0, 1.0, None],
}


def selected_by_pyarrow(filters: Any) -> list[bool]:
    columns: dict[str, Any] = {name: pa.array(values) for name, values in ROWS.items()}
    columns["row"] = range(5)
    expression = filters
    if isinstance(filters, list):
        expression = pq.filters_to_expression(filters)
    kept_rows = set(pa.table(columns).filter(expression)["row"].to_pylist())
    return [row in kept_rows for row in range(5)]


@pytest.mark.parametrize(
    "filters",
    [
        [("speed", ">=", 3), ("name", "!=", "b")],
        [[("speed", "=", 1)], [("name", "in", {"c", "d"}), ("x", "<", 3)]],
        (col("speed") > 3) & (col("name") == "b") | col("x").is_null(),
        pc.match_substring_regex(col("name"), "^[ab]$"),
        ~(col("speed") * 2 - 1 > col("x")),
    ],
    ids=["and", "or", "expression", "regex", "arithmetic"],
)
def test_expressions_and_filters_select_what_pyarrow_selects(filters: Any) -> None:
    predicate = as_predicate(filters)

    assert selected(predicate, **ROWS) == selected_by_pyarrow(filters)
    assert pickle.loads(pickle.dumps(predicate)).content() == predicate.content()


def test_the_fields_of_an_expression_are_found() -> None:
    expression = (
        (col("b") > 1) & col("a").isin(["x"])
        | pc.field("n", "c").is_null()
        | (col("o'd: name") == "it's")
    )

    assert as_predicate(expression).fields == ("a", "b", "n", "o'd: name")


def test_expressions_see_columns_of_all_kinds() -> None:
    columns = {
        "t": np.array(["2020-01-01", "NaT"], dtype="M8[us]"),
        "i": np.array([1, 2], dtype=np.uint8),
        "n": [None, None],
    }

    assert selected(as_predicate(col("t") > datetime.datetime(2019, 1, 1)), **columns) == [
        True,
        False,
    ]
    assert selected(as_predicate((col("i") > 1) & col("t").is_null()), **columns) == [False, True]
    assert selected(as_predicate(pc.match_substring(col("n"), "x")), **columns) == [False, False]
    assert selected(as_predicate(col("i") > 1), i=np.zeros(0, dtype=np.int64)) == []


@pytest.mark.parametrize(
    ("predicate", "error"),
    [
        (col("speed") > "x", PredicateError),
        (col("speed") + 1, PredicateError),
        (col("other") > 1, ConfigError),
        (in_set([1], "other"), ConfigError),
        (in_intersection([1], "speed"), PredicateError),
        (in_set([1], "lists"), PredicateError),
    ],
)
def test_what_does_not_suit_the_columns_is_an_error(predicate: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        selected(as_predicate(predicate), lists=[[1]] * 5, **ROWS)


MISTAKES: list[tuple[Any, list[Any]]] = [
    (
        as_predicate,
        [
            [],
            [[]],
            [("a", ">")],
            [("a", "~", 3)],
            [("a", "in", 3)],
            3,
            col(0) > 1,
            pc.scalar(True),
            in_set,
        ],
    ),
    (lambda values: in_set(values, "a"), ["abc", [{}], 3]),
    (lambda fields: in_lambda(fields, len), [[], "a", [3]]),
    (lambda fractions: in_pseudorandom_split(fractions, 1, "a"), [[80, 20], [1.0], [-0.1, 0.2]]),
    (lambda parts: in_reduce(parts, all), [[], [3]]),
    (in_negate, [3]),
]


@pytest.mark.parametrize(
    ("make", "mistake"), [(make, mistake) for make, mistakes in MISTAKES for mistake in mistakes]
)
def test_mistakes_in_writing_are_errors(make: Any, mistake: Any) -> None:
    with pytest.raises(ConfigError):
        make(mistake)


def test_the_content_of_predicates_tells_them_apart() -> None:
    predicates: list[Any] = [
        as_predicate(col("a") > 3),
        as_predicate(col("a") > 4),
        as_predicate(col("a") >= 3),
        as_predicate(col("b") > 3),
        in_set([1, 2], "a"),
        in_set([1, 3], "a"),
        in_set(["1", "2"], "a"),
        in_negate(in_set([1, 2], "a")),
        in_lambda(["a"], lambda a: a > 3),
        in_lambda(["a"], lambda a: a > 4),
    ]

    contents = {repr(predicate.content()) for predicate in predicates}

    assert len(contents) == len(predicates)


def test_the_order_of_members_does_not_change_the_content() -> None:
    assert in_set([1, 2], "a").content() == in_set(np.array([2, 1]), "a").content()


def test_a_predicate_is_shown_with_its_arguments() -> None:
    predicate = in_reduce([in_set({"x"}, "a"), in_lambda(["b"], len)], any)

    assert repr(predicate) == (
        "in_reduce([in_set(['x'], 'a'), in_lambda(['b'], builtins:len)], builtins:any)"
    )


# ------------------------------------------------------------------ predicates of Petastorm


def test_members_compare_as_in_python() -> None:
    values = [1, 1.0, True, "1", "b", None, math.nan]

    answers = selected(in_set([1, "b", math.nan], "a"), a=values)

    assert answers == [True, True, True, False, True, False, False]


def test_null_is_a_value_of_predicates() -> None:
    assert selected(in_set([None], "a"), a=[None, 0]) == [True, False]
    assert selected(in_negate(in_set([1], "a")), a=[None, 1]) == [True, False]


ONE_HOUR_EAST = datetime.timezone(datetime.timedelta(hours=1))


@pytest.mark.parametrize(
    "column",
    [
        np.array(["2020-01-01", "NaT"], "M8[us]"),
        object_column(np.datetime64("2020-01-01", "D"), None),
    ],
    ids=["times", "objects"],
)
@pytest.mark.parametrize(
    "member",
    [
        datetime.datetime(2020, 1, 1, 1, tzinfo=ONE_HOUR_EAST),
        datetime.date(2020, 1, 1),
        np.datetime64("2020-01-01", "h"),
    ],
)
def test_times_are_members_as_instants(member: Any, column: Any) -> None:
    assert selected(in_set([member], "t"), t=column) == [True, False]
    assert selected(in_set([member, None], "t"), t=column) == [True, True]


SPLIT_BY_PETASTORM = [  # what petastorm 0.13.1 said of [0.5, 0.2, 0.3]
    (0, 0), (1, 0), (2, 2), (3, 0), (-1, 0), (255, 0), (10**18, 2), ("a", 1), ("car_0", 0), ("ü", 0), ("", 0), (None, 0),
    (True, 2), (1.5, 0), (math.nan, 2), (1e16, 2), (np.float32(0.1), 1), (np.int32(7), 2),
    (np.datetime64("2020-01-01T00:00:00.000001"), 0), (np.datetime64("2020-01-01"), 1), (b"abc", 0), (Decimal("1.50"), 2),
    (np.float16(0.1), 1),
]  # fmt: skip


@pytest.mark.parametrize(("value", "subset"), SPLIT_BY_PETASTORM, ids=repr)
def test_values_lie_in_the_parts_that_petastorm_puts_them_in(value: Any, subset: int) -> None:
    columns = [object_column(value)]
    array = np.array([value])
    if array.dtype.kind != "S":  # a column of bytes is one of objects
        columns.append(array)

    for column in columns:
        selecting_subsets = []
        for index in range(3):
            split = in_pseudorandom_split([0.5, 0.2, 0.3], index, "a")
            if split.mask({"a": column}).tolist() == [True]:
                selecting_subsets.append(index)
        assert selecting_subsets == [subset]


LISTS = [[1, 2], [], None, (3,), np.array([[4, 1]]), ["1"], [None], "ab"]


def test_lists_intersect_with_sets() -> None:
    answers = selected(in_intersection([1, "ab"], "x"), x=LISTS)

    assert answers == [True, False, False, False, True, False, False, True]


def test_a_missing_list_is_no_list_of_nulls() -> None:
    answers = selected(in_intersection([None], "x"), x=LISTS)

    assert answers == [False, False, False, False, False, False, True, False]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (np.array([[1, 2], [3, 4]]), [True, False]),
        ([np.array([1, 2]), np.array([3])], [True, False]),
        ([], []),
    ],
    ids=["one array", "arrays", "no rows"],
)
def test_arrays_intersect_with_sets(column: Any, expected: list[bool]) -> None:
    assert selected(in_intersection([1], "x"), x=column) == expected


def test_functions_get_fields_in_their_order_and_the_state() -> None:
    calls = []

    def is_one(b: Any, a: Any, state: str) -> bool:
        calls.append((b, a, state))
        return bool(a == 1)

    predicate = in_lambda(["b", "a"], is_one, "state")
    answers = selected(predicate, a=np.array([1, 2], dtype=np.int32), b=["x", None])

    assert answers == [True, False]
    assert calls == [("x", 1, "state"), (None, 2, "state")]


def test_functions_get_numbers_of_python() -> None:
    predicate = in_lambda(["a"], lambda a: type(a) is int)

    assert selected(predicate, a=np.array([1], dtype=np.int32)) == [True]
    assert selected(predicate, a=[np.int8(1), None]) == [True, False]


def test_what_a_lambda_raises_names_the_row_and_its_values() -> None:
    message = r"row 1 .*ZeroDivisionError: division by zero.*a=0"
    with pytest.raises(PredicateError, match=message) as caught:
        selected(in_lambda(["a"], lambda a: 1 / a), a=np.array([1, 0]))

    assert caught.value.row == 1
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    with pytest.raises(PredicateError, match=r"row 0 .*truth value of an array"):
        selected(in_lambda(["a"], lambda a: a > 0), a=np.array([[1, 2]]))


class EvenRows:
    """As a subclass of Petastorm's PredicateBase."""

    def get_fields(self) -> set[str]:
        return {"b", "a"}

    def do_include(self, values: dict[str, Any]) -> bool:
        return bool(values["a"] % 2 == 0 and values["b"] is not None)


def test_classes_of_petastorms_users_are_predicates() -> None:
    columns = {"a": np.array([2, 3, 4]), "b": object_column("x", "x", None)}
    predicate = as_predicate(EvenRows())
    either = in_reduce([EvenRows(), in_set([3], "a")], any)

    assert predicate.fields == ("a", "b")
    assert predicate.mask(columns).tolist() == [True, False, False]
    assert in_negate(EvenRows()).mask(columns).tolist() == [False, True, True]
    assert either.mask(columns).tolist() == [True, True, False]
    assert pickle.loads(pickle.dumps(predicate)).mask(columns).tolist() == [True, False, False]


def test_predicates_have_petastorms_methods() -> None:
    predicate = in_reduce([in_set(["x"], "b"), col("a") > 3], all)

    assert predicate.get_fields() == {"a", "b"}
    assert predicate.do_include({"a": 4, "b": "x", "c": 1}) is True
    assert predicate.do_include({"a": np.int64(3), "b": "x", "c": 1}) is False
