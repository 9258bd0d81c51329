"""Predicates select the rows that they say, and statistics never leave out a row that they would select."""

from __future__ import annotations

import datetime
import decimal
import math
import operator
import pickle
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
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

Columns = dict[str, npt.NDArray[Any]]


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


def statistics_of(column: npt.NDArray[Any]) -> ColumnStatistics:
    """As a Parquet writer makes them: without nulls and NaN."""
    values = [value for value in column.tolist() if value is not None]
    known = [value for value in values if value == value]
    low, high = (min(known), max(known)) if known else (None, None)
    return ColumnStatistics(low, high, len(column) - len(values), len(column), True)


def constant(value: Any, n_rows: int = 5) -> ColumnStatistics:
    return ColumnStatistics(value, value, 0, n_rows, True)


# ---------------------------------------------------------------------- against Python, row by row

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
NUMBERS = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([0.5, 0.1, float(np.float32(0.1)), math.nan, math.inf, -math.inf, -0.0]),
    st.sampled_from([2**53, 2**53 + 1, float(2**53), -(2**63), 2**63, 2**64 - 1, 1e300, Decimal("0.1"), Decimal(2)]),
)
NUMPY_COLUMNS = st.one_of(
    st.lists(st.integers(-3, 3), max_size=6).map(lambda items: np.array(items, dtype=np.int8)),
    st.lists(st.sampled_from([0, 1, 2**53, 2**53 + 1, -(2**63), 2**63 - 1]), max_size=6).map(
        lambda items: np.array(items, dtype=np.int64)
    ),
    st.lists(st.sampled_from([0, 3, 2**63, 2**64 - 1]), max_size=6).map(lambda items: np.array(items, dtype=np.uint64)),
    st.lists(st.booleans(), max_size=6).map(lambda items: np.array(items, dtype=bool)),
    st.lists(st.sampled_from([0.1, 0.5, 2.0, math.nan, math.inf]), max_size=6).map(
        lambda items: np.array(items, dtype=np.float32)
    ),
    st.lists(st.sampled_from([0.1, 0.5, -2.0, math.nan, 2.0**53]), max_size=6).map(
        lambda items: np.array(items, dtype=np.float64)
    ),
)
NULLABLE_COLUMNS = st.one_of(
    st.lists(st.none() | st.integers(-3, 3) | st.sampled_from([2**53 + 1, 2**70]), max_size=6),
    st.lists(st.none() | st.sampled_from([0.5, 1.0, math.nan, float(2**53)]), max_size=6),
    st.lists(st.none() | st.booleans(), max_size=6),
    st.lists(st.none() | st.sampled_from([Decimal("0.1"), Decimal(1), Decimal(-2)]), max_size=6),
).map(objects)
COLUMNS = st.one_of(NUMPY_COLUMNS, NULLABLE_COLUMNS)


def naive(truth: Callable[..., Any], *columns: npt.NDArray[Any]) -> list[bool | None]:
    """True, False or None for each row; None where there is a null."""
    rows = zip(*(column.tolist() for column in columns), strict=True)
    with decimal.localcontext() as context:
        context.traps[decimal.InvalidOperation] = False  # such as Decimal(1) < nan
        return [None if any(value is None for value in row) else bool(truth(*row)) for row in rows]


def check(predicate: Predicate, truths: list[bool | None], columns: Columns) -> None:
    assert predicate.mask(columns).tolist() == [truth is True for truth in truths]
    assert (~predicate).mask(columns).tolist() == [truth is False for truth in truths]
    check_statistics(predicate, columns)


def check_statistics(predicate: Predicate, columns: Columns) -> None:
    known = {name: statistics_of(column) for name, column in columns.items()}
    for candidate in (predicate, ~predicate, in_negate(predicate)):
        mask = candidate.mask(columns)
        for some in (known, {}):
            assert candidate.could_match(some) or not mask.any()
            assert mask.all() or not candidate.must_match(some)


@given(column=COLUMNS, name=st.sampled_from(sorted(COMPARISONS)), number=NUMBERS)
def test_a_comparison_with_a_number_is_that_of_python(column: npt.NDArray[Any], name: str, number: Any) -> None:
    check(COMPARISONS[name](col("a"), number), naive(lambda a: COMPARISONS[name](a, number), column), {"a": column})


