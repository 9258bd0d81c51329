"""Predicates select the rows that Petastorm's and pyarrow's select."""

from __future__ import annotations

import datetime
import math
import operator
import pickle
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

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
from hypothesis import given
from hypothesis import strategies as st
from layer_laws import object_column
from table_strategies import FLOATS, INTEGERS, TEXTS, compared, tables

from data_stack.exception import ConfigError
from data_stack.formats.parquet import ParquetDataset
from data_stack.formats.parquet.row_groups import RowGroups
from data_stack.formats.parquet.selecting import Predicate, PredicateError, as_predicate, col


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
    others: list[Any] = [
        *map(as_predicate, (col("a") > 3, col("a") > 4, col("a") >= 3, col("b") > 3)),
        *(
            in_set([1, 2], "a"),
            in_set([1, 3], "a"),
            in_set(["1", "2"], "a"),
            in_negate(in_set([1, 2], "a")),
        ),
        *(in_lambda(["a"], lambda a: a > 3), in_lambda(["a"], lambda a: a > 4)),
    ]

    assert len({repr(other.content()) for other in others}) == len(others)
    assert in_set([1, 2], "a").content() == in_set(np.array([2, 1]), "a").content()
    assert repr(in_reduce([in_set({"x"}, "a"), in_lambda(["b"], len)], any)) == (
        "in_reduce([in_set(['x'], 'a'), in_lambda(['b'], builtins:len)], builtins:any)"
    )


# ------------------------------------------------------------------ predicates of Petastorm


def test_members_compare_as_in_python() -> None:
    assert (
        selected(in_set([1, "b", math.nan], "a"), a=[1, 1.0, True, "1", "b", None, math.nan])
        == [True] * 3 + [False, True] + [False] * 2
    )
    assert selected(in_set([None], "a"), a=[None, 0]) == [True, False]
    assert selected(in_negate(in_set([1], "a")), a=[None, 1]) == [True, False]
    moment = datetime.datetime(2020, 1, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=1)))
    for column in (
        np.array(["2020-01-01", "NaT"], "M8[us]"),
        object_column(np.datetime64("2020-01-01", "D"), None),
    ):
        for wanted in (moment, datetime.date(2020, 1, 1), np.datetime64("2020-01-01", "h")):
            assert selected(in_set([wanted], "t"), t=column) == [True, False]
            assert selected(in_set([wanted, None], "t"), t=column) == [True, True]


SPLIT_BY_PETASTORM = [  # what petastorm 0.13.1 said of [0.5, 0.2, 0.3]
    (0, 0), (1, 0), (2, 2), (3, 0), (-1, 0), (255, 0), (10**18, 2), ("a", 1), ("car_0", 0), ("ü", 0), ("", 0), (None, 0),
    (True, 2), (1.5, 0), (math.nan, 2), (1e16, 2), (np.float32(0.1), 1), (np.int32(7), 2),
    (np.datetime64("2020-01-01T00:00:00.000001"), 0), (np.datetime64("2020-01-01"), 1), (b"abc", 0), (Decimal("1.50"), 2),
    (np.float16(0.1), 1),
]  # fmt: skip


@pytest.mark.parametrize(("value", "subset"), SPLIT_BY_PETASTORM, ids=repr)
def test_values_lie_in_the_parts_that_petastorm_puts_them_in(value: Any, subset: int) -> None:
    as_object, as_array = object_column(value), np.array([value])

    for column in [as_object, as_array] if as_array.dtype.kind != "S" else [as_object]:
        found = [
            in_pseudorandom_split([0.5, 0.2, 0.3], index, "a").mask({"a": column}).tolist()
            for index in range(3)
        ]
        assert found.index([True]) == subset
        assert found.count([True]) == 1


