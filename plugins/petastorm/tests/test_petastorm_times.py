"""Dates and times by Petastorm's names.

The units of fields, the dates and zones of DataFrames and "nan" were measured with Petastorm 0.13.1
(issue 50). "NaT" and "None" of other nulls follow from how its source converts them, unmeasured.
"""

from __future__ import annotations

import datetime
import hashlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_stack_petastorm import NGram, TransformSpec, make_batch_reader, make_reader
from data_stack_petastorm.codecs import NdarrayCodec, ScalarCodec
from data_stack_petastorm.plain_times import plain_time
from data_stack_petastorm.predicates import in_lambda, in_pseudorandom_split, in_set
from data_stack_petastorm.schemas import as_schema
from data_stack_petastorm.unischema import Unischema, UnischemaField

from data_stack.exception import LoadingError
from data_stack.formats.parquet import ParquetDataset, ParquetWriter

DAYS = [datetime.date(2020, 1, 2), datetime.date(9999, 12, 31), datetime.date(1, 1, 1)]
TIMES = [
    datetime.datetime(2020, 1, 2, 3),
    datetime.datetime(9999, 12, 31, 23, 59, 59, 999999),
    datetime.datetime(1, 1, 1),
]
SCHEMA = Unischema(
    "Times",
    [
        UnischemaField("id", np.int64, (), ScalarCodec("bigint"), False),
        UnischemaField("day", np.datetime64, (), ScalarCodec("date"), True),
        UnischemaField("time", np.datetime64, (), ScalarCodec("timestamp"), True),
        UnischemaField("speed", np.float32, (), ScalarCodec("float"), True),
    ],
)


def write_rows(folder: Path, rows: Sequence[dict[str, Any]]) -> str:
    with ParquetWriter(str(folder), as_schema(SCHEMA), petastorm=True) as writer:
        for row in rows:
            writer.append({name: as_instant(value) for name, value in row.items()})
    return f"file://{folder}"


def as_instant(value: Any) -> Any:
    """A datetime in UTC, which a column of timestamps asks for; other values as they are."""
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=datetime.timezone.utc)
    return value


@pytest.fixture
def url(tmp_path: Path) -> str:
    rows = [
        {"id": number, "day": DAYS[number], "time": TIMES[number], "speed": 0.1}
        for number in range(3)
    ]
    return write_rows(
        tmp_path / "rows", [*rows, {"id": 3, "day": None, "time": None, "speed": None}]
    )


def rows_of(url: str, **options: Any) -> list[Any]:
    with make_reader(url, num_epochs=1, shuffle_row_groups=False, **options) as reader:
        return list(reader)


def test_fields_without_a_unit_are_days_and_microseconds(url: str) -> None:
    first, last, earliest, missing = rows_of(url)

    assert [row.day.dtype.str for row in (first, last)] == ["<M8[D]", "<M8[D]"]
    assert [row.day.item() for row in (first, last, earliest)] == DAYS
    assert [row.time.dtype.str for row in (first, last)] == ["<M8[us]", "<M8[us]"]
    assert [row.time.item() for row in (first, last, earliest)] == TIMES
    assert (missing.day, missing.time) == (None, None)


def test_the_schema_of_the_pickle_alone_gives_the_same_times(tmp_path: Path) -> None:
    url = write_rows(tmp_path / "rows", [{"id": 0, "day": DAYS[1], "time": TIMES[1], "speed": 0}])
    for file in (tmp_path / "rows").rglob("*manifest*"):
        file.unlink()
    part = next((tmp_path / "rows").rglob("*.parquet"))
    table = pq.read_table(part).replace_schema_metadata(None)
    part.unlink()
    pq.write_table(table, tmp_path / "rows/a.parquet", use_deprecated_int96_timestamps=True)
    footer = pq.read_metadata(tmp_path / "rows/_common_metadata").metadata
    kept = {key: value for key, value in footer.items() if key.startswith(b"dataset-toolkit.uni")}
    pq.write_metadata(table.schema.with_metadata(kept), tmp_path / "rows/_common_metadata")

    (row,) = rows_of(url)

    assert (row.day.dtype, row.day.item()) == (np.dtype("M8[D]"), DAYS[1])
    assert (row.time.dtype, row.time.item()) == (np.dtype("M8[us]"), TIMES[1])