@given(data=st.data(), name=st.sampled_from(sorted(COMPARISONS)))
def test_a_comparison_of_columns_is_that_of_python(data: st.DataObject, name: str) -> None:
    one, other = data.draw(COLUMNS), data.draw(COLUMNS)
    length = min(len(one), len(other))
    columns = {"a": one[:length], "b": other[:length]}

    check(COMPARISONS[name](col("a"), col("b")), naive(COMPARISONS[name], columns["a"], columns["b"]), columns)


@given(column=COLUMNS, numbers=st.lists(NUMBERS, max_size=4))
def test_membership_is_that_of_python(column: npt.NDArray[Any], numbers: list[Any]) -> None:
    wanted = {number for number in numbers if number == number}

    check(col("a").isin(numbers), naive(lambda a: a in wanted, column), {"a": column})
    assert in_set(numbers, "a").mask({"a": column}).tolist() == [value in wanted for value in column.tolist()]
    check_statistics(in_set([*numbers, None], "a"), {"a": column})


INTEGERS = st.lists(st.none() | st.integers(-4, 4) | st.sampled_from([2**62, -(2**63)]), min_size=4, max_size=4).map(objects)
ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
}


@given(
    one=INTEGERS, other=INTEGERS, factor=st.integers(-3, 3), sign=st.sampled_from(sorted(ARITHMETIC)), limit=st.integers(-9, 9)
)
def test_integers_are_computed_with_as_in_python(
    one: npt.NDArray[Any], other: npt.NDArray[Any], factor: int, sign: str, limit: int
) -> None:
    def computed(a: int, b: int) -> int | None:
        return None if sign in ("//", "%") and b == 0 else int(ARITHMETIC[sign](a, b)) + factor * a

    left = ARITHMETIC[sign](col("a"), col("b")) + factor * col("a")
    values = [None if None in row else computed(*row) for row in zip(one.tolist(), other.tolist(), strict=True)]

    check(left > limit, [None if value is None else value > limit for value in values], {"a": one, "b": other})


@given(
    one=st.lists(st.floats(width=32), min_size=3, max_size=3),
    other=st.lists(st.integers(-5, 5), min_size=3, max_size=3),
    sign=st.sampled_from(["+", "-", "*"]),
    limit=st.floats(allow_nan=False),
)
def test_floats_are_computed_with_as_in_python(one: list[float], other: list[int], sign: str, limit: float) -> None:
    columns = {"a": np.array(one, dtype=np.float32), "b": np.array(other)}
    truths = [ARITHMETIC[sign](a, float(b)) <= limit for a, b in zip(one, other, strict=True)]

    check(ARITHMETIC[sign](col("a"), col("b")) <= limit, list(truths), columns)


TEXTS = st.lists(st.none() | st.text(alphabet="abß", max_size=2), max_size=6).map(objects)


@given(column=TEXTS, text=st.text(alphabet="abß", max_size=2), name=st.sampled_from(sorted(COMPARISONS)))
def test_texts_compare_as_in_python(column: npt.NDArray[Any], text: str, name: str) -> None:
    check(COMPARISONS[name](col("a"), text), naive(lambda a: COMPARISONS[name](a, text), column), {"a": column})


@given(column=TEXTS, pattern=st.sampled_from(["a", "^b", "ß$", "^$", "a|b"]))
def test_a_pattern_is_found_as_by_re(column: npt.NDArray[Any], pattern: str) -> None:
    check(col("a").matches(pattern), naive(lambda a: re.search(pattern, a) is not None, column), {"a": column})


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
def test_combinations_say_of_many_rows_what_they_say_of_each_and_statistics_leave_out_no_row(
    predicate: Predicate, rows: list[tuple[int | None, int | None]]
) -> None:
    columns = {"a": objects([a for a, _ in rows]), "b": objects([b for _, b in rows])}

    assert predicate.mask(columns).tolist() == [predicate.do_include({"a": a, "b": b}) for a, b in rows]
    check_statistics(predicate, columns)


# ---------------------------------------------------------------------- expressions


def test_nulls_make_comparisons_unknown_and_so_are_their_negations() -> None:
    rows = [1, None, 5]

    assert selected(col("a") > 3, a=rows) == [False, False, True]
    assert selected(~(col("a") > 3), a=rows) == [True, False, False]
    assert selected((col("a") > 3) | col("a").is_null(), a=rows) == [False, True, True]
    assert selected(~((col("a") > 3) | (col("a") <= 3)), a=rows) == [False, False, False]
    assert selected(in_negate(col("a") > 3), a=rows) == [True, True, False]
    assert selected(col("a").is_not_null(), a=rows) == [True, False, True]


