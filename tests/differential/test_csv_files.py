"""CSV files have the cells that pandas and polars read, and no number other than its text."""

from __future__ import annotations

import csv
import io
import itertools
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from table_strategies import DECIMALS, FLOATS, INTEGERS, TEXT, compared, exact, tables

import data_stack
from data_stack.formats.csv import read_csv

_DIGITS = st.text("0123456789", min_size=1, max_size=20)
_SIGNED = st.tuples(st.sampled_from(["", "-", "+"]), _DIGITS).map("".join)
HARD = {
    "integers": ["007", " 7", "7 ", "0x10", "1_000", "٣", "-0"],
    "floats": ["1e5", ".5", "5.", "1e400", "-0.0", "1d5", "Infinity", "nan"],
    "bools": ["true", "False", "TRUE", "0", "1", "t", "yes"],
    "days": ["2020-02-30", "2020-1-1", "20200101", "0001-01-01"],
    "times": [
        "2020-01-01 00:00:00.123456789",
        "2020-01-01T00:00:00Z",
        "2020-01-01 00:00:00+05:30",
        "2020-01-01 10:00",
        "12:30:00",
    ],
    "text": ["", "NA", "NULL", "0", "2300-01-01 00:00:00.1"],
}
#: Cells of one kind, and such as are nearly of that kind.
KINDS: dict[str, st.SearchStrategy[str]] = {
    name: st.sampled_from(cells) for name, cells in HARD.items()
}
KINDS["integers"] |= _SIGNED | st.integers(-(2**63), 2**64).map(str)
KINDS["floats"] |= st.floats().map(repr) | st.tuples(_SIGNED, _DIGITS).map(".".join)
KINDS["days"] |= st.dates().map(str)
KINDS["times"] |= st.datetimes().map(str) | st.datetimes().map(
    lambda time: time.isoformat(timespec="seconds")
)
KINDS["text"] |= TEXT | st.text("ab\"',;|\t\n\r ", max_size=4)


@st.composite
def columns_of_cells(draw: st.DrawFn) -> dict[str, list[str]]:
    """Columns of one length, most of whose cells are of one kind; some are empty."""
    n_rows, columns = draw(st.integers(1, 5)), {}
    for name in ["a", "ü", "b, c"][: draw(st.integers(1, 3))]:
        kinds = draw(
            st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=1 + draw(st.booleans()))
        )
        cell = st.one_of(*map(KINDS.__getitem__, kinds))
        columns[name] = draw(
            st.lists(
                st.just("") | cell if draw(st.booleans()) else cell,
                min_size=n_rows,
                max_size=n_rows,
            )
        )
    return {
        "row": ["r"] * n_rows,
        **columns,
    }  # a row of one empty cell would be a line without anything, which is no row


def written(columns: dict[str, list[str]], **dialect: Any) -> bytes:
    if "\r" in "".join(
        itertools.chain(*columns.values())
    ):  # Python quotes it only beside lines that end with it
        dialect["quoting"] = csv.QUOTE_ALL
    text = io.StringIO(newline="")
    writer = csv.writer(text, **dialect)
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue().encode()


@compared
@pytest.mark.filterwarnings("ignore:.*a quoted field goes over several lines:UserWarning")
@given(
    columns_of_cells(),
    st.sampled_from([",", ";", "\t"]),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
)
def test_cells_are_those_of_pandas_and_polars(
    columns: dict[str, list[str]], delimiter: str, end: str, quoting: Any
) -> None:
    data = written(columns, delimiter=delimiter, lineterminator=end, quoting=quoting)

    table = data_stack.from_csv(
        io.BytesIO(data), delimiter=delimiter, dtypes=dict.fromkeys(columns, str), missing=()
    )
    arrays = read_csv(io.BytesIO(data), dict.fromkeys(columns, str), delimiter=delimiter)

    options: dict[str, Any] = {"dtype": str, "na_filter": False, "keep_default_na": False}
    of_pandas = pd.read_csv(io.BytesIO(data), sep=delimiter, **options).to_dict("list")
    of_polars = pl.read_csv(io.BytesIO(data), separator=delimiter, infer_schema=False).to_dict(
        as_series=False
    )
    of_polars = {name: [cell or "" for cell in cells] for name, cells in of_polars.items()}
    assert columns == of_pandas == of_polars
    assert {name: table.read_column(name).tolist() for name in columns} == columns
    assert {name: cells.tolist() for name, cells in arrays.items()} == columns


