"""CSV files as tables: headers, types over several blocks, numbers as they are written."""

from __future__ import annotations

import datetime
import gzip
import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import data_stack
from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.csv import CSVDatasetIterator, read_csv
from data_stack.formats.text_tables.csv_options import CSVOptions
from data_stack.formats.text_tables.csv_table import CSVTable
from data_stack.formats.text_tables.text_file import TextFile
from data_stack.values.text_numbers import numbers_of

_IRIS = "5.1,3.5,setosa\n4.9,3.0,setosa\n6.3,3.3,virginica\n"


def read(text: str, **options: Any) -> Any:
    return data_stack.from_csv(io.BytesIO(text.encode()), **options)


# ---------------------------------------------------------------------- headers


def test_a_first_row_of_numbers_is_warned_of() -> None:
    with pytest.warns(UserWarning, match=r"first row.*holds '5\.1'; pass header=False"):
        assert len(read(_IRIS)) == 2
    with pytest.warns(UserWarning, match="holds '2020-01-01'"):
        read("2020-01-01,a\n2020-01-02,b\n")
    with pytest.warns(UserWarning, match="holds '1'"):
        read_csv(io.BytesIO(b"1,a\n2,b\n"), {"1": int})
    with pytest.warns(UserWarning, match="holds '1'"):
        len(CSVDatasetIterator(io.BytesIO(b"1,2\n3,4\n")))