def test_columns_of_nothing_but_nulls_and_of_no_rows_can_be_asked() -> None:
    for predicate in (
        col("a") > 3,
        col("a").isin([1]),
        col("a").matches("x"),
        col("a") < col("a"),
        col("a") + 1 > 2,
        in_set([1], "a"),
    ):
        assert selected(predicate, a=[None, None]) == [False, False]
        assert selected(predicate, a=[]) == []
    assert selected(in_set([None], "a"), a=[None, None]) == [True, True]


def test_nan_is_a_value_that_is_different_from_all() -> None:
    column = np.array([math.nan, 1.0])

    assert selected(col("a") > 0, a=column) == [False, True]
    assert selected(~(col("a") > 0), a=column) == [True, False]
    assert selected(col("a") != 1, a=column) == [True, False]
    assert selected(col("a").is_null(), a=column) == [False, False]
    assert selected(col("a").isin([math.nan, 1]), a=column) == [False, True]


def test_what_is_divided_by_zero_is_null() -> None:
    columns = {"a": np.array([1, 1, -3]), "b": np.array([0, 2, 2])}

    for quotient in (col("a") / col("b"), col("a") // col("b"), col("a") % col("b"), col("a") / (1.0 * col("b"))):
        assert as_predicate(quotient.is_null()).mask(columns).tolist() == [True, False, False]
    assert (col("a") // col("b") == -2).mask(columns).tolist() == [False, False, True]
    assert (10 / col("b") == 5).mask(columns).tolist() == [False, True, True]
    assert (-col("a") == 3).mask(columns).tolist() == [False, False, True]


@pytest.mark.parametrize(
    "column",
    [
        np.array(["2020-01-01", "2020-01-02", "NaT"], dtype="M8[D]"),
        np.array(["2020-01-01T00", "2020-01-02T00", "NaT"], dtype="M8[ns]"),
        np.array(["2020-01-01", "2020-01-02", "NaT"], dtype=">M8[s]"),
        objects([datetime.date(2020, 1, 1), datetime.date(2020, 1, 2), None]),
        objects([datetime.datetime(2020, 1, 1), datetime.datetime(2020, 1, 2), None]),
        objects([np.datetime64("2020-01-01", "D"), np.datetime64("2020-01-02T00:00", "ms"), np.datetime64("NaT")]),
        objects(
            [
                datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc),
                datetime.datetime(2020, 1, 2, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=1))),
                None,
            ]
        ),
    ],
    ids=["days", "nanoseconds", "seconds of the other byte order", "dates", "datetimes", "objects of numpy", "with zones"],
)
def test_times_compare_as_moments_whatever_their_types(column: npt.NDArray[Any]) -> None:
    for moment in (datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1), np.datetime64("2020-01-01", "h")):
        assert selected(col("t") > moment, t=column) == [False, True, False]
        assert selected(col("t") == moment, t=column) == [True, False, False]
        assert selected(col("t").isin([moment]), t=column) == [True, False, False]
    assert selected(col("t") > datetime.datetime(2020, 1, 1, 0, 0, 0, 1), t=column) == [False, True, False]
    assert selected(col("t") <= np.datetime64("2020-01-01T00:00:00.000000001"), t=column) == [True, False, False]
    assert selected(col("t").is_null(), t=column) == [False, False, True]
    assert selected(col("t") - col("t") == datetime.timedelta(0), t=column) == [True, True, False]
    assert selected(col("t") + datetime.timedelta(days=1) > datetime.date(2020, 1, 2), t=column) == [False, True, False]


def test_times_of_different_units_compare() -> None:
    columns = {
        "a": np.array(["2020-01-01", "9999-01-01"], dtype="M8[D]"),
        "b": np.array(["2020-01-01", "2020-01-01"], dtype="M8[ns]"),
    }

    assert (col("a") == col("b")).mask(columns).tolist() == [True, False]
    assert (col("a") > col("b")).mask(columns).tolist() == [False, True]


