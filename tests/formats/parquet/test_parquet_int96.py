"""Times of INT96, which Impala, Hive and older versions of Spark write, are exact in all years."""

from __future__ import annotations

import datetime
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import data_stack
from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.parquet import ParquetDataset, col

_FAR = [
    datetime.datetime(9999, 12, 31, 23, 59, 59, 999999),
    None,
    datetime.datetime(1, 1, 1),
    datetime.datetime(2020, 1, 1, 12),
]
_FAR_TEXTS = ["9999-12-31T23:59:59.999999", None, "0001-01-01", "2020-01-01T12"]
#: The last times that nanoseconds hold, and their neighbors by a microsecond.
_EDGES = ["1677-09-21T00:12:43.145225", "2262-04-11T23:47:16.854775"]
_BEYOND = ["1677-09-21T00:12:43.145224", "2262-04-11T23:47:16.854776"]


def write_int96(path: Path, column: pa.Array, **options: Any) -> Path:
    pq.write_table(
        pa.table({"t": column, "x": range(len(column))}),
        path,
        use_deprecated_int96_timestamps=True,
        **options,
    )
    return path


def write_edges(path: Path, texts: list[str]) -> Path:
    """Write times as INT96, byte by byte: old versions of pyarrow write those at the edges wrong."""
    placeholders = np.array(["2000-01-01T00:00:01", "2000-01-02T00:00:02"], "M8[us]")
    options = {"use_dictionary": False, "compression": "none", "write_statistics": False}
    write_int96(path, pa.array(placeholders), store_schema=False, **options)
    content = path.read_bytes()
    for placeholder, text in zip(placeholders.astype(str), texts, strict=True):
        assert content.count(int96_of(placeholder)) == 1
        content = content.replace(int96_of(placeholder), int96_of(text))
    path.write_bytes(content)
    return path


def int96_of(text: str) -> bytes:
    """Return the nanoseconds of a day, and the Julian day."""
    time = datetime.datetime.fromisoformat(text)
    since_midnight = time - datetime.datetime.combine(time, datetime.time())
    nanoseconds = since_midnight // datetime.timedelta(microseconds=1) * 1000
    julian_day = (time.date() - datetime.date(1970, 1, 1)).days + 2_440_588
    return struct.pack("<qi", nanoseconds, julian_day)


def as_times(texts: list[str | None]) -> list[np.datetime64 | None]:
    return [None if text is None else np.datetime64(text) for text in texts]


@pytest.mark.parametrize("has_note", [True, False], ids=["pyarrow", "unknown writer"])
def test_far_years_are_read_as_they_were_written(tmp_path: Path, has_note: bool) -> None:
    file = write_int96(
        tmp_path / "a.parquet", pa.array(_FAR, pa.timestamp("us")), store_schema=has_note
    )

    dataset = data_stack.load(file)

    assert [sample["t"] for sample in dataset] == as_times(_FAR_TEXTS)
    assert dataset.read_column("t").tolist() == as_times(_FAR_TEXTS)
    assert dataset[0]["t"].dtype == "M8[us]"


@pytest.mark.parametrize("has_note", [True, False], ids=["pyarrow", "unknown writer"])
def test_nanoseconds_are_read_as_they_were_written(tmp_path: Path, has_note: bool) -> None:
    times = np.array(["2020-01-01T00:00:00.123456789", "NaT", "1677-09-22"], "M8[ns]")
    file = write_int96(tmp_path / "a.parquet", pa.array(times), store_schema=has_note)

    found = data_stack.load(file).read_column("t")

    assert found.tolist() == [times[0], None, times[2]]
    assert found[0].dtype == "M8[ns]"


def test_the_edges_of_nanoseconds_are_exact(tmp_path: Path) -> None:
    for texts, unit in ((_EDGES, "ns"), (_BEYOND, "us")):
        file = write_edges(tmp_path / "a.parquet", texts)

        found = ParquetDataset(file).read_column("t")

        # as texts: numpy compares times of two units after a conversion that may wrap around
        assert [str(time)[:26] for time in found] == texts
        assert {time.dtype.name for time in found} == {f"datetime64[{unit}]"}


