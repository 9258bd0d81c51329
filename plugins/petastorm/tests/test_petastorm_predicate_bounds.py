"""Predicates skip row groups by the statistics in footers, and lose no row."""

from __future__ import annotations

import datetime
import operator
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_stack_petastorm.predicates import (
    in_lambda,
    in_negate,
    in_pseudorandom_split,
    in_reduce,
    in_set,
)
from hypothesis import given
from hypothesis import strategies as st
from table_strategies import FLOATS, INTEGERS, TEXTS, compared, tables

from data_stack.exception import ConfigError
from data_stack.formats.parquet import ParquetDataset
from data_stack.formats.parquet.row_groups import RowGroups
from data_stack.formats.parquet.selecting import Predicate, as_predicate, col

OTHER_TYPES = [
    pa.bool_(),
    pa.date32(),
    pa.timestamp("us"),
    pa.timestamp("us", "UTC"),
    pa.time64("us"),
    pa.decimal128(5, 2),
]

COMPARISONS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]


@st.composite
def predicates(draw: st.DrawFn, table: pa.Table, depth: int = 2) -> Predicate:
    """Predicates of a column and some of its values, and their combinations."""
    kinds: list[Any] = ["one column", "one column"]
    if depth:
        kinds += ["not", all, any]
    kind = draw(st.sampled_from(kinds))
    if kind == "one column":
        return draw(predicates_of_column(table, draw(st.sampled_from(table.column_names))))
    if kind == "not":
        return in_negate(draw(predicates(table, depth - 1)))
    first = draw(predicates(table, depth - 1))
    second = draw(predicates(table, depth - 1))
    return in_reduce([first, second], kind)


@st.composite
def predicates_of_column(draw: st.DrawFn, table: pa.Table, name: str) -> Predicate:
    """Predicates of one column; those that compare it do so with two of its values."""
    cells = [cell for cell in table.column(name).to_pylist() if cell is not None]
    values: list[Any] = []
    if cells:
        values = draw(st.lists(st.sampled_from(cells), min_size=2, max_size=2))
    choices: list[Any] = [
        in_set([*values, None], name),
        in_pseudorandom_split([0.5, 0.5], 0, name),
        in_lambda([name], lambda value: value is not None and str(value) > "2"),
        col(name).is_null(),
    ]
    if cells:
        values_for_arrow = as_values_for_arrow(values, table.schema.field(name).type)
        compare = draw(st.sampled_from(COMPARISONS))
        comparison = compare(col(name), values_for_arrow[0])
        # Comparisons use the statistics most, so they are drawn most.
        choices += [comparison, comparison, ~comparison]
        choices += [col(name).isin(values_for_arrow), in_set(values, name)]
    return as_predicate(draw(st.sampled_from(choices)))


def as_values_for_arrow(values: list[Any], type_: pa.DataType) -> list[Any]:
    """Values of a column as an expression of pyarrow takes them."""
    if pa.types.is_time(type_):  # is compared as a duration
        midnight = datetime.datetime.min
        return [datetime.datetime.combine(midnight, value) - midnight for value in values]
    if pa.types.is_timestamp(type_):  # a time without a zone is one of UTC
        return [value.replace(tzinfo=None) for value in values]
    if pa.types.is_integer(type_):  # pyarrow takes Python's for int64, which lacks large ones
        return [pa.scalar(value, type_) for value in values]
    return values


@compared
@given(tables([*INTEGERS, *FLOATS, *TEXTS, *OTHER_TYPES], max_rows=9), st.integers(1, 4), st.data())
def test_footers_leave_out_no_row(table: pa.Table, n_rows: int, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        pq.write_table(table, f"{folder}/a.parquet", row_group_size=n_rows)
        columns = ParquetDataset(folder).read_batch(slice(None))

        for predicate in data.draw(st.lists(predicates(table), min_size=6, max_size=6)):
            n_selected = predicate.mask(columns).sum()
            assert len(ParquetDataset(folder, filters=predicate)) == n_selected, predicate


def test_bounds_of_float32_leave_out_no_rounded_member(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": pa.array([0.1, 0.1], pa.float32())}), tmp_path / "a.parquet")

    assert len(ParquetDataset(tmp_path, filters=col("x").isin([0.1]))) == 2


def test_bytes_that_pyarrow_cannot_compare_are_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"b": [b"\xff"]}), tmp_path / "a.parquet")

    with pytest.raises(ConfigError, match="no kernel matching input types"):
        len(ParquetDataset(tmp_path, filters=col("b") == pa.scalar(b"\xff", pa.binary_view())))


FIRST_DAY = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)
TIMES = [FIRST_DAY + datetime.timedelta(days=day) for day in range(8)]
#: pyarrow compares times of other zones or of other units, not of both.
ELSEWHERE = pa.scalar(TIMES[4], pa.timestamp("ns", "Asia/Kathmandu"))
IN_LATER_HALF = in_set(TIMES[4:], "naive")
NOT_IN_FIRST_HALF = in_negate(in_set(TIMES[:4], "naive"))


@pytest.fixture
def days(tmp_path: Path) -> Path:
    """Eight days in four row groups, with a time zone and without one."""
    zoned = pa.array(TIMES, pa.timestamp("us", "+01:00"))
    naive = pa.array([time.replace(tzinfo=None) for time in TIMES], pa.timestamp("us"))
    table = pa.table({"zoned": zoned, "naive": naive})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=2)
    return tmp_path


@pytest.mark.parametrize(
    "filters",
    [
        [("zoned", ">=", TIMES[4])],
        col("zoned") >= TIMES[4],
        col("zoned") >= pa.scalar(TIMES[4], pa.timestamp("us", "+01:00")),
        col("zoned") >= ELSEWHERE,
        IN_LATER_HALF,
        in_reduce([IN_LATER_HALF, NOT_IN_FIRST_HALF], all),
        in_reduce([IN_LATER_HALF, col("zoned") > TIMES[5]], any),
    ],
    ids=["triples", "python", "same zone", "other zone", "in_set", "all", "any"],
)
def test_times_with_a_zone_spare_row_groups(days: Path, filters: Any) -> None:
    with patch.object(RowGroups, "open", autospec=True, side_effect=RowGroups.open) as opened:
        n_selected = len(ParquetDataset(days, filters=filters))

    assert n_selected == 4
    assert opened.call_count == 2


def test_times_with_a_zone_are_members(days: Path) -> None:
    assert len(ParquetDataset(days, filters=col("zoned").isin(TIMES[:3]))) == 3


def test_times_with_and_without_a_zone_do_not_compare(days: Path) -> None:
    message = r"row group \d .*Cannot compare timestamp with timezone to timestamp without timezone"
    with pytest.raises(ConfigError, match=message):
        len(ParquetDataset(days, filters=col("naive") > TIMES[0]))