def means(text: str, value: Any) -> bool:
    """Whether a value that was inferred is what its text says."""
    if isinstance(value, str) or value is None:
        return bool(value == text) or (value is None and text == "")
    if isinstance(value, (bool, np.bool_)):
        return text.lower() in (("true", "1") if value else ("false", "0"))
    if isinstance(value, np.datetime64):
        moment = pd.Timestamp(text)
        return bool(
            value == (moment if moment.tz is None else moment.tz_convert(None)).to_datetime64()
        )
    if isinstance(value, np.timedelta64):
        return bool(value == pd.Timedelta(text))
    number = text.strip()
    if isinstance(value, (int, np.integer)):
        return int(number) == value
    return repr(float(number)) == repr(float(value)) and (
        "." in number
        or "e" in number.lower()
        or not number.lstrip("+-").isdigit()
        or Decimal(number) == Decimal(float(value))
    )


@compared
@given(columns_of_cells())
def test_values_mean_their_text_and_have_the_types_of_pandas(
    columns: dict[str, list[str]],
) -> None:
    data = written(columns)

    table = data_stack.from_csv(io.BytesIO(data))

    frame = pd.read_csv(io.BytesIO(data), keep_default_na=False, na_values=[""])
    for name, cells in columns.items():
        values = table.read_column(name)
        assert all(map(means, cells, list(values))), (name, cells, values)
        dtype, of_pandas = table.column_types[name].removesuffix(" or None"), frame[name].dtype  # type: ignore[attr-defined]
        if of_pandas.kind in "iu" and not any(
            cell.strip().startswith("+") for cell in cells
        ):  # pyarrow reads these as floats
            assert dtype in (of_pandas.name, "uint64")


@compared
@given(
    tables(
        [
            *INTEGERS,
            *FLOATS,
            *DECIMALS,
            pa.bool_(),
            pa.string(),
            pa.date32(),
            pa.timestamp("us"),
            pa.timestamp("ns"),
        ]
    )
)
def test_a_table_written_by_pandas_or_polars_keeps_its_values(table: pa.Table) -> None:
    table = table.append_column("row", pa.array([1] * len(table), pa.int8()))
    dtypes = {each.name: each.type for each in table.schema}
    names = {name: _name_of(type_) for name, type_ in dtypes.items()}
    of_pandas = table.to_pandas(types_mapper=pd.ArrowDtype).to_csv(
        index=False, lineterminator="\r\n"
    )  # so that it quotes "\r"
    written = [of_pandas.encode()]
    if not any(map(pa.types.is_decimal256, dtypes.values())):
        frame: Any = pl.from_arrow(table)
        written.append(frame.write_csv().encode())

    for data in written:
        back = data_stack.from_csv(io.BytesIO(data), dtypes=names).to_arrow()

        for name in table.column_names:
            empty = [
                None if cell == "''" else cell for cell in exact(table.column(name))
            ]  # an empty text is a missing one
            assert [None if cell == "None" else cell for cell in exact(back.column(name))] == [
                None if cell == "None" else cell for cell in empty
            ]


def _name_of(type_: pa.DataType) -> str:
    if pa.types.is_decimal(type_):
        return f"decimal({type_.precision},{type_.scale})"
    if pa.types.is_timestamp(type_):
        return "timestamp_ntz" if type_.unit == "us" else f"timestamp_ntz[{type_.unit}]"
    return {
        "string": "str",
        "date32[day]": "date",
        "bool": "bool",
        "float": "float32",
        "double": "float64",
    }.get(str(type_), str(type_))