def test_what_spark_wrote_has_microseconds(tmp_path: Path) -> None:
    table = pa.table({"t": pa.array(_FAR, pa.timestamp("us"))})
    pq.write_table(
        table.replace_schema_metadata({"org.apache.spark.version": "3.5.0"}),
        tmp_path / "a.parquet",
        use_deprecated_int96_timestamps=True,
        store_schema=False,
    )

    found = ParquetDataset(tmp_path).read_column("t")
    assert found.tolist() == as_times(_FAR_TEXTS)
    assert found[0].dtype == "M8[us]"


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_the_wanted_unit_reads_far_years(tmp_path: Path, unit: str) -> None:
    times = [datetime.datetime(9999, 12, 31), datetime.datetime(1, 1, 1)]
    write_int96(tmp_path / "a.parquet", pa.array(times, pa.timestamp("us")))

    found = ParquetDataset(tmp_path, timestamp_unit=unit).read_column("t")

    assert found.tolist() == np.array(times, f"M8[{unit}]").tolist() == list(found)
    assert {time.dtype.name for time in found} == {f"datetime64[{unit}]"}


def test_a_unit_without_these_years_is_an_error_that_helps(tmp_path: Path) -> None:
    write_int96(tmp_path / "a.parquet", pa.array(_FAR, pa.timestamp("us")))

    dataset = ParquetDataset(tmp_path, timestamp_unit="ns")

    expected = r"row 0, field 't': 9999-12-31T23.* does not fit .*timestamp_unit='us' reads it"
    with pytest.raises(DatasetFileCorruptError, match=expected):
        dataset.read_batch([0, 1])


def test_years_and_nanoseconds_that_no_unit_holds_are_an_error(tmp_path: Path) -> None:
    far = write_int96(tmp_path / "far", pa.array(_FAR, pa.timestamp("us")), store_schema=False)
    fine_times = pa.array(np.array(["2020-01-01T00:00:00.123456789"], "M8[ns]"))
    fine = write_int96(tmp_path / "fine", fine_times, store_schema=False)

    with pytest.raises(DatasetFileCorruptError, match=r"far, row 0, field 't': 9999.*='us' reads"):
        ParquetDataset([fine, far]).read_column("t")
    with pytest.raises(
        DatasetFileCorruptError, match=r"fine, row 0, .*56789 does not.*='ns' reads"
    ):
        ParquetDataset([far, fine]).read_column("t")


@pytest.mark.parametrize(
    ("filters", "rows"),
    [
        (col("t") > datetime.datetime(9000, 1, 1), [0]),
        (col("t") < datetime.datetime(1000, 1, 1), [2]),
        ([("t", ">=", np.datetime64("2020-01-01T12"))], [0, 3]),
        (col("t").is_null(), [1]),
    ],
    ids=["above", "below", "from", "null"],
)
def test_filters_compare_far_years(tmp_path: Path, filters: Any, rows: list[int]) -> None:
    write_int96(tmp_path / "a.parquet", pa.array(_FAR, pa.timestamp("us")), row_group_size=2)

    dataset = ParquetDataset(tmp_path, filters=filters)

    assert dataset.read_column("x").tolist() == rows
    assert [sample["t"] for sample in dataset] == [as_times(_FAR_TEXTS)[row] for row in rows]


_READS_MISSING_LISTS = int(pa.__version__.partition(".")[0]) >= 26

_ONE_SIZE = pa.list_(pa.timestamp("us"), 1)

#: A type, and values; pyarrow before 26 does not read a missing list of one size.
_NESTED = [
    (pa.list_(pa.timestamp("us")), [[_FAR[0], _FAR[3]], None, [], [_FAR[2]]]),
    (_ONE_SIZE, [[_FAR[0]], None if _READS_MISSING_LISTS else [_FAR[1]], [_FAR[3]], [_FAR[2]]]),
    (
        pa.struct([("n", pa.int32()), ("at", pa.timestamp("us"))]),
        [{"n": 1, "at": _FAR[0]}, None, {"n": None, "at": None}, {"n": 4, "at": _FAR[2]}],
    ),
    (pa.map_(pa.string(), pa.timestamp("us")), [[("a", _FAR[0])], None, [], [("b", None)]]),
    (pa.list_(pa.list_(pa.timestamp("us"))), [[[_FAR[0]], []], None, [], [[None, _FAR[2]]]]),
]