def test_lists_intersect_with_sets() -> None:
    lists = [[1, 2], [], None, (3,), np.array([[4, 1]]), ["1"], [None], "ab"]

    assert selected(in_intersection([1, "ab"], "x"), x=lists) == [
        True,
        False,
        False,
        False,
        True,
        False,
        False,
        True,
    ]
    assert selected(in_intersection([None], "x"), x=lists) == [False] * 6 + [True, False]
    assert selected(in_intersection([1], "x"), x=np.array([[1, 2], [3, 4]])) == [True, False]
    assert selected(in_intersection([1], "x"), x=[np.array([1, 2]), np.array([3])]) == [True, False]
    assert selected(in_intersection([1], "x"), x=[]) == []


def test_functions_get_fields_in_their_order_and_the_state() -> None:
    calls = []

    def function(b: Any, a: Any, state: str) -> bool:
        calls.append((b, a, state))
        return bool(a == 1)

    assert selected(
        in_lambda(["b", "a"], function, "state"), a=np.array([1, 2], dtype=np.int32), b=["x", None]
    ) == [True, False]
    assert calls == [("x", 1, "state"), (None, 2, "state")]
    assert type(calls[0][1]) is int
    assert selected(in_lambda(["a"], lambda a: type(a) is int), a=[np.int8(1), None]) == [
        True,
        False,
    ]


def test_what_a_lambda_raises_names_the_row_and_its_values() -> None:
    with pytest.raises(
        PredicateError, match=r"row 1 .*ZeroDivisionError: division by zero.*a=0"
    ) as caught:
        selected(in_lambda(["a"], lambda a: 1 / a), a=np.array([1, 0]))
    with pytest.raises(PredicateError, match=r"row 0 .*truth value of an array"):
        selected(in_lambda(["a"], lambda a: a > 0), a=np.array([[1, 2]]))

    assert caught.value.row == 1
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


class EvenRows:
    """As a subclass of Petastorm's PredicateBase."""

    def get_fields(self) -> set[str]:
        return {"b", "a"}

    def do_include(self, values: dict[str, Any]) -> bool:
        return bool(values["a"] % 2 == 0 and values["b"] is not None)


def test_classes_of_petastorms_users_are_predicates() -> None:
    columns = {"a": np.array([2, 3, 4]), "b": object_column("x", "x", None)}
    predicate = as_predicate(EvenRows())

    assert predicate.fields == ("a", "b")
    assert predicate.mask(columns).tolist() == [True, False, False]
    assert in_negate(EvenRows()).mask(columns).tolist() == [False, True, True]
    assert in_reduce([EvenRows(), in_set([3], "a")], any).mask(columns).tolist() == [
        True,
        True,
        False,
    ]
    assert pickle.loads(pickle.dumps(predicate)).mask(columns).tolist() == [True, False, False]
    ours = in_reduce([in_set(["x"], "b"), col("a") > 3], all)  # with Petastorm's methods
    assert ours.get_fields() == {"a", "b"}
    assert [ours.do_include({"a": a, "b": "x", "c": 1}) for a in (4, np.int64(3))] == [True, False]


# ---------------------------------------------------------------------- the statistics of footers

OTHERS = [
    pa.bool_(),
    pa.date32(),
    pa.timestamp("us"),
    pa.timestamp("us", "UTC"),
    pa.time64("us"),
    pa.decimal128(5, 2),
]