def test_a_file_without_a_header_keeps_its_first_row(tmp_path: Path) -> None:
    (tmp_path / "iris.csv").write_text(_IRIS)

    flowers = data_stack.load(tmp_path / "iris.csv", header=False)
    named = data_stack.load(
        tmp_path / "iris.csv", header=False, names=["length", "width", "kind"], target="kind"
    )
    whole = read("1,2\n3,4\n", header=True)

    assert flowers[0] == {"column_0": 5.1, "column_1": 3.5, "column_2": "setosa"}
    assert (len(flowers), len(named)) == (3, 3)
    assert named[2] == {"length": 6.3, "width": 3.3, "kind": "virginica"}
    assert list(whole) == [{"1": 3, "2": 4}]
    assert list(read("a,b\n3,4\n", names=["x", "y"])) == [{"x": 3, "y": 4}]
    assert (
        data_stack.from_recipe(data_stack.from_csv(tmp_path / "iris.csv", header=False).recipe())[0]
        == flowers[0]
    )


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("1,2\n", {"names": ["a"]}, "names= has 1 names, but .* has 2 columns"),
        ("1,2\n", {"names": "ab"}, "names must be a list of names"),
        ("1,2\n", {"header": 3}, "header must be True, False or None"),
        ("5,5\n1,2\n", {}, "got '5' twice.*pass header=False"),
        ("a,a\n1,2\n", {}, "got 'a' twice; rename them"),
    ],
)
def test_names_that_cannot_be_are_refused(text: str, options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(text, **options)


def test_empty_lines_of_one_column_are_warned_of() -> None:
    with pytest.warns(UserWarning, match="line 3: empty lines are no rows"):
        assert len(read("a\nx\n\ny\n")) == 2
    assert read('a\nx\n""\ny\n\n').read_column("a").tolist() == ["x", None, "y"]
    assert len(read("a,b\n\nx,y\n\n")) == 1


# ---------------------------------------------------------------------- numbers


@pytest.mark.parametrize(
    ("cells", "dtype"),
    [
        (["true", "1", "0"], "str"),
        (["true", "False", "TRUE"], "bool"),
        (["1e400", "1"], "str"),
        (["1e-400", "0.5"], "str"),
        (["0.0", "1e-320"], "float64"),
        (["inf", "-Infinity"], "float64"),
        (["0001_02"], "str"),
        (["1", "9" * 5000], "str"),
    ],
)
def test_a_column_is_numbers_where_these_say_its_text(cells: list[str], dtype: str) -> None:
    column = read("n,m\n" + "".join(f"{cell},\n" for cell in cells))

    assert column.column_types["n"] == dtype
    if dtype == "str":
        assert column.read_column("n").tolist() == cells


_CELLS = st.one_of(
    st.integers(-(2**64), 2**65).map(str),
    st.floats().map(repr),
    st.sampled_from(["1e400", "1e-400", "-0", "+7", "007", "5.", ".5", "1_0", "0x1", "x", "true"]),
)


@given(st.lists(_CELLS, min_size=1, max_size=4))
def test_the_rule_of_numbers_is_that_of_columns(cells: list[str]) -> None:
    column = read("row,n\n" + "".join(f"r,{cell}\n" for cell in cells))

    numbers = numbers_of(cells)
    values = column.read_column("n")
    if numbers is None:
        assert values.dtype.kind not in "iuf"
    else:
        assert values.dtype.kind in ("f" if isinstance(numbers[0], float) else "iu")
        assert repr(values.tolist()) == repr(numbers)


@pytest.mark.parametrize(
    ("cell", "dtype"),
    [
        ("1.5", "int64"),
        ("16777217", "float32"),
        ("1e300", "float32"),
        ("70000", "float16"),
        ("1e-60", "float32"),
        ("1e400", "float64"),
        ("9007199254740993", "float64"),
        ("2", "bool"),
        ("300", "int8"),
        ("0x10", "int64"),
        (" -0X10", "int8"),
        ("0xFFFFFFFFFFFFFFFF", "int64"),
        ("1.234", "decimal(10,2)"),
        ("1706659200", "datetime64[s]"),
    ],
)
def test_a_declared_dtype_that_would_change_a_value_is_refused(cell: str, dtype: str) -> None:
    with pytest.raises(DatasetFileCorruptError, match=r"line 3, column 'x': .* does not fit"):
        read(f"x,y\n,\n{cell},\n", dtypes={"x": dtype})


def test_declared_dtypes_are_read_as_they_are_written() -> None:
    rows = read(
        "a,b,c\n0.1,1,1.50\n,true,\n", dtypes={"a": "float32", "b": bool, "c": "decimal(60,2)"}
    )

    assert (rows[0]["a"], str(rows[0]["c"]), rows[1]["a"]) == (np.float32(0.1), "1.50", None)
    assert rows.read_column("b").tolist() == [True, True]


# ---------------------------------------------------------------------- several blocks


def stream(text: str, block_bytes: int, **options: Any) -> pa.Table:
    source = TextFile(io.BytesIO(text.encode()))
    table = CSVTable(source, CSVOptions(**options), {}, block_bytes=block_bytes)
    schema, tables = table.stream()
    return pa.concat_tables([schema.empty_table(), *tables])


@pytest.mark.parametrize(
    ("cells", "type_"),
    [
        (["", "1", ""], pa.int64()),
        (["1", "2.5"], pa.float64()),
        (["9007199254740993", "2.5"], pa.string()),
        (["12345678901234567890", "1"], pa.uint64()),
        (["12345678901234567890", "-1"], pa.string()),
        (["007", "x"], pa.string()),
        (["2020-01-01", "2020-01-01 10:00:00"], pa.timestamp("s")),
        (["2020-01-01", "2020-01-01 10:00:00.5"], pa.timestamp("ns")),
        (["2020-01-01", "12"], pa.string()),
        (["true", "1"], pa.string()),
        (["1e400", "1.5"], pa.string()),
    ],
)
@pytest.mark.parametrize("is_reversed", [False, True])
def test_types_are_those_of_all_blocks(
    cells: list[str], type_: pa.DataType, is_reversed: bool
) -> None:
    cells = cells[::-1] if is_reversed else cells
    text = "n,t\n" + "".join(f'{cell},"a ""b"",\n{cell}"\n' for cell in cells)

    in_blocks = stream(text, 4)
    at_once = data_stack.from_csv(io.BytesIO(text.encode())).to_arrow()

    assert in_blocks.schema.field("n").type == type_
    assert in_blocks.to_pylist() == at_once.to_pylist()
    assert in_blocks.schema.types == at_once.schema.types


@given(st.text('ab",\n\r', max_size=30), st.integers(1, 12))
def test_blocks_have_the_rows_of_the_whole(text: str, block_bytes: int) -> None:
    text = "x,y\n" + text

    def rows_of(n_bytes: int) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return stream(text, n_bytes).to_pylist()
            except DatasetFileCorruptError:
                return None

    assert rows_of(block_bytes) == rows_of(1 << 20)


def test_a_file_that_changes_between_readings_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a\n1\n")
    _, tables = CSVTable(TextFile(path), CSVOptions(), {}).stream()
    path.write_text("a\n2\n")

    with pytest.raises(DatasetFileCorruptError, match="has changed while it was read"):
        list(tables)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "latin-1", "utf-8-sig", "cp1252"])