@pytest.mark.parametrize("make", [make_reader, make_batch_reader])
def test_predicates_compare_dates(url: str, make: Any) -> None:
    def ids(predicate: Any) -> list[int]:
        with make(url, num_epochs=1, shuffle_row_groups=False, predicate=predicate) as reader:
            return [int(number) for row in reader for number in np.atleast_1d(row.id)]

    assert ids(in_lambda(["day"], lambda day: day == DAYS[1])) == [1]
    assert ids(in_set([DAYS[0], DAYS[2]], "day")) == [0, 2]
    assert ids(in_set([TIMES[1], None], "time")) == [1, 3]


def test_a_predicate_of_rows_gets_the_dates_of_dataframes(url: str) -> None:
    years = in_lambda(["day"], lambda day: day is not None and day.year == 9999)

    with make_batch_reader(url, num_epochs=1, predicate=years) as reader:
        assert [batch.id.tolist() for batch in reader] == [[1]]


def _write_plain(path: Path) -> str:
    at = datetime.datetime(2020, 7, 1, 12, tzinfo=datetime.timezone.utc)
    table = {
        "id": [0, 1, 2],
        "day": pa.array([*DAYS[:2], None]),
        "at": pa.array([at, None, at], pa.timestamp("us", "Europe/Berlin")),
    }
    pq.write_table(pa.table(table), path)
    return f"file://{path}"


def _frame_of(url: str) -> Any:
    frames: list[Any] = []

    def keep(frame: Any) -> Any:
        frames.append(frame.copy())
        return frame

    with make_batch_reader(url, num_epochs=1, transform_spec=TransformSpec(keep)) as reader:
        list(reader)
    return frames[-1]


def test_dataframes_have_dates_and_zones_as_arrow_gives_them(tmp_path: Path) -> None:
    url = _write_plain(tmp_path / "a.parquet")

    frame = _frame_of(url)

    expected = pq.read_table(tmp_path / "a.parquet").to_pandas()
    pd.testing.assert_frame_equal(frame, expected)
    assert str(frame["at"].dtype) == "datetime64[us, Europe/Berlin]"
    assert frame["day"].tolist() == [*DAYS[:2], None]
    assert frame["at"].dt.hour.tolist()[0] == 14


def test_dates_and_zones_of_dataframes_come_back_as_they_were(tmp_path: Path) -> None:
    url = _write_plain(tmp_path / "a.parquet")

    with make_batch_reader(
        url, num_epochs=1, transform_spec=TransformSpec(lambda frame: frame)
    ) as reader:
        (batch,) = list(reader)
    with make_batch_reader(url, num_epochs=1) as reader:
        (plain,) = list(reader)

    assert batch.day.tolist() == plain.day.tolist() == [*np.array(DAYS[:2], "M8[D]"), None]
    assert batch.at.tolist() == plain.at.tolist()
    assert plain.at[0] == np.datetime64("2020-07-01T12")


def test_dates_that_python_does_not_have_stay_numpy(tmp_path: Path) -> None:
    days = np.array(["12000-01-01", "2020-01-01"], "M8[D]")
    pq.write_table(pa.table({"day": pa.array(days)}), tmp_path / "a.parquet")

    frame = _frame_of(f"file://{tmp_path}/a.parquet")

    assert frame["day"].tolist() == [days[0], datetime.date(2020, 1, 1)]


def test_ngrams_of_timestamps_count_microseconds(tmp_path: Path) -> None:
    start = datetime.datetime(2020, 1, 1)
    steps = [0, 5, 10, 16]
    rows = [
        {"id": step, "day": None, "time": start + datetime.timedelta(microseconds=step), "speed": 0}
        for step in steps
    ]
    url = write_rows(tmp_path / "rows", rows)

    ngram = NGram({0: ["id"], 1: ["id"]}, 5, "time")

    assert [(pair[0].id, pair[1].id) for pair in rows_of(url, schema_fields=ngram)] == [
        (0, 5),
        (5, 10),
    ]


def _bucket_share(text: str) -> float:
    digest = int.from_bytes(hashlib.md5(text.encode(), usedforsecurity=False).digest(), "big")
    return (digest % (2**63 - 1)) / (2**63 - 1)