@st.composite
def predicates(draw: st.DrawFn, table: pa.Table, depth: int = 2) -> Predicate:
    """Predicates of a column and some of its values, and their combinations."""
    kind: Any = draw(st.sampled_from(["not", all, any, "one", "one"])) if depth else "one"
    if kind == "not":
        return in_negate(draw(predicates(table, depth - 1)))
    if kind != "one":
        return in_reduce(
            [draw(predicates(table, depth - 1)), draw(predicates(table, depth - 1))], kind
        )
    name = draw(st.sampled_from(table.column_names))
    cells, type_ = (
        [cell for cell in table.column(name).to_pylist() if cell is not None],
        table.schema.field(name).type,
    )
    values: list[Any] = (
        draw(st.lists(st.sampled_from(cells), min_size=2, max_size=2)) if cells else []
    )
    meant = values
    if pa.types.is_time(type_):  # which is also a duration
        meant = [
            datetime.datetime.combine(datetime.date.min, each) - datetime.datetime.min
            for each in values
        ]
    elif pa.types.is_timestamp(type_):  # a time without a zone is one of UTC
        meant = [each.replace(tzinfo=None) for each in values]
    elif pa.types.is_integer(
        type_
    ):  # pyarrow takes Python's for int64, to which it cannot cast large ones
        meant = [pa.scalar(each, type_) for each in values]
    some: list[Any] = [
        in_set([*values, None], name),
        in_pseudorandom_split([0.5, 0.5], 0, name),
        col(name).is_null(),
    ]
    some.append(in_lambda([name], lambda value: value is not None and str(value) > "2"))
    if cells:
        compare = draw(
            st.sampled_from(
                [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]
            )
        )
        comparison = compare(col(name), meant[0])
        some += [comparison, comparison, ~comparison, col(name).isin(meant), in_set(values, name)]
    return as_predicate(draw(st.sampled_from(some)))


@compared
@given(tables([*INTEGERS, *FLOATS, *TEXTS, *OTHERS], max_rows=9), st.integers(1, 4), st.data())
def test_footers_leave_out_no_row(table: pa.Table, n_rows: int, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(table, f"{folder}/a.parquet", row_group_size=n_rows)
        columns = ParquetDataset(folder).read_batch(slice(None))

        for predicate in data.draw(st.lists(predicates(table), min_size=6, max_size=6)):
            assert (
                len(ParquetDataset(folder, filters=predicate)) == predicate.mask(columns).sum()
            ), predicate


def test_bounds_of_float32_leave_out_no_rounded_member(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": pa.array([0.1, 0.1], pa.float32())}), tmp_path / "a.parquet")

    assert len(ParquetDataset(tmp_path, filters=col("x").isin([0.1]))) == 2


def test_bytes_that_pyarrow_cannot_compare_are_refused(
    tmp_path: Path,
) -> None:
    pq.write_table(pa.table({"b": [b"\xff"]}), tmp_path / "a.parquet")

    with pytest.raises(ConfigError, match="no kernel matching input types"):
        len(ParquetDataset(tmp_path, filters=col("b") == pa.scalar(b"\xff", pa.binary_view())))


def test_times_with_a_zone_spare_row_groups(
    tmp_path: Path,
) -> None:
    times = [
        datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc) + datetime.timedelta(days=day)
        for day in range(8)
    ]
    zoned = pa.array(times, pa.timestamp("us", "+01:00"))
    naive = pa.array([time.replace(tzinfo=None) for time in times], pa.timestamp("us"))
    pq.write_table(
        pa.table({"zoned": zoned, "naive": naive}), tmp_path / "a.parquet", row_group_size=2
    )

    elsewhere = pa.scalar(
        times[4], pa.timestamp("ns", "Asia/Kathmandu")
    )  # pyarrow compares other zones or other units, not both
    some = in_set(times[4:], "naive")
    reduced = [
        in_reduce([some, in_negate(in_set(times[:4], "naive"))], all),
        in_reduce([some, col("zoned") > times[5]], any),
    ]
    of_zone = [col("zoned") >= times[4], col("zoned") >= zoned[4], col("zoned") >= elsewhere]
    for filters in ([("zoned", ">=", times[4])], some, *of_zone, *reduced):
        with patch.object(RowGroups, "open", autospec=True, side_effect=RowGroups.open) as read:
            assert len(ParquetDataset(tmp_path, filters=filters)) == 4
        assert read.call_count == 2
    assert len(ParquetDataset(tmp_path, filters=col("zoned").isin(times[:3]))) == 3
    with pytest.raises(
        ConfigError,
        match=r"row group \d .*Cannot compare timestamp with timezone to timestamp without timezone",
    ):
        len(ParquetDataset(tmp_path, filters=col("naive") > times[0]))