@pytest.mark.parametrize("has_note", [True, False], ids=["pyarrow", "unknown writer"])
@pytest.mark.parametrize(("type_", "values"), _NESTED, ids=lambda given: str(given)[:30])
def test_far_years_inside_of_other_values_are_exact(
    tmp_path: Path, type_: pa.DataType, values: list[Any], has_note: bool
) -> None:
    column = pa.array(values, type_)
    write_int96(tmp_path / "a.parquet", column, store_schema=has_note)
    pq.write_table(pa.table({"t": column}), tmp_path / "b.parquet", store_schema=has_note)

    found, expected = (ParquetDataset(tmp_path / name) for name in ("a.parquet", "b.parquet"))

    for number in range(4):
        ours, plain = found[number]["t"], expected[number]["t"]
        if isinstance(plain, np.ndarray):
            assert ours.dtype == plain.dtype
            assert ours.tolist() == plain.tolist()
        else:
            assert ours == plain


def test_far_years_of_the_rows_of_a_filter_are_exact(tmp_path: Path) -> None:
    times = [_FAR[number % 4] for number in range(40)]
    write_int96(tmp_path / "a.parquet", pa.array(times, pa.timestamp("us")), row_group_size=16)

    dataset = ParquetDataset(tmp_path, filters=[("x", "in", [0, 18])])

    assert dataset.read_column("t").tolist() == as_times([_FAR_TEXTS[0], _FAR_TEXTS[2]])


_TIMES_OF_FILTERS = [
    "2020-01-02",
    "2020-01-02T00",
    "2020-01-02T00:00",
    "2020-01-02T00:00:00",
    "2020-01-02T00:00:00.000000000",
]


@pytest.mark.parametrize(
    "type_", ["date32", "timestamp[ms]", "timestamp[us]", "timestamp[ns]", "int96"]
)
@pytest.mark.parametrize("text", _TIMES_OF_FILTERS)
def test_times_of_numpy_are_compared_in_filters_whatever_their_unit(
    tmp_path: Path, type_: str, text: str
) -> None:
    days = np.array(["2020-01-01", "2020-01-02", "2020-01-03"], "M8[D]")
    arrow_type = pa.timestamp("us") if type_ == "int96" else pa.type_for_alias(type_)
    table = pa.table({"t": pa.array(days).cast(arrow_type), "x": range(3)})
    pq.write_table(table, tmp_path / "a", use_deprecated_int96_timestamps=type_ == "int96")

    time = np.datetime64(text)

    found = {
        operator: ParquetDataset(tmp_path, filters=[("t", operator, value)])
        .read_column("x")
        .tolist()
        for operator, value in ((">=", time), ("==", time), ("in", [time]), ("not in", [time]))
    }
    assert found == {">=": [1, 2], "==": [1], "in": [1], "not in": [0, 2]}


def test_a_filter_by_a_time_without_usable_unit_is_refused(tmp_path: Path) -> None:
    write_int96(tmp_path / "a.parquet", pa.array(_FAR, pa.timestamp("us")))

    for time in (np.datetime64("NaT"), np.datetime64(1, "as")):
        with pytest.raises(ConfigError, match=r"unit|does not fit"):
            ParquetDataset(tmp_path, filters=[("t", ">", time)])


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (pa.list_(pa.timestamp("ns")), [1_001]),
        (pa.list_(pa.timestamp("ns"), 1), [1_001]),
        (pa.list_(pa.struct([("at", pa.timestamp("ns"))])), [{"at": 1_001}]),
    ],
    ids=str,
)
def test_nanoseconds_inside_of_lists_of_an_unknown_writer_are_exact(
    tmp_path: Path, type_: pa.DataType, value: list[Any]
) -> None:
    column = pa.array([value], type_)
    file = write_int96(tmp_path / "a.parquet", column, store_schema=False)

    element = ParquetDataset(file)[0]["t"][0]

    time = element["at"] if isinstance(element, dict) else element
    assert time == np.datetime64(1_001, "ns")
