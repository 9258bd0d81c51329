"""Filters of Parquet datasets select the rows that pyarrow and DuckDB select, with their values."""

from __future__ import annotations

import contextlib
import operator
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st
from table_strategies import ALL, SCALARS, compared, exact_rows, tables

import data_stack
from data_stack.exception import ConfigError
from data_stack.formats.parquet import ParquetDataset, ParquetWriter
from data_stack.formats.parquet.inference import infer_schema
from data_stack.formats.parquet.selecting import col

COMPARISONS = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "<>": operator.ne,
}
#: DuckDB has no decimals of 256 bits.
OF_DUCKDB = [type_ for type_ in SCALARS if not pa.types.is_decimal256(type_)]
#: Parquet stores milliseconds instead of seconds, and all dates as days.
KEPT = [
    each
    for each in ALL
    if each not in (pa.time32("s"), pa.timestamp("s"), pa.timestamp("s", "-07:30"), pa.date64())
]


class Condition(NamedTuple):
    """A condition for pyarrow; and in SQL, with its values as the columns ``v0``, ``v1`` … of a
    table ``given``.
    """

    expression: Any
    sql: str


@st.composite
def conditions(draw: st.DrawFn, table: pa.Table, values: list[Any], depth: int = 3) -> Condition:
    """Comparisons with values of which some are in the table, joined by and, or, not; the values
    are added to ``values``.
    """
    kind = draw(st.sampled_from(["one", "and", "or", "not"])) if depth else "one"
    if kind == "one":
        return draw(comparisons(table, values))
    first = draw(conditions(table, values, depth - 1))
    if kind == "not":
        return Condition(~first.expression, f"not ({first.sql})")
    second = draw(conditions(table, values, depth - 1))
    join = operator.and_ if kind == "and" else operator.or_
    return Condition(
        join(first.expression, second.expression), f"(({first.sql}) {kind} ({second.sql}))"
    )


@st.composite
def comparisons(draw: st.DrawFn, table: pa.Table, values: list[Any]) -> Condition:
    name = draw(st.sampled_from(table.column_names))
    stored, column = table.schema.field(name).type, table.column(name)
    type_ = stored.value_type if pa.types.is_dictionary(stored) else stored
    sql, kind = (
        't."' + name.replace('"', '""') + '"',
        draw(st.sampled_from(["is null", "is not null", "in", *COMPARISONS])),
    )
    if kind.startswith("is ") or pa.types.is_nested(type_) or pa.types.is_null(type_):
        is_null = kind != "is not null"
        return Condition(
            col(name).is_null() if is_null else col(name).is_valid(),
            f"{sql} is {'' if is_null else 'not '}null",
        )
    type_ = (
        pa.binary() if type_ == pa.binary_view() else type_
    )  # pyarrow shows no expression with bytes of a view
    own = [each for each in column.cast(type_) if each.is_valid]
    others = ALL[stored].map(lambda value: pa.array([value], type_)[0])
    some = st.sampled_from(own) | others if own else others
    if kind == "in":
        members = draw(st.lists(some, min_size=1, max_size=2))
        values += members
        # pyarrow's is_in tells -0.0 from 0.0
        sign = (
            " and ({0} <> 0 or signbit({0}) = signbit(given.v{1}))"
            if pa.types.is_floating(type_)
            else ""
        )
        equal = " or ".join(
            f"{{0}} = given.v{{1}}{sign}".format(sql, len(values) - 1 - n)
            for n in range(len(members))
        )
        return Condition(
            col(name).isin(pa.array(members, type_)), f"coalesce({equal}, false)"
        )  # is_in is false for null
    if pa.types.is_integer(type_) or pa.types.is_floating(type_):
        some |= st.sampled_from([pa.scalar(0.5), pa.scalar(300), pa.scalar(-1)])
    value = draw(some)
    values.append(value)
    given_value = f"given.v{len(values) - 1}"
    expression = COMPARISONS[kind](col(name), value)
    if draw(st.booleans()):
        with contextlib.suppress(
            OverflowError, ValueError, pa.ArrowException
        ):  # Python has no such value
            if pa.scalar(value.as_py()).cast(type_) == value.cast(
                type_
            ):  # pyarrow rounds nanoseconds
                expression = COMPARISONS[kind](col(name), value.as_py())
    if not pa.types.is_floating(type_):
        return Condition(expression, f"{sql} {kind} {given_value}")
    with_nan = (
        "true" if kind == "<>" else "false"
    )  # for SQL, NaN is the largest value, and equals itself
    cases = f"when {sql} is null then null when isnan({sql}) or isnan({given_value}::double) then {with_nan}"
    return Condition(expression, f"case {cases} else {sql} {kind} {given_value} end")