@pytest.mark.parametrize("dtype", ["int16", "uint64", "float32", "bool", "M8[us]", "m8[s]"])
def test_objects_of_numpy_compare_as_arrays_do(dtype: str) -> None:
    array = np.array([0, 1, 1, 0]).astype(dtype)
    column = objects([array[0], array[1], None, array[3]])

    for predicate in (col("a") > array[0], in_set([array[1]], "a"), col("a").isin([array[1]])):
        assert predicate.mask({"a": array}).tolist() == [False, True, True, False]
        assert predicate.mask({"a": column}).tolist() == [False, True, False, False]
    assert col("a").is_null().mask({"a": column}).tolist() == [False, False, True, False]
    assert (col("a") == array[0]).mask({"a": column}).tolist() == [True, False, False, True]


def test_other_types_compare_with_their_own() -> None:
    assert selected(col("a") >= b"b", a=[b"a", b"b\0", None]) == [False, True, False]
    assert selected(col("a") == Decimal("1.10"), a=[Decimal("1.1"), Decimal(1), None]) == [True, False, False]
    assert selected(col("a") < datetime.time(12), a=[datetime.time(11, 59), datetime.time(12)]) == [True, False]
    assert selected(col("a") < datetime.time(0, 0, 2), a=np.array([1, 2], dtype="m8[s]")) == [True, False]
    assert selected(col("a") > datetime.timedelta(seconds=1), a=np.array([1, 2], dtype="m8[s]")) == [False, True]
    assert selected(col("a") == "b", a=np.array(["a", "b"])) == [False, True]
    assert selected(np.float64(2) < col("a"), a=np.array([2, 3])) == [False, True]
    assert selected(~col("a") | col("b"), a=np.array([True, False, True]), b=[None, None, True]) == [False, True, True]


def test_functions_are_applied_to_what_is_no_null() -> None:
    assert selected(as_predicate(col("a").apply(lambda a: a % 2 == 1)), a=[1, None, 2]) == [True, False, False]
    assert selected(col("a").apply(len) > 1, a=[[1, 2], None, np.zeros(1)]) == [True, False, False]
    assert selected((col("a") * 2).apply(lambda a: -a) == -4, a=[1, None, 2]) == [False, False, True]
    assert selected(col("a").apply(lambda a: a.sum(axis=1), batched=True) > 3, a=np.array([[1, 2], [3, 4]])) == [False, True]
    assert selected(col("t").apply(lambda t: t.astype("M8[Y]") == np.datetime64("2020"), batched=False).as_predicate(),
                    t=np.array(["2020-05-05", "2021-05-05"], dtype="M8[D]")) == [True, False]  # fmt: skip


def test_what_a_function_raises_names_the_row_and_its_value() -> None:
    with pytest.raises(PredicateError, match=r"row 1 .*ZeroDivisionError.*given 0") as caught:
        (col("a").apply(lambda a: 1 / a) > 0).mask({"a": np.array([1, 0])})

    assert caught.value.row == 1
    assert pickle.loads(pickle.dumps(caught.value)).row == 1


@pytest.mark.parametrize(
    ("predicate", "column", "message"),
    [
        (col("a") > 3, ["x"], "a text cannot be compared .* with a number"),
        (col("a") == "3", np.array([3]), "a number cannot be compared .* with a text"),
        (col("a").isin(["3"]), np.array([3]), "a number never is a text"),
        (col("a") > 3, [1, "x"], "column 'a': it has a number and a text"),
        (col("a") > 3, np.zeros((1, 2)), "in_intersection"),
        (col("a").isin([3]), [[3]], "in_intersection"),
        (col("a").matches("3"), np.array([3]), "looked for in text"),
        (col("a") + 1 > 3, ["x"], "has no meaning"),
        (col("a") > datetime.date(2020, 1, 1), np.array([3]), "a date or time"),
        (as_predicate(col("a")), ["x"], 'col."a".'),
    ],
)
def test_what_cannot_be_compared_is_an_error(predicate: Predicate, column: Any, message: str) -> None:
    with pytest.raises(PredicateError, match=message):
        selected(predicate, a=column)


