"""Predicates select the rows that they say, and statistics never leave out a row that they would select."""

from __future__ import annotations

import datetime
import math
import operator
import pickle
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from data_stack.exception import ConfigError
from data_stack.formats.parquet.selecting import (
    ColumnStatistics,
    Predicate,
    PredicateError,
    as_predicate,
    col,
    in_intersection,
    in_lambda,
    in_negate,
    in_pseudorandom_split,
    in_reduce,
    in_set,
)

WRONG: Any = 3


def objects(items: list[Any]) -> npt.NDArray[Any]:
    array = np.empty(len(items), dtype=object)
    for position, item in enumerate(items):
        array[position] = item
    return array


def selected(predicate: Predicate, **columns: Any) -> list[bool]:
    found: list[bool] = predicate.mask(
        {name: values if isinstance(values, np.ndarray) else objects(values) for name, values in columns.items()}
    ).tolist()
    return found


# ---------------------------------------------------------------------- against Python, row by row

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
NUMBERS = st.integers(-3, 3) | st.sampled_from([0.5, math.nan, math.inf, -math.inf, -0.0, -(2**63), 1000, 2**64 - 1])
COLUMNS = st.one_of(
    st.lists(st.integers(-3, 3), max_size=6).map(lambda items: np.array(items, dtype=np.int8)),
    st.lists(st.sampled_from([0, 3, 2**63, 2**64 - 1]), max_size=6).map(lambda items: np.array(items, dtype=np.uint64)),
    st.lists(st.sampled_from([0.5, 2.0, math.nan, math.inf]), max_size=6).map(lambda items: np.array(items, dtype=np.float32)),
    st.lists(st.none() | st.integers(-3, 3), max_size=6).map(objects),
    st.lists(st.none() | st.sampled_from([0.5, 1.0, math.nan]), max_size=6).map(objects),
    st.lists(st.none() | st.sampled_from([Decimal("0.5"), Decimal(-2)]), max_size=6).map(objects),
)


def naive(truth: Callable[[Any], Any], column: npt.NDArray[Any]) -> list[bool | None]:
    """True, False or None for each row; None where there is a null."""
    return [None if value is None else bool(truth(value)) for value in column.tolist()]


def check(predicate: Predicate, truths: list[bool | None], column: npt.NDArray[Any]) -> None:
    assert predicate.mask({"a": column}).tolist() == [truth is True for truth in truths]
    assert (~predicate).mask({"a": column}).tolist() == [truth is False for truth in truths]


@given(column=COLUMNS, name=st.sampled_from(sorted(COMPARISONS)), number=NUMBERS)
def test_a_comparison_with_a_number_is_that_of_python(column: npt.NDArray[Any], name: str, number: Any) -> None:
    assume(number == number or not any(isinstance(value, Decimal) for value in column.tolist()))  # Python does not compare these

    check(COMPARISONS[name](col("a"), number), naive(lambda a: COMPARISONS[name](a, number), column), column)


@given(column=COLUMNS, numbers=st.lists(NUMBERS, max_size=4))
def test_membership_is_that_of_python(column: npt.NDArray[Any], numbers: list[Any]) -> None:
    wanted = {number for number in numbers if number == number}

    check(col("a").isin(numbers), naive(lambda a: a in wanted, column), column)
    assert in_set(numbers, "a").mask({"a": column}).tolist() == [value in wanted for value in column.tolist()]


TEXTS = st.lists(st.none() | st.text(alphabet="abß", max_size=2), max_size=6).map(objects)


@given(column=TEXTS, text=st.text(alphabet="abß", max_size=2), name=st.sampled_from(sorted(COMPARISONS)))
def test_texts_compare_as_in_python(column: npt.NDArray[Any], text: str, name: str) -> None:
    check(COMPARISONS[name](col("a"), text), naive(lambda a: COMPARISONS[name](a, text), column), column)