class Case(NamedTuple):
    """A table, a condition, the values of the condition, and how the table is stored: arguments of
    pyarrow's writer, lengths of the row groups of two files, and where the second file begins.
    """

    table: pa.Table
    condition: Condition
    values: list[Any]
    options: dict[str, Any]
    lengths: tuple[int, int]
    cut: int

    def store(self, folder: str) -> pa.Table:
        """Write the files, and return their rows."""
        table = self.table.append_column("row", pa.array(range(len(self.table)), pa.int64()))
        paths = [Path(folder, name) for name in ("a.parquet", "b.parquet")]
        for path, part, length in zip(
            paths, [table.slice(0, self.cut), table.slice(self.cut)], self.lengths, strict=True
        ):
            pq.write_table(part, path, row_group_size=length, **self.options)
        return pa.concat_tables([pq.ParquetFile(path).read() for path in paths])


@st.composite
def cases(draw: st.DrawFn, types: Any = tuple(ALL)) -> Case:
    table, values = draw(tables(types, max_rows=9)), list[Any]()
    some = {
        "use_dictionary": st.booleans(),
        "store_schema": st.booleans(),
        "write_page_index": st.booleans(),
    }
    some |= {
        "data_page_version": st.sampled_from(["1.0", "2.0"]),
        "compression": st.sampled_from(["none", "zstd"]),
    }
    options = draw(st.fixed_dictionaries(some)) | {"write_statistics": draw(st.integers(0, 9)) > 0}
    lengths = draw(st.tuples(st.integers(1, 4), st.integers(1, 4)))
    return Case(
        table,
        draw(conditions(table, values)),
        values,
        options,
        lengths,
        draw(st.integers(0, len(table))),
    )


@compared
@given(cases(), st.sampled_from(["none", "mask"]))
def test_rows_are_those_that_pyarrow_selects(case: Case, nulls: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        stored = case.store(folder)
        try:
            expected: Any = pa.dataset.dataset(stored).to_table(filter=case.condition.expression)
        except (pa.ArrowException, TypeError, ValueError):
            expected = None
        try:
            found = (
                ParquetDataset(folder, filters=case.condition.expression, nulls=nulls)
                .read_column("row")
                .tolist()
            )
            values = ParquetDataset(folder, filters=case.condition.expression).to_arrow()
        except ConfigError:
            assert expected is None
            return

    if expected is None:  # pyarrow cannot compare views, for example
        return
    assert found == expected.column("row").to_pylist()
    assert exact_rows(values) == exact_rows(expected)


@compared
@given(cases(OF_DUCKDB))
def test_rows_are_those_that_duckdb_selects(case: Case) -> None:
    values = {
        f"v{number}": pa.array([value], value.type) for number, value in enumerate(case.values)
    }
    with tempfile.TemporaryDirectory() as folder:
        case.store(folder)
        query = f'select "row" from read_parquet(\'{folder}/*.parquet\') t, given where {case.condition.sql} order by "row"'
        # when DuckDB 2.0.0 pushes filters down, "is null" also takes the values of a group in which
        # all others are equal
        with duckdb.connect(config={"disabled_optimizers": "filter_pushdown"}) as connection:
            connection.register("given", pa.table({"none": [0], **values}))
            expected = [row for (row,) in connection.execute(query).fetchall()]
        try:
            found = (
                ParquetDataset(folder, filters=case.condition.expression)
                .read_column("row")
                .tolist()
            )
        except (
            ConfigError
        ):  # pyarrow cannot compare a large uint32 with 0.5, for example; see above
            return

    assert found == expected


@compared
@given(tables(KEPT))
def test_written_tables_read_the_same_by_pyarrow_and_by_us(table: pa.Table) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with ParquetWriter(folder, infer_schema(table.schema), rows_per_file=4) as writer:
            writer.write(data_stack.from_arrow(table), progress=False)
        back = ParquetDataset(folder).to_arrow()
        of_pyarrow = pq.read_table(folder)

    assert exact_rows(of_pyarrow) == exact_rows(table) == exact_rows(back)
