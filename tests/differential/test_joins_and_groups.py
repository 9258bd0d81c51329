"""Orders, groups, duplicates, parts and joins of rows are those of pandas."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from croissant_documents import document, fields, file_object, publish
from hypothesis import example, given
from hypothesis import strategies as st
from table_strategies import DECIMALS, FLOATS, INTEGERS, TEXTS, TIMES, compared, tables

import data_stack
from data_stack.dataset.iterator import ZippedDatasetIterator

KEYS = [pa.bool_(), *INTEGERS, *FLOATS, *TEXTS, *TIMES, *DECIMALS]


def rows_of(table: pa.Table) -> tuple[Any, pd.DataFrame]:
    """The rows of a table as samples, and as a frame whose columns hold the same values; ``row`` is
    their number.
    """
    table = table.append_column("row", pa.array(range(len(table)), pa.int64()))
    for number, field in enumerate(table.schema):
        if pa.types.is_floating(field.type):  # a null is NaN for pandas, and None for us
            table = table.set_column(number, field, table.column(number).fill_null(0.5))
    iterator = data_stack.from_arrow(table)
    columns = {name: iterator.read_column(name) for name in table.column_names}
    dtypes = {
        name: object if values.dtype == object else None for name, values in columns.items()
    }  # None stays None
    return iterator, pd.DataFrame(
        {name: pd.Series(values, dtype=dtypes[name]) for name, values in columns.items()}
    )


def rows(iterator: Any) -> list[int]:
    return [int(sample["row"]) for sample in iterator]


@compared
@given(tables(KEYS, max_rows=9), st.data())
def test_groups_and_duplicates_are_those_of_pandas(table: pa.Table, data: st.DataObject) -> None:
    iterator, frame = rows_of(table)
    names = data.draw(
        st.lists(st.sampled_from(table.column_names), min_size=1, max_size=2, unique=True)
    )
    name, length, stride = names[0], data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))

    groups = [group.tolist() for _, group in frame.groupby(name, sort=False, dropna=False)["row"]]
    assert rows(iterator.deduplicate(names)) == frame.drop_duplicates(names)["row"].tolist()
    assert len(iterator.unique(name)) == frame[name].nunique(dropna=False)
    windows = [
        group[start : start + length]
        for group in groups
        for start in range(0, len(group) - length + 1, stride)
    ]
    assert [
        window["row"].tolist() for window in iterator.windows(length, group_by=name, stride=stride)
    ] == windows
    if not frame[name].isna().any() and len(frame):
        assert [rows(part) for part in iterator.split(by=name).values()] == groups
    named = frame.dropna(subset=[name])
    for column in iterator.report("data_class", statistics=True).columns if len(frame) else ():
        if column.key == name:
            assert (column.statistics.n_missing, column.statistics.n_distinct) == (
                len(frame) - len(named),
                named[name].nunique(),
            )


@compared
@given(tables(KEYS, max_rows=9, with_nulls=False), st.booleans(), st.data())
def test_orders_are_those_of_pandas(table: pa.Table, descending: bool, data: st.DataObject) -> None:
    iterator, frame = rows_of(table)
    name, other = (data.draw(st.sampled_from(table.column_names)) for _ in range(2))
    ordered = frame.sort_values(name, kind="stable", ascending=not descending)

    assert rows(iterator.sort(name, descending=descending)) == ordered["row"].tolist()
    if not frame[name].isna().any():
        groups = frame.sort_values(name, kind="stable").groupby(other, sort=False, dropna=False)[
            "row"
        ]
        by_first = sorted((group.tolist() for _, group in groups), key=min)
        windows = iterator.windows(1, order_by=name, group_by=other)
        assert [int(window["row"][0]) for window in windows] == [
            row for group in by_first for row in group
        ]


@compared
@given(tables(KEYS), tables(KEYS, names=["b", "c", "d", "e"]), st.data())
def test_zipped_and_combined_rows_are_those_of_pandas(
    first: pa.Table, second: pa.Table, data: st.DataObject
) -> None:
    n_rows = min(len(first), len(second))
    one, frame = rows_of(first)
    other, right = rows_of(second)
    chosen = data.draw(st.lists(st.booleans(), min_size=len(frame), max_size=len(frame)))

    beside = ZippedDatasetIterator(
        [one.take(n_rows), other.take(n_rows).select(*second.column_names)]
    )
    behind = one.combine(one.filter(lambda row: chosen[row], column="row"))

    expected = pd.concat([frame[:n_rows], right[second.column_names][:n_rows]], axis=1)
    columns = {name: pd.Series(beside.read_column(name), dtype=object) for name in expected}
    pd.testing.assert_frame_equal(pd.DataFrame(columns), expected.astype(object))
    assert behind.to_pandas()["row"].tolist() == pd.concat([frame, frame[chosen]])["row"].tolist()


@compared
@given(
    st.lists(st.sampled_from(["a", "b", "007", "7", "é", ""]), max_size=6),
    st.lists(st.tuples(st.sampled_from(["a", "b", "007", "c", ""]), st.integers(0, 9)), max_size=6),
)
@example(["8", "007", "", "9", "007"], [("007", 1), ("8", 2), ("8", 3), ("", 4)])
def test_joins_of_croissant_are_left_joins_of_pandas(
    keys: list[str], others: list[tuple[str, int]]
) -> None:
    left = pd.DataFrame({"k": keys, "row": range(len(keys))}, dtype="object")
    right = pd.DataFrame(others, columns=["k", "n"], dtype="object")
    files = {
        "l.csv": left.to_csv(index=False).encode(),
        "r.csv": right.to_csv(index=False).encode(),
    }
    source = {
        name: {"fileObject": {"@id": file}, "extract": {"column": name[-1]}}
        for name, file in (("k", "l.csv"), ("rk", "r.csv"), ("n", "r.csv"))
    }
    described = document(
        [file_object(name, content, "text/csv") for name, content in files.items()],
        rows=fields(
            "rows",
            {"fileObject": "l.csv"},
            row="sc:Integer",
            k={"dataType": "sc:Text", "source": source["k"], "references": source["rk"]},
            n={"dataType": "sc:Integer", "source": source["n"]},
        ),
    )

    with tempfile.TemporaryDirectory() as folder:
        place = publish(
            Path(folder) / "set",
            described,
            **{name.replace(".", "__"): content for name, content in files.items()},
        )
        samples = list(data_stack.from_croissant(place, Path(folder) / "store"))

    joined = left.merge(
        right[right["k"] != ""], on="k", how="left"
    )  # a key that is missing is equal to none
    expected = [(row, key or None, None if pd.isna(n) else n) for key, row, n in joined.to_numpy()]
    assert samples == [{"row": row, "k": key, "n": n} for row, key, n in expected]