@pytest.mark.parametrize(
    ("field", "texts"),
    [
        ("speed", ["0.1", "0.1", "0.1", "nan"]),
        ("day", ["2020-01-02", "9999-12-31", "0001-01-01", "None"]),
        (
            "time",
            [
                "2020-01-02T03:00:00.000000",
                "9999-12-31T23:59:59.999999",
                "0001-01-01T00:00:00.000000",
                "NaT",
            ],
        ),
    ],
)
def test_pseudorandom_splits_are_those_of_petastorm(url: str, field: str, texts: list[str]) -> None:
    fractions = [0.3, 0.3, 0.4]

    # an empty part is a warning of make_reader
    predicates = [in_pseudorandom_split(fractions, part, field) for part in range(3)]
    found = [
        ParquetDataset(url, filters=predicate).read_column("id").tolist()
        for predicate in predicates
    ]

    shares = [_bucket_share(text) for text in texts]
    assert found == [
        [row for row, share in enumerate(shares) if share < 0.3],
        [row for row, share in enumerate(shares) if 0.3 <= share < 0.6],
        [row for row, share in enumerate(shares) if share >= 0.6],
    ]


def test_a_split_of_missing_floats_is_that_of_nan(tmp_path: Path) -> None:
    url = write_rows(tmp_path / "rows", [{"id": 0, "day": None, "time": None, "speed": None}])

    found = [
        len(rows_of(url, predicate=in_pseudorandom_split([0.5, 0.5], part, "speed")))
        for part in range(2)
        if (_bucket_share("nan") >= 0.5) == bool(part)
    ]

    assert found == [1]


@pytest.mark.parametrize("on", ["rows", "numpy", "pandas"])
@pytest.mark.parametrize("make", [make_reader, make_batch_reader])
def test_a_field_that_a_transform_adds_undeclared_is_an_error(url: str, make: Any, on: Any) -> None:
    def add(given: Any) -> Any:
        given["extra"] = given["id"]
        return given

    spec = TransformSpec(add, on=on)

    with (
        make(url, num_epochs=1, transform_spec=spec) as reader,
        pytest.raises(LoadingError, match=r"'extra' is not declared. Add it to edit_fields"),
    ):
        next(reader)


@pytest.mark.parametrize("make", [make_reader, make_batch_reader])
def test_fields_that_a_spec_leaves_out_may_be_returned(url: str, make: Any) -> None:
    for options in ({"removed_fields": ["speed"]}, {"selected_fields": ["day", "id", "time"]}):
        spec = TransformSpec(lambda given: given, on="rows", **options)

        with make(url, num_epochs=1, transform_spec=spec) as reader:
            assert "speed" not in next(reader)._fields


def test_arrays_without_a_declared_unit_are_read_in_nanoseconds(tmp_path: Path) -> None:
    schema = as_schema(
        Unischema("Arrays", [UnischemaField("days", np.datetime64, (None,), NdarrayCodec(), False)])
    )
    cells = []
    for times in (np.array(["2020-01-01"], "M8[D]"), np.array(["2020-01-01T01"], "M8[us]")):
        cell = io.BytesIO()
        np.save(cell, times)
        cells.append(cell.getvalue())
    pq.write_table(pa.table({"days": pa.array(cells, pa.binary())}), tmp_path / "a.parquet")

    found: list[npt.NDArray[Any]] = [
        sample["days"] for sample in ParquetDataset(tmp_path, schema=schema)
    ]

    assert [times.dtype.str for times in found] == ["<M8[ns]", "<M8[ns]"]
    assert [str(times[0])[:13] for times in found] == ["2020-01-01T00", "2020-01-01T01"]


@pytest.mark.parametrize(
    "time",
    [
        np.datetime64("586566-01-01", "s"),
        np.datetime64(2**64 // 10**6 + 10, "s"),
        np.timedelta64(2**64 // 10**6 + 10, "s"),
        np.timedelta64(213_503_983, "D"),
    ],
)
def test_a_time_beyond_64_bits_of_microseconds_is_unchanged(time: Any) -> None:
    assert plain_time(time) is time
