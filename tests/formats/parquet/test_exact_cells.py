"""Values become equal cells of any Arrow type, at any depth, or are refused with row and place."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sizes import sized

from data_stack.formats.parquet.codecs import CellError
from data_stack.formats.parquet.codecs.exact_cells import cast_exactly, exact_cells

DAY = datetime.date(2024, 1, 1)
NOON = datetime.datetime(2024, 1, 1, 12)
ZONE = datetime.timezone(datetime.timedelta(hours=2))

#: One value of each kind, and those at the borders of types.
VALUES: list[Any] = [
    True,
    np.True_,
    *(0, 1, 127, 128, -129, 255, 256, 2**24 + 1, 2**53 + 1, 2**63, 2**64 - 1, -1, 2**64, 10**30),
    *(np.int8(-1), np.uint64(2**63 + 1), np.int64(2**31)),
    *(0.5, 1.0, -0.0, 1e300, 70000.0, math.inf, math.nan, 16777217.0),
    *(np.float16(0.5), np.float32(0.1), np.float64(0.1), np.float64(1e300)),
    *(Decimal("1.5"), Decimal("1.55"), Decimal("NaN"), Decimal(10**20), Decimal("5e-324")),
    *("a", "1", "", "a\0", "\ud800", np.str_("b"), b"a", b"\xff", bytearray(b"c")),
    *(DAY, NOON, NOON.replace(hour=0), NOON.replace(tzinfo=ZONE), NOON.replace(microsecond=1)),
    *(datetime.time(12), datetime.time(1, tzinfo=ZONE), datetime.timedelta(microseconds=1)),
    *(np.datetime64("2024-01-01"), np.datetime64("2024-01-01T12:00:00.000000001")),
    *(np.timedelta64(1, "s"), np.timedelta64(1, "ns"), pd.Timestamp(1, unit="ns"), pd.Timedelta(1)),
    *([1], (1.5,), {"a": 1}, {1, 2}, object(), 1j, np.zeros(2), datetime.date(9999, 12, 31)),
]
TYPES: list[pa.DataType] = [
    pa.bool_(),
    *(pa.int8(), pa.uint8(), pa.int32(), pa.int64(), pa.uint64()),
    *(pa.float16(), pa.float32(), pa.float64()),
    *(pa.decimal128(5, 1), pa.decimal256(60, 2)),
    *(pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.binary(1)),
    *(pa.date32(), pa.date64(), pa.timestamp("s"), pa.timestamp("us"), pa.timestamp("ns")),
    *(pa.timestamp("us", "UTC"), pa.timestamp("ms", "Europe/Berlin")),
    *(pa.time32("s"), pa.time64("us"), pa.time64("ns"), pa.duration("s"), pa.duration("ns")),
    *(pa.dictionary(pa.int8(), pa.string()), pa.null()),
]


def is_same(value: Any, cell: pa.Scalar) -> bool:
    """Whether a cell equals a value, and is of its kind."""
    if pa.types.is_dictionary(cell.type):
        cell = cell.dictionary_decode() if hasattr(cell, "dictionary_decode") else cell.value
    if pa.types.is_temporal(cell.type):
        return is_same_time(value, cell)
    found = cell.as_py()
    if isinstance(found, np.float16):  # of old versions of pyarrow
        found = found.item()
    if isinstance(value, (bool, np.bool_)) or isinstance(found, bool):
        return isinstance(value, (bool, np.bool_)) and found == bool(value)
    if isinstance(value, (str, bytes, bytearray)) or isinstance(found, (str, bytes)):
        kind = str if isinstance(value, str) else bytes
        return type(found) is kind and found == kind(value)
    if isinstance(value, float) and type(value) is float and pa.types.is_floating(cell.type):
        rounded = float(cell.type.to_pandas_dtype()(value))  # to the nearest, as numpy does
        return found == rounded or (math.isnan(found) and math.isnan(value))
    number = value.item() if isinstance(value, np.generic) else value
    if not math.isfinite(number):
        return bool(number == found or (math.isnan(number) and math.isnan(found)))
    return Fraction(found) == Fraction(number)


def is_same_time(value: Any, cell: pa.Scalar) -> bool:
    type_ = cell.type
    unit = {"date32[day]": "D", "date64[ms]": "ms"}.get(str(type_), getattr(type_, "unit", None))
    if isinstance(value, datetime.datetime):
        is_zoned = value.tzinfo is not None
        if not pa.types.is_timestamp(type_) or is_zoned != (type_.tz is not None):
            return False
    elif isinstance(value, datetime.date):
        if not pa.types.is_date(type_):
            return False
    elif isinstance(value, datetime.time):
        seconds = value.hour * 3600 + value.minute * 60 + value.second
        same_time = cell.value == np.timedelta64(seconds, "s").astype(f"m8[{unit}]").astype(int)
        return pa.types.is_time(type_) and value.tzinfo is None and bool(same_time)
    if isinstance(value, datetime.datetime) and value.tzinfo is not None:
        value = value.astimezone(datetime.timezone.utc).replace(tzinfo=None)
    if hasattr(value, "to_numpy"):
        value = value.to_numpy()
    is_span = isinstance(value, (datetime.timedelta, np.timedelta64))
    exact = np.timedelta64(value) if is_span else np.datetime64(value)
    stored = np.array(cell.value).astype(f"{'m' if is_span else 'M'}8[{unit}]")[()]
    is_span_type = pa.types.is_duration(type_) or pa.types.is_time(type_)
    return is_span == is_span_type and bool(stored == exact)


WRAPPED: dict[str, tuple[Callable[[pa.DataType], pa.DataType], Callable[[Any], Any], Any]] = {
    "scalar": (lambda type_: type_, lambda value: value, lambda cell: cell),
    "list": (pa.list_, lambda value: [None, value], lambda cell: cell.values[1]),
    "large list": (pa.large_list, lambda value: (value,), lambda cell: cell.values[0]),
    "fixed list": (
        lambda type_: pa.list_(type_, 2),
        lambda value: [value, None],
        lambda cell: cell.values[0],
    ),
    "list of lists": (
        lambda type_: pa.list_(pa.list_(type_)),
        lambda value: [[], [value]],
        lambda cell: cell.values[1].values[0],
    ),
    "struct": (
        lambda type_: pa.struct([("x", type_), ("y", pa.int64())]),
        lambda value: {"x": value},
        lambda cell: cell["x"],
    ),
    "structs": (
        lambda type_: pa.list_(pa.struct([("x", type_)])),
        lambda value: [{"x": value}],
        lambda cell: cell.values[0]["x"],
    ),
    "map": (
        lambda type_: pa.map_(pa.string(), type_),
        lambda value: {"k": value},
        lambda cell: cell.values[0]["value"],
    ),
}


@pytest.mark.parametrize("wrapped", WRAPPED)
def test_each_value_is_equal_or_refused(wrapped: str) -> None:
    type_of, wrap, cell_of = WRAPPED[wrapped]
    n_equal = 0
    rows_of_errors = set()

    for type_ in TYPES:
        for value in VALUES:
            try:
                cells = exact_cells([None, wrap(value)], type_of(type_))
            except CellError as error:
                rows_of_errors.add(error.row)
                continue
            cells.validate(full=True)
            assert cells.type == type_of(type_)
            assert cells[0].as_py() is None
            assert is_same(value, cell_of(cells[1])), (value, type_, cells)
            n_equal += 1

    assert n_equal > 150
    assert rows_of_errors == {1}


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (1, pa.int8()),
        (2**64 - 1, pa.uint64()),
        (0.1, pa.float32()),
        (2**53 + 2, pa.float64()),
        (np.float16(0.5), pa.float64()),
        (np.uint8(7), pa.int16()),
        ("a", pa.string_view()),
        (NOON, pa.timestamp("ns")),
        (NOON.replace(tzinfo=ZONE), pa.timestamp("us", "Europe/Berlin")),
        (np.datetime64("2024-01-01T12"), pa.timestamp("s", "UTC")),
        (DAY, pa.date64()),
        (np.timedelta64(1, "ms"), pa.time64("us")),
        (Decimal("1.50"), pa.decimal128(3, 1)),
        (Decimal("0e-300"), pa.decimal128(3, 1)),
        (7, pa.decimal128(3, 1)),
    ],
)
def test_what_fits_is_not_refused(value: Any, type_: pa.DataType) -> None:
    for array in (exact_cells([value, None], type_), exact_cells([value], type_)):
        assert is_same(value, array[0])


ROWS = st.recursive(
    st.tuples(st.just(pa.int64()), st.integers(-(2**63), 2**63 - 1))
    | st.tuples(st.just(pa.float64()), st.floats(allow_nan=False))
    | st.tuples(st.just(pa.string()), st.text(st.characters(exclude_categories=["Cs"])))
    | st.tuples(st.just(pa.bool_()), st.booleans())
    | st.tuples(st.just(pa.timestamp("us")), st.datetimes()),
    lambda inner: (
        inner.map(lambda pair: (pa.list_(pair[0]), [pair[1], None, pair[1]]))
        | inner.map(lambda pair: (pa.list_(pair[0], 2), [pair[1], None]))
        | st.tuples(inner, inner).map(
            lambda pairs: (
                pa.struct([("a", pairs[0][0]), ("b", pairs[1][0])]),
                {"a": pairs[0][1], "b": pairs[1][1]},
            )
        )
        | inner.map(lambda pair: (pa.map_(pa.string(), pair[0]), [("k", pair[1])]))
    ),
    max_leaves=6,
)


@given(row=ROWS)
@settings(max_examples=sized(40, 400))
def test_nested_values_are_those_of_pyarrow(row: tuple[pa.DataType, Any]) -> None:
    type_, value = row
    rows = [value, None, value]

    cells = exact_cells(rows, type_)

    cells.validate(full=True)
    assert cells.equals(pa.array(rows, type_))
    assert cells.to_pylist() == rows


@pytest.mark.parametrize(
    ("array", "type_"),
    [
        (np.arange(6, dtype=">i2").reshape(3, 2), pa.list_(pa.int64())),
        (np.arange(12).reshape(3, 2, 2), pa.list_(pa.list_(pa.int8(), 2))),
        (np.zeros((3, 0)), pa.list_(pa.int64(), 0)),
        (np.zeros((3, 0)), pa.list_(pa.int64())),
        (np.zeros((0, 2)), pa.list_(pa.int64())),
        (np.array([0.5, np.nan, 2], np.float16), pa.float32()),
        (np.array(["2024-01-01T12", "NaT"], "M8[h]"), pa.timestamp("ms")),
        (np.array([1, 2], "m8[s]"), pa.time32("ms")),
        (np.array(["a", "bc"]), pa.string()),
        (np.array([[1, 2]], object), pa.list_(pa.int64())),
    ],
)
def test_arrays_become_cells_at_once(array: Any, type_: pa.DataType) -> None:
    cells = exact_cells(array, type_)

    cells.validate(full=True)
    assert cells.type == type_
    found = np.array(cells.to_pylist()).reshape(array.shape)
    expected = np.array(exact_cells(list(array), type_).to_pylist()).reshape(array.shape)
    assert found.tolist() == expected.tolist() or array.dtype.kind == "f"
    if array.dtype.kind in "biuf":
        np.testing.assert_array_equal(found.astype(array.dtype), array)


@pytest.mark.parametrize(
    ("rows", "type_", "row", "why"),
    [
        ([{"a": 1}, {"a": 1.5}], pa.struct([("a", pa.int64())]), 1, "key 'a'.*float 1.5"),
        ([[[1]], [[2], [3, 1.5]]], pa.list_(pa.list_(pa.int64())), 1, "element 1: element 1:"),
        ([[1], np.array([1.5, 2])], pa.list_(pa.int64()), 1, "element 0: .*1.5"),
        ([[1, 2], [1]], pa.list_(pa.int64(), 2), 1, "2 elements, got 1"),
        ([np.zeros((2, 2)), [[1, 2]]], pa.list_(pa.list_(pa.int8()), 2), 1, "2 elements, got 1"),
        ([[("k", 1)], [("k", "x")]], pa.map_(pa.string(), pa.int64()), 1, "item of pair 0: .*'x'"),
        ([{"k": 1}, {None: 1}], pa.map_(pa.string(), pa.int64()), 1, "key of a map is null"),
        ([{"a": 1}, 5], pa.struct([("a", pa.int64())]), 1, "expected a dict of a, got int 5"),
        ([[1], "ab"], pa.list_(pa.string()), 1, "expected a list, got str"),
        ([DAY, NOON], pa.date32(), 1, "in a column of dates"),
        ([NOON, DAY], pa.timestamp("us"), 1, "in a column of datetimes"),
        ([Decimal("1.50"), Decimal("5e-324")], pa.decimal128(20, 3), 1, "5E-324 has more decimals"),
        ([Decimal(1), Decimal("1e-76")], pa.decimal128(20, 3), 1, "1E-76 has more decimals"),
        ([Decimal(0), Decimal("1e-77")], pa.decimal128(5, 2), 1, "1E-77 has more decimals"),
        ([NOON, NOON.replace(tzinfo=ZONE)], pa.timestamp("us"), 1, "has a time zone"),
        ([NOON.replace(tzinfo=ZONE), NOON], pa.timestamp("us", "UTC"), 1, "has no time zone"),
        ([datetime.time(1), datetime.timedelta(1)], pa.time64("us"), 1, "times of day"),
    ],
)
def test_a_refusal_names_row_and_place(
    rows: list[Any], type_: pa.DataType, row: int, why: str
) -> None:
    with pytest.raises(CellError, match=why) as caught:
        exact_cells(rows, type_)

    assert caught.value.row == row


def test_missing_values_of_pandas_are_null_and_nan_is_not() -> None:
    cells = exact_cells([pd.NA, pd.NaT, np.datetime64("NaT"), None], pa.timestamp("us"))
    floats = exact_cells([{"a": float("nan")}], pa.struct([("a", pa.float32())]))

    assert cells.null_count == 4
    assert math.isnan(floats[0]["a"].as_py())


@pytest.mark.parametrize(
    ("cells", "type_"),
    [
        (pa.array([0.5, math.nan, None]), pa.float32()),
        (pa.array([1, None]), pa.int8()),
        (pa.array(["a", None]), pa.large_string()),
        (pa.array([DAY, None]), pa.timestamp("us")),
        (pa.array([[1], None]), pa.list_(pa.int8())),
    ],
)
def test_cells_are_cast_where_they_stay_equal(cells: pa.Array, type_: pa.DataType) -> None:
    cast = cast_exactly(cells, type_)

    assert cast.type == type_
    assert str(cast.cast(cells.type)) == str(cells)


@pytest.mark.parametrize(
    ("cells", "type_"),
    [
        (pa.array([0.5, 0.1]), pa.float32()),
        (pa.array([1.0, 1e300]), pa.float32()),
        (pa.array([1, 300]), pa.int8()),
        (pa.array([NOON]), pa.date32()),
        (pa.array([NOON]), pa.time64("us")),
        (pa.array([[0.1]]), pa.list_(pa.float32())),
    ],
)
def test_cells_that_a_cast_would_change_are_refused(cells: pa.Array, type_: pa.DataType) -> None:
    with pytest.raises((ValueError, pa.ArrowException)):
        cast_exactly(cells, type_)