def test_a_missing_column_is_named_with_those_that_are_there() -> None:
    with pytest.raises(ConfigError, match=r"'speed'.*\['a', 'b'\]"):
        (col("speed") > 3).mask({"b": np.zeros(1), "a": np.zeros(1)})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: bool(col("a") > 3), r'col\("a"\) > 3 is neither true nor false.*&, \| and ~'),
        (lambda: (col("a") > 3) and (col("b") > 3), "is neither true nor false"),
        (lambda: not col("a"), "is neither true nor false"),
        (lambda: 1 < col("a") < 3, "between"),
        (lambda: col("a") > 3 & col("b"), "parentheses"),
        (lambda: col("a") == None, r"is_null\(\)"),  # noqa: E711
        (lambda: col("a") != None, r"is_not_null\(\)"),  # noqa: E711
        (lambda: col("a") == [1, 2], "isin"),
        (lambda: col("a") == (col("b") > 3), "is a predicate, not a value"),
        (lambda: col("a").isin("abc"), r"write \['abc'\]"),
        (lambda: col("a").isin(WRONG), "takes a list or a set"),
        (lambda: col("a").isin([1, None]), "is_null"),
        (lambda: col("a").isin([[1]]), "can be hashed"),
        (lambda: col("a").matches("("), "no regular expression"),
        (lambda: col("a").matches(WRONG), "no regular expression"),
        (lambda: col("a").apply(WRONG), "takes a function"),
        (lambda: col(""), "named by a text"),
        (lambda: col(WRONG), "named by a text"),
    ],
)
def test_mistakes_in_writing_are_errors_that_say_what_to_write(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


@pytest.mark.parametrize(
    ("predicate", "text"),
    [
        (col("speed") > 3, 'col("speed") > 3'),
        (3 < col("speed"), 'col("speed") > 3'),  # noqa: SIM300
        ((col("a") + 1) * 2 <= col("b"), '(col("a") + 1) * 2 <= col("b")'),
        ((col("a") == "x") & ~col("b") | col("c").is_null(), '((col("a") == \'x\') & ~col("b")) | col("c").is_null()'),
        (col("a").isin([2, 1]), 'col("a").isin([1, 2])'),
        (~col("a").matches("^x"), "~col(\"a\").matches('^x')"),
        (in_set({"x"}, "a"), "in_set(['x'], 'a')"),
        (
            in_reduce([in_set([1], "a"), in_negate(col("b") > 3)], any),
            "in_reduce([in_set([1], 'a'), in_negate(col(\"b\") > 3)], any)",
        ),
        (in_pseudorandom_split([0.5, 0.5], 1, "a"), "in_pseudorandom_split([0.5, 0.5], 1, 'a')"),
        (in_lambda(["a"], len), "in_lambda(['a'], builtins:len)"),
    ],
)
def test_predicates_read_as_they_were_written(predicate: Predicate, text: str) -> None:
    assert repr(predicate) == text


def test_thousands_of_predicates_are_combined() -> None:
    column = np.arange(5000)
    predicate = as_predicate([[("a", "=", number)] for number in range(3000)])

    assert predicate.mask({"a": column}).sum() == 3000
    assert not predicate.could_match({"a": ColumnStatistics(3000, 4999, 0, 2000, True)})
    assert pickle.loads(pickle.dumps(predicate)) == predicate


def test_predicates_are_values() -> None:
    def made() -> Predicate:
        return ((col("a") + 1 > 3) & col("b").isin([1, 2])) | in_set(["x"], "c") | ~col("d").matches("x")

    copy = pickle.loads(pickle.dumps(made()))

    assert made() == copy
    assert hash(made()) == hash(copy)
    assert made().fields == copy.fields == ("a", "b", "c", "d")
    assert len({made(), copy, col("a") > 3, col("a") > 4, col("a") >= 3}) == 4
    assert in_set([1, 2], "a") != in_set([1, 3], "a")
    assert in_set([1, 2], "a") == in_set(np.array([2, 1]), "a")
    assert in_lambda(["a"], lambda a: a > 3) != in_lambda(["a"], lambda a: a > 4)
    assert col("a").isin(range(1000)) != col("a").isin(range(1001))


# ---------------------------------------------------------------------- statistics


def known(low: Any, high: Any, n_nulls: int | None = 0, *, is_exact: bool = True) -> Mapping[str, ColumnStatistics]:
    return {"a": ColumnStatistics(low, high, n_nulls, 10, is_exact)}


@pytest.mark.parametrize(
    ("predicate", "statistics", "could", "must"),
    [
        (col("a") > 3, known(0, 3), False, False),
        (col("a") > 3, known(4, 9), True, True),
        (col("a") > 3, known(4, 9, None), True, False),
        (col("a") > 3, known(4, 9, 1), True, False),
        (col("a") > 3, known(4.0, 9.0), True, False),  # NaN may be among floats
        (col("a") > 3, known(0.0, 3.0), False, False),
        (~(col("a") > 3), known(4, 9, 1), False, False),
        (in_negate(col("a") > 3), known(4, 9, 1), True, False),
        (col("a") != 3, known(3, 3), False, False),
        (col("a") == 3, known(3, 3), True, True),
        (col("a") == 3, known(3, 3, is_exact=False), True, True),
        (col("a") == 3, known(None, None, 10), False, False),
        (col("a") == 3, known(None, None), True, False),
        (col("a") == 3, known(None, 2), False, False),
        (col("a") == 3, known(9, 0), True, False),  # damaged
        (col("a") == "x", known(3, 3), True, False),  # an error, when rows are looked at
        (col("a") == "b", known("a", "ab"), False, False),
        (col("a") == "a", known("a", "a", is_exact=False), True, False),
        (col("a").isin([1, 9]), known(2, 8), False, False),
        (col("a").isin([1, 5]), known(5, 5), True, True),
        (~col("a").isin([1, 5]), known(5, 5), False, False),
        (col("a").isin([]), known(0, 9), False, False),
        (in_set(["x"], "a"), known("a", "b"), False, False),
        (in_set([None], "a"), known(None, None, 10), True, True),
        (in_set([None], "a"), known(1, 3), False, False),
        (in_set([1], "a"), known("a", "b"), False, False),
        (col("a").is_null(), known(0, 9), False, False),
        (col("a").is_null(), known(None, None, 10), True, True),
        (col("a").is_not_null(), known(0, 9), True, True),
        (col("a").between(2, 4), known(5, 9), False, False),
        (col("a").between(2, 4), known(2, 4), True, True),
        (col("a") * 2 - 1 > 5, known(0, 3), False, False),
        (col("a") * -1 > -5, known(0, 3), True, True),
        (col("a") > datetime.date(2020, 1, 1), known(datetime.datetime(2019, 1, 1), datetime.datetime(2020, 1, 1)), False, False),
        (col("a") > Decimal("1.5"), known(Decimal("1.0"), Decimal("1.5")), False, False),
        (col("a").matches("^rain"), known("rainy", "rainy"), True, True),
        (col("a").matches("^rain"), known("sun", "sun"), False, False),
        (as_predicate(col("a")), known(False, False), False, False),
        (as_predicate(col("a")), known(True, True), True, True),
        (in_lambda(["a"], lambda a: a == "x"), known("x", "x"), True, True),
        (in_lambda(["a"], lambda a: a == "x"), known("y", "y"), False, False),
        (in_lambda(["a"], lambda a: a == "x"), known("y", "y", is_exact=False), True, False),
        (in_lambda(["a"], lambda a: type(a) is int and a == 3), known(np.int16(3), np.int16(3)), True, True),
        (in_lambda(["a"], lambda a: a == 3), known(3.0, 3.0), True, False),  # a float32 may come in another form
        (in_lambda(["a"], lambda a, state: a in state, {"x"}), known("y", "y"), True, False),
        (in_lambda(["a"], lambda a: 1 / 0), known("y", "y"), True, False),
        (in_pseudorandom_split([0.5, 0.2, 0.3], 2, "a"), known(2, 2), True, True),
        (in_pseudorandom_split([0.5, 0.2, 0.3], 0, "a"), known(2, 2), False, False),
        (in_reduce([col("a") > 3, col("a") < 9], all), known(0, 3), False, False),
        (in_reduce([col("a") > 3, col("a") < 9], any), known(4, 8), True, True),
        (in_reduce([col("a") > 3, col("a") < 9], lambda found: sum(found) == 1), known(4, 8), False, False),
        (in_intersection(["x"], "a"), known("y", "y"), True, False),
        ((col("a") > 3) & (col("other") > 3), known(0, 3), False, False),
        ((col("a") > 3) | (col("other") > 3), known(0, 3), True, False),
    ],
)
def test_statistics_spare_reading(
    predicate: Predicate, statistics: Mapping[str, ColumnStatistics], could: bool, must: bool
) -> None:
    assert (predicate.could_match(statistics), predicate.must_match(statistics)) == (could, must)


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


def test_sets_contain_what_they_contain_in_python() -> None:
    assert selected(in_set({1, "a", None, 2.5}, "x"), x=[1, None, 3]) == [True, True, False]
    assert selected(in_set({1, "a", None, 2.5}, "x"), x=["a", "1", None]) == [True, False, True]
    assert selected(in_set([1.0], "x"), x=np.array([1, 2], dtype=np.uint8)) == [True, False]
    assert selected(in_set(["1"], "x"), x=np.array([1, 2])) == [False, False]
    assert selected(in_set([np.float32(0.5), 300], "x"), x=np.array([0.5, 1.0], dtype=np.float16)) == [True, False]
    assert selected(in_set([True], "x"), x=np.array([True, False])) == [True, False]


def test_lists_intersect_with_sets() -> None:
    lists = [[1, 2], [], None, (3,), np.array([[4, 1]]), ["1"], [None], "ab"]

    assert selected(in_intersection([1, "ab"], "x"), x=lists) == [True, False, False, False, True, False, False, True]
    assert selected(in_intersection([None], "x"), x=lists) == [False] * 6 + [True, False]
    assert selected(in_intersection([1], "x"), x=np.array([[1, 2], [3, 4]])) == [True, False]
    assert selected(in_intersection([1], "x"), x=[np.array([1, 2]), np.array([3])]) == [True, False]
    assert selected(in_intersection([1], "x"), x=[]) == []


def test_what_is_no_list_has_no_intersection() -> None:
    with pytest.raises(PredicateError, match=r"row 1 .*use in_set"):
        selected(in_intersection([1], "x"), x=[[1], 5])
    with pytest.raises(PredicateError, match="use in_set"):
        selected(in_intersection([1], "x"), x=np.array([1]))


def test_functions_are_given_the_fields_in_their_order_and_the_state() -> None:
    calls = []

    def function(b: Any, a: Any, state: str) -> bool:
        calls.append((b, a, state))
        return bool(a == 1)

    assert selected(in_lambda(["b", "a"], function, "state"), a=np.array([1, 2], dtype=np.int32), b=["x", None]) == [True, False]
    assert calls == [("x", 1, "state"), (None, 2, "state")]
    assert type(calls[0][1]) is int
    assert selected(in_lambda(["a"], lambda a: type(a) is int), a=[np.int8(1), None]) == [True, False]
    assert selected(in_lambda(["a"], lambda a: a > 1, batched=True), a=np.array([1, 2])) == [False, True]


def test_what_a_lambda_raises_names_the_row_and_its_values() -> None:
    with pytest.raises(PredicateError, match=r"row 1 .*ZeroDivisionError: division by zero, given a=0") as caught:
        selected(in_lambda(["a"], lambda a: 1 / a), a=np.array([1, 0]))
    with pytest.raises(PredicateError, match=r"row 0 .*truth value of an array"):
        selected(in_lambda(["a"], lambda a: a > 0), a=np.array([[1, 2]]))
    with pytest.raises(PredicateError, match=r"bools of shape \(2,\)"):
        selected(in_lambda(["a"], lambda a: True, batched=True), a=np.array([1, 0]))

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
    assert predicate == as_predicate(EvenRows())
    assert pickle.loads(pickle.dumps(predicate)).mask(columns).tolist() == [True, False, False]


def test_our_predicates_have_petastorms_methods() -> None:
    predicate = in_reduce([in_set(["x"], "b"), col("a") > 3], all)

    assert predicate.get_fields() == {"a", "b"}
    assert predicate.do_include({"a": 4, "b": "x", "c": 1})
    assert not predicate.do_include({"a": np.int64(3), "b": "x"})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: in_set("abc", "a"), "takes a list or a set"),
        (lambda: in_set([{}], "a"), "can be hashed"),
        (lambda: in_set([1], WRONG), "name of a field"),
        (lambda: in_lambda("a", len), "list of at least one field"),
        (lambda: in_lambda([], len), "list of at least one field"),
        (lambda: in_lambda(["a"], WRONG), "takes a function"),
        (lambda: in_negate(3), "takes predicates"),
        (lambda: in_reduce([], all), "at least one"),
        (lambda: in_reduce([3], all), "takes predicates"),
        (lambda: in_reduce([in_set([1], "a")], WRONG), "takes a function"),
        (lambda: in_pseudorandom_split([0.5, 0.5], 2, "a"), r"not in \[0, 2\)"),
        (lambda: in_pseudorandom_split([80, 20], 0, "a"), "between 0 and 1"),
        (lambda: as_predicate(3), "no predicate: 3"),
        (lambda: as_predicate(EvenRows), "no predicate"),
    ],
)
def test_wrong_arguments_are_errors(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