PREDICATES = st.recursive(
    st.one_of(
        st.builds(
            lambda name, sign, number: COMPARISONS[sign](col(name), number),
            st.sampled_from("ab"),
            st.sampled_from(sorted(COMPARISONS)),
            st.integers(-2, 2),
        ),
        st.sampled_from("ab").map(lambda name: col(name).is_null()),
        st.builds(lambda name, numbers: in_set(numbers, name), st.sampled_from("ab"), st.lists(st.none() | st.integers(-1, 1))),
        st.integers(0, 1).map(lambda index: in_pseudorandom_split([0.5, 0.5], index, "a")),
        st.just(in_lambda(["a", "b"], lambda a, b: a == b)),
    ),
    lambda inner: st.one_of(
        st.builds(operator.and_, inner, inner),
        st.builds(operator.or_, inner, inner),
        inner.map(operator.invert),
        inner.map(in_negate),
        st.builds(in_reduce, st.lists(inner, min_size=1, max_size=3), st.sampled_from([all, any, np.all, lambda x: sum(x) == 1])),
    ),
    max_leaves=6,
)


@given(
    predicate=PREDICATES,
    rows=st.lists(st.tuples(st.none() | st.integers(-2, 2), st.none() | st.integers(-2, 2)), min_size=1, max_size=6),
)
def test_combinations_say_of_many_rows_what_they_say_of_each(
    predicate: Predicate, rows: list[tuple[int | None, int | None]]
) -> None:
    columns = {"a": objects([a for a, _ in rows]), "b": objects([b for _, b in rows])}

    assert predicate.mask(columns).tolist() == [predicate.do_include({"a": a, "b": b}) for a, b in rows]


# ---------------------------------------------------------------------- expressions


def test_nulls_make_comparisons_unknown_and_so_are_their_negations() -> None:
    rows = [1, None, 5]

    assert selected(col("a") > 3, a=rows) == [False, False, True]
    assert selected(~(col("a") > 3), a=rows) == [True, False, False]
    assert selected((col("a") > 3) | col("a").is_null(), a=rows) == [False, True, True]
    assert selected(~((col("a") > 3) | (col("a") <= 3)), a=rows) == [False, False, False]
    assert selected(in_negate(col("a") > 3), a=rows) == [True, True, False]
    assert selected(in_set([None], "a"), a=[None, None]) == [True, True]
    for predicate in (col("a") > 3, col("a").isin([1]), col("a") % 2 == 1, in_set([1], "a")):
        assert selected(predicate, a=[None, None]) == [False, False]
        assert selected(predicate, a=[]) == []
    assert selected(col("a").is_not_null(), a=rows) == [True, False, True]


@pytest.mark.parametrize("dtype", ["M8[D]", "M8[ns]", ">M8[s]", "object"])
def test_times_compare_as_moments_whatever_their_types(dtype: str) -> None:
    column = np.array(["2020-01-01", "2020-01-02", "NaT"], dtype="M8[us]").astype(dtype)
    if dtype == "object":
        column = objects([np.datetime64("2020-01-01", "D"), np.datetime64("2020-01-02", "D"), None])
    zoned = datetime.datetime(2020, 1, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=1)))
    for moment in (datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1), np.datetime64("2020-01-01", "h"), zoned):
        assert selected(col("t") > moment, t=column) == [False, True, False]
        assert selected(col("t") == moment, t=column) == [True, False, False]
        assert selected(col("t").isin([moment]), t=column) == [True, False, False]
    assert selected(col("t") > datetime.datetime(2020, 1, 1, 0, 0, 0, 1), t=column) == [False, True, False]
    assert selected(col("t") <= np.datetime64("2020-01-01T00:00:00.000000001"), t=column) == [True, False, False]
    assert selected(col("t").is_null(), t=column) == [False, False, True]