def test_text_of_an_encoding_is_read_compressed_or_not(encoding: str) -> None:
    data = "naïve,zone\n“é”,1\n".replace("“", "«").replace("”", "»").encode(encoding)

    for packed in (data, gzip.compress(data)):
        rows = data_stack.from_csv(io.BytesIO(packed), encoding=encoding)
        assert list(rows) == [{"naïve": "«é»", "zone": 1}]


@pytest.mark.parametrize(
    ("data", "encoding", "message"),
    [
        (b"a,b\nx,1\ny,\xff\n", "utf-8", "line 3, column 'b' is not text in utf-8"),
        (b"\xff,b\nx,1\n", "utf-8", "line 1, is not text in utf-8"),
        (b"a,b\nx,\xe9\n", "ascii", "is not text in ascii"),
        (b"a\n1\n", "utf-99", "no encoding 'utf-99'"),
        (b"a\n1\n", "rot13", "no encoding 'rot13' of text"),
        ("a\n1\n".encode("utf-16"), "utf-8", "is text in utf-16, .* pass encoding='utf-16'"),
        ("a\n1\n".encode("utf-16-le"), "utf-8", "is text in utf-16-le"),
        ("a\n1\n".encode("utf-16-be"), "utf-8", "is text in utf-16-be"),
        ("a\n1\n".encode("utf-32"), "utf-8", "is text in utf-32"),
        ("a\n1\n".encode("utf-32-be"), "utf-8", "is text in utf-32-be"),
    ],
)
def test_other_bytes_than_text_are_refused(data: bytes, encoding: str, message: str) -> None:
    with pytest.raises((DatasetFileCorruptError, ConfigError), match=message):
        data_stack.from_csv(io.BytesIO(data), encoding=encoding)


def test_a_table_of_many_columns_takes_linear_time() -> None:
    names = ",".join(f"c{number}" for number in range(2000))

    rows = read(f"{names}\n{','.join('1' * 2000)}\n")

    assert rows[0]["c1999"] == 1


# ---------------------------------------------------------------------- filters


def test_filters_choose_rows_of_text_tables(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n,day,t\n1,2020-01-01,x\n2,2020-01-02,\n3,2020-01-03,y\n")
    (tmp_path / "a.jsonl").write_text('{"n": 1, "t": "x"}\n{"n": 2}\n{"n": 3, "t": "y"}\n')

    of_csv = data_stack.load(tmp_path / "a.csv", filters=[("n", ">", 1)], columns=["t"])
    by_day = data_stack.load(tmp_path / "a.csv", filters=[("day", "<", datetime.date(2020, 1, 2))])
    of_lines = data_stack.load(tmp_path / "a.jsonl", filters=[("t", "=", "y")])

    assert list(of_csv) == [{"t": None}, {"t": "y"}]
    assert by_day.read_column("n").tolist() == [1]
    assert of_lines.read_column("n").tolist() == [3]
    with pytest.raises(ConfigError, match=r"no column 'm' for filters"):
        data_stack.load(tmp_path / "a.csv", filters=[("m", ">", 1)])