def test_other_types_compare_with_their_own() -> None:
    assert selected(col("a") >= b"b", a=[b"a", b"b\0", None]) == [False, True, False]
    assert selected(col("a") == Decimal("1.10"), a=[Decimal("1.1"), Decimal(1), None]) == [True, False, False]
    assert selected(col("a") < datetime.time(0, 0, 2), a=np.array([1, 2], dtype="m8[s]")) == [True, False]
    assert selected(col("a") > datetime.timedelta(seconds=1), a=np.array([1, 2], dtype="m8[s]")) == [False, True]
    assert selected(col("a") == "b", a=np.array(["a", "b"])) == [False, True]
    assert selected(np.float64(2) < col("a"), a=np.array([2, 3])) == [False, True]
    assert selected(~col("a") | col("b"), a=np.array([True, False, True]), b=[None, None, True]) == [False, True, True]


@pytest.mark.parametrize(
    ("predicate", "column"),
    [
        (col("a") == "3", np.array([3])),
        (col("a") > 3, [1, "x"]),
        (col("a") > 3, np.zeros((1, 2))),
        (col("a").isin([3]), [[3]]),
        (col("a") > datetime.date(2020, 1, 1), np.array([3])),
        (in_intersection([1], "a"), [[1], 5]),
        (in_intersection([1], "a"), np.array([1])),
    ],
)
def test_what_cannot_be_compared_is_an_error(predicate: Predicate, column: Any) -> None:
    with pytest.raises(PredicateError, match=r"in .*a"):
        selected(predicate, a=column)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: bool(col("a") > 3), r'\(col\("a"\) > 3\) is neither true nor false.*&, \| and ~'),
        (lambda: 1 < col("a") < 3, "between"),
        (lambda: col("a") == None, r"is_null\(\)"),  # noqa: E711
        (lambda: col("a") == [1, 2], "isin"),
        (lambda: col("a") < col("b"), "pyarrow"),
        (lambda: col("a") % 0, "integer from 1 on"),
        (lambda: col("a").isin([1, None]), "is_null"),
        (lambda: (col("speed") > 3).mask({"b": np.zeros(1), "a": np.zeros(1)}), r"'speed'.*\['a', 'b'\]"),
        *((make, "takes") for make in (lambda: col("a").isin("abc"), lambda: in_set([{}], "a"), lambda: in_set([1], WRONG))),
        *((make, "takes") for make in (lambda: in_lambda([], len), lambda: in_lambda(["a"], WRONG), lambda: in_negate(3))),
        *((make, "takes") for make in (lambda: in_reduce([], all), lambda: in_reduce([in_set([1], "a")], WRONG))),
        (lambda: in_pseudorandom_split([0.5, 0.5], 2, "a"), r"not in \[0, 2\)"),
        (lambda: in_pseudorandom_split([80, 20], 0, "a"), "between 0 and 1"),
        (lambda: as_predicate(EvenRows), "no predicate"),
    ],
)
def test_mistakes_in_writing_are_errors_that_say_what_to_write(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


@pytest.mark.parametrize(
    ("predicate", "text"),
    [
        (
            (col("a") == "x") & ~col("b") | col("c").is_null() | (col("d") % 2 == 1),
            '(((col("a") == \'x\') & ~col("b")) | col("c").is_null() | (col("d") % 2 == 1))',
        ),
        (col("a").isin([2, 1]), 'col("a").isin([1, 2])'),
        (
            in_reduce([in_set({"x"}, "a"), in_negate(col("b"))], any),
            "in_reduce([in_set(['x'], 'a'), in_negate(col(\"b\"))], builtins:any)",
        ),
        (in_lambda(["a"], len), "in_lambda(['a'], builtins:len)"),
    ],
)
def test_predicates_read_as_they_were_written(predicate: Predicate, text: str) -> None:
    assert repr(predicate) == text


def test_thousands_of_predicates_are_combined() -> None:
    predicate = as_predicate([[("a", "=", number)] for number in range(3000)])

    assert predicate.mask({"a": np.arange(5000)}).sum() == 3000
    assert not predicate.could_be(True, {"a": ColumnStatistics(2000, 0, np.array([3000, 4999]))})
    assert pickle.loads(pickle.dumps(predicate)).content() == predicate.content()


def test_the_content_of_predicates_tells_them_apart() -> None:
    def made() -> Predicate:
        return ((col("a") % 5 > 3) & col("b").isin([1, 2])) | in_set(["x"], "c") | ~col("d")

    copy = pickle.loads(pickle.dumps(made()))
    others = [
        *(col("a") > 3, col("a") > 4, col("a") >= 3, col("a") > 3.0, col("b") > 3, col("a") % 2 > 3),
        *(in_set([1, 2], "a"), in_set([1, 3], "a"), in_set(["1", "2"], "a")),
        *(in_lambda(["a"], lambda a: a > 3), in_lambda(["a"], lambda a: a > 4)),
    ]

    assert made().content() == copy.content()
    assert made().fields == copy.fields == ("a", "b", "c", "d")
    assert len({repr(other.content()) for other in others}) == len(others)
    assert in_set([1, 2], "a").content() == in_set(np.array([2, 1]), "a").content()


# ---------------------------------------------------------------------- statistics


def known(low: Any, high: Any, n_nulls: int | None = 0, *, is_exact: bool = True) -> Mapping[str, ColumnStatistics]:
    is_object = isinstance(low, (str, Decimal))
    return {"a": ColumnStatistics(10, n_nulls, np.array([low, high], dtype=object if is_object else None), is_exact)}


NOTHING = {"a": ColumnStatistics(10, None)}
NULLS = {"a": ColumnStatistics(10, 10)}


@pytest.mark.parametrize(
    ("predicate", "statistics", "could"),
    [
        (col("a") > 3, known(0, 3), False),
        (col("a") > 3, NOTHING, True),
        (col("a") > 3, NULLS, False),
        (~(col("a") > 3), known(4.0, 9.0), True),  # NaN may be among floats
        (~(col("a") > math.nan), known(4, 9), True),
        (col("a") != 3, known(3, 3), False),
        (col("a") != 3, known(3, 3, is_exact=False), True),
        (col("a") == 3, known(4, 9), False),
        (col("a") == "x", known(3, 3), True),  # an error, when rows are looked at
        (col("a").isin([1, 9]), known(2, 8), False),
        (in_set(["x"], "a"), known("a", "b"), False),
        (in_set([None], "a"), NULLS, True),
        (col("a").is_null(), known(0, 9), False),
        (col("a") % 2 == 1, known(4, 4), True),
        (col("a") > datetime.date(2020, 1, 1), known(np.datetime64("2019-01-01"), np.datetime64("2020-01-01")), False),
        (col("a").isin([datetime.date(2020, 1, 2)]), known(np.datetime64("2019-01-01"), np.datetime64("2020-01-01")), False),
        (col("a") > Decimal("1.5"), known(Decimal("1.0"), Decimal("1.5")), False),
        (in_negate(col("a") > 3), known(4, 9, 1), True),
        (in_reduce([col("a") > 3, col("a") < 9], all), known(0, 3), False),
        (in_reduce([col("a") > 9, col("a") < 0], any), known(0, 3), False),
        ((col("a") > 3) & (col("other") > 3), known(0, 3), False),
    ],
    ids=repr,
)
def test_statistics_spare_reading(predicate: Predicate, statistics: Mapping[str, ColumnStatistics], could: bool) -> None:
    assert predicate.could_be(True, statistics) == could


# ---------------------------------------------------------------------- Petastorm's

SPLIT_BY_PETASTORM = [  # what petastorm 0.13.1 said of [0.5, 0.2, 0.3]
    (0, 0), (1, 0), (2, 2), (3, 0), (-1, 0), (255, 0), (10**18, 2), ("a", 1), ("car_0", 0), ("ü", 0), ("", 0), (None, 0),
    (True, 2), (1.5, 0), (math.nan, 2), (1e16, 2), (np.float32(0.1), 1), (np.int32(7), 2),
    (np.datetime64("2020-01-01T00:00:00.000001"), 0), (np.datetime64("2020-01-01"), 1), (b"abc", 0), (Decimal("1.50"), 2),
    (np.float16(0.1), 1),
]  # fmt: skip


@pytest.mark.parametrize(("value", "subset"), SPLIT_BY_PETASTORM, ids=repr)
def test_values_lie_in_the_parts_that_petastorm_puts_them_in(value: Any, subset: int) -> None:
    as_object, as_array = objects([value]), np.array([value])

    for column in [as_object, as_array] if as_array.dtype.kind != "S" else [as_object]:
        found = [in_pseudorandom_split([0.5, 0.2, 0.3], index, "a").mask({"a": column}).tolist() for index in range(3)]
        assert found.index([True]) == subset
        assert found.count([True]) == 1


def test_whole_columns_are_split_as_petastorm_splits_them() -> None:
    def sizes(fractions: list[float], column: npt.NDArray[Any]) -> list[int]:
        return [int(in_pseudorandom_split(fractions, index, "a").mask({"a": column}).sum()) for index in range(len(fractions))]

    numbers = np.arange(5000)
    texts = objects([f"s{number}" for number in range(5000)])
    last = in_pseudorandom_split([0.7, 0.2, 0.1], 2, "a").mask({"a": np.arange(200, dtype=np.uint8)})

    assert sizes([0.5, 0.2, 0.3], numbers) == [2459, 1073, 1468]
    assert sizes([0.7, 0.2, 0.1], texts) == [3516, 1002, 482]
    assert np.flatnonzero(last).tolist() == [2, 7, 9, 11, 17, 26, 29, 72, 74, 85, 87, 88, 104, 107, 116, 142]
    zeros = [0.0, -0.0, 0.0]  # equal, but of different texts
    in_first = in_pseudorandom_split([0.9, 0.1], 0, "a")
    assert in_first.mask({"a": np.array(zeros)}).tolist() == in_first.mask({"a": objects(zeros)}).tolist()


def test_lists_intersect_with_sets() -> None:
    lists = [[1, 2], [], None, (3,), np.array([[4, 1]]), ["1"], [None], "ab"]

    assert selected(in_intersection([1, "ab"], "x"), x=lists) == [True, False, False, False, True, False, False, True]
    assert selected(in_intersection([None], "x"), x=lists) == [False] * 6 + [True, False]
    assert selected(in_intersection([1], "x"), x=np.array([[1, 2], [3, 4]])) == [True, False]
    assert selected(in_intersection([1], "x"), x=[np.array([1, 2]), np.array([3])]) == [True, False]
    assert selected(in_intersection([1], "x"), x=[]) == []


def test_functions_are_given_the_fields_in_their_order_and_the_state() -> None:
    calls = []

    def function(b: Any, a: Any, state: str) -> bool:
        calls.append((b, a, state))
        return bool(a == 1)

    assert selected(in_lambda(["b", "a"], function, "state"), a=np.array([1, 2], dtype=np.int32), b=["x", None]) == [True, False]
    assert calls == [("x", 1, "state"), (None, 2, "state")]
    assert type(calls[0][1]) is int
    assert selected(in_lambda(["a"], lambda a: type(a) is int), a=[np.int8(1), None]) == [True, False]


def test_what_a_lambda_raises_names_the_row_and_its_values() -> None:
    with pytest.raises(PredicateError, match=r"row 1 .*ZeroDivisionError: division by zero, given a=0") as caught:
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
    columns = {"a": np.array([2, 3, 4]), "b": objects(["x", "x", None])}
    predicate = as_predicate(EvenRows())

    assert predicate.fields == ("a", "b")
    assert predicate.mask(columns).tolist() == [True, False, False]
    assert in_negate(EvenRows()).mask(columns).tolist() == [False, True, True]
    assert in_reduce([EvenRows(), in_set([3], "a")], any).mask(columns).tolist() == [True, True, False]
    assert pickle.loads(pickle.dumps(predicate)).mask(columns).tolist() == [True, False, False]
    ours = in_reduce([in_set(["x"], "b"), col("a") > 3], all)  # with Petastorm's methods
    assert ours.get_fields() == {"a", "b"}
    assert [ours.do_include({"a": a, "b": "x", "c": 1}) for a in (4, np.int64(3))] == [True, False]
