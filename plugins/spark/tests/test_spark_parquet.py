"""What Spark writes we read equal, and what we write Spark SQL reads equal."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession
from writing import append_all

from data_stack.formats.parquet import (
    Field,
    ListCodec,
    NestedCodec,
    ParquetDataset,
    ScalarCodec,
    Schema,
)
from data_stack.formats.parquet.writer import ParquetWriter

_UTC = dt.timezone.utc

#: A column of each scalar type of Spark, with the values of two rows.
_COLUMNS: list[tuple[str, Any, Any]] = [
    ("a_bool boolean", True, False),
    ("a_byte tinyint", -128, 127),
    ("a_short smallint", -(2**15), 2**15 - 1),
    ("an_int int", -(2**31), 2**31 - 1),
    ("a_long bigint", -(2**63), 2**63 - 1),
    ("a_float float", 1.5, float("inf")),
    ("a_double double", 0.1, -0.0),
    ("a_decimal decimal(10,3)", Decimal("1234567.891"), Decimal("-0.001")),
    ("a_large_decimal decimal(38,18)", Decimal("12345678901234567890.5"), Decimal("-0.5")),
    ("a_string string", "ü", ""),
    ("a_binary binary", b"\0\xff", b""),
    ("a_date date", dt.date(1969, 12, 31), dt.date(2024, 2, 29)),
    (
        "a_timestamp timestamp",
        dt.datetime(2024, 5, 6, 7, 8, 9, 123456, _UTC),
        dt.datetime(1900, 1, 1, 0, 0, 0, 1, _UTC),
    ),
    (
        "a_clock timestamp_ntz",
        dt.datetime(1999, 1, 2, 3, 4, 5, 6),
        dt.datetime(2100, 1, 2),
    ),
]
_SCHEMA = ", ".join(column for column, _, _ in _COLUMNS)
_ROWS: list[tuple[Any, ...]] = [
    tuple(value for _, value, _ in _COLUMNS),
    tuple(value for _, _, value in _COLUMNS),
    tuple(None for _ in _COLUMNS),
]


def as_read(row: tuple[Any, ...]) -> list[Any]:
    """A row of Spark's as our samples have it."""
    times: dict[type, Callable[[Any], Any]] = {
        dt.datetime: lambda time: np.datetime64(time.replace(tzinfo=None), "us"),
        dt.date: lambda day: np.datetime64(day, "D"),
    }
    return [times[type(value)](value) if type(value) in times else value for value in row]


@pytest.mark.parametrize(
    "timestamps", ["INT96", pytest.param("TIMESTAMP_MICROS", marks=pytest.mark.full)]
)
def test_every_scalar_that_spark_writes_is_read_equal(
    spark: SparkSession, tmp_path: Path, timestamps: str
) -> None:
    spark.conf.set("spark.sql.parquet.outputTimestampType", timestamps)
    try:
        frame = spark.createDataFrame(_ROWS, _SCHEMA, verifySchema=False).coalesce(1)
        frame.write.option("compression", "gzip").parquet(str(tmp_path / "t"))
    finally:
        spark.conf.unset("spark.sql.parquet.outputTimestampType")

    dataset = ParquetDataset(tmp_path / "t")

    assert len(dataset) == len(_ROWS)
    for sample, row in zip(dataset, _ROWS, strict=True):
        assert list(sample.values()) == as_read(row)
    assert dataset.schema["a_decimal"].dtype is Decimal


@pytest.mark.parametrize(
    "is_legacy",
    [False, pytest.param(True, marks=pytest.mark.full)],
    ids=["standard", "legacy lists"],
)
def test_lists_structs_and_maps_of_spark_are_read_equal(
    spark: SparkSession, tmp_path: Path, is_legacy: bool
) -> None:
    columns = (
        "a array<float>, b array<array<int>>, c struct<x:int,y:array<string>>, "
        "d map<string,bigint>, e array<struct<u:double>>"
    )
    rows = [
        ([1.0, 2.5], [[1], [], [2, 3]], (7, ["p", "q"]), {"k": 1}, [(0.5,)]),
        ([], None, (None, None), {}, []),
        ([1.0, None], [None], None, None, None),
    ]
    spark.conf.set("spark.sql.parquet.writeLegacyFormat", str(is_legacy).lower())
    try:
        spark.createDataFrame(rows, columns).coalesce(1).write.parquet(str(tmp_path / "t"))
    finally:
        spark.conf.unset("spark.sql.parquet.writeLegacyFormat")

    samples = list(ParquetDataset(tmp_path / "t"))

    assert [list(sample["a"]) for sample in samples] == [[1.0, 2.5], [], [1.0, None]]
    assert [sample["b"] for sample in samples] == [[[1], [], [2, 3]], None, [None]]
    assert [sample["c"] for sample in samples] == [
        {"x": 7, "y": ["p", "q"]},
        {"x": None, "y": None},
        None,
    ]
    assert [sample["d"] and [tuple(pair) for pair in sample["d"]] for sample in samples] == [
        [("k", 1)],
        [],
        None,
    ]
    assert [sample["e"] for sample in samples] == [[{"u": 0.5}], [], None]


def test_spark_sql_reads_what_we_write(spark: SparkSession, tmp_path: Path) -> None:
    nested = NestedCodec({"struct": {"x": "int", "ys": {"list": "string"}}})
    first_time = np.datetime64("2024-01-01T00:00:00.000001")
    first_clock = np.datetime64("1999-12-31T23:59:59")
    columns: list[tuple[Field, Callable[[int], Any]]] = [
        (Field("flag", bool), lambda i: i % 2 == 0),
        (Field("byte", np.int8), lambda i: np.int8(i - 5)),
        (Field("long", np.int64, nullable=True), lambda i: None if i % 4 == 0 else 2**60 + i),
        (Field("double", np.float64), lambda i: i / 3),
        (Field("text", str, nullable=True), lambda i: None if i == 3 else f"t{i}"),
        (Field("data", bytes), lambda i: bytes([i])),
        (Field("day", "datetime64[D]"), lambda i: np.datetime64("2024-02-25") + i),
        (
            Field("time", "datetime64[us]", (), ScalarCodec("timestamp")),
            lambda i: first_time + np.timedelta64(i, "h"),
        ),
        (
            Field("clock", "datetime64[us]", (), ScalarCodec("timestamp_ntz")),
            lambda i: first_clock + np.timedelta64(i, "s"),
        ),
        (
            Field("price", Decimal, (), ScalarCodec("decimal(10,3)"), True),
            lambda i: None if i == 2 else Decimal(i) / 8,
        ),
        (Field("vector", np.float32, (3,)), lambda i: np.arange(i, i + 3, dtype=np.float32)),
        (
            Field("ragged", np.int32, (None,), ListCodec()),
            lambda i: np.arange(i % 3, dtype=np.int32),
        ),
        (
            Field("nested", object, (), nested, True),
            lambda i: None if i == 1 else {"x": i, "ys": ["a", None]},
        ),
        (Field("part", str, nullable=True), lambda i: [None, "a=b/c", "ü d"][i % 3]),
    ]
    fields = [field for field, _ in columns]
    rows = [{field.name: value(i) for field, value in columns} for i in range(10)]
    append_all(ParquetWriter(tmp_path / "t", Schema("all", fields), partition_by=["part"]), rows)

    read_rows = spark.read.parquet(str(tmp_path / "t")).collect()
    read_rows.sort(key=lambda row: row["byte"])

    for read_row, expected in zip(read_rows, rows, strict=True):
        plain = read_row.asDict(recursive=True)
        for name in ("flag", "byte", "long", "double", "text", "nested", "price", "part"):
            assert plain[name] == expected[name], name
        assert bytes(plain["data"]) == expected["data"]
        assert np.datetime64(plain["day"]) == expected["day"]
        time_in_utc = plain["time"].astimezone(_UTC).replace(tzinfo=None)
        assert np.datetime64(time_in_utc) == expected["time"]
        assert np.datetime64(plain["clock"]) == expected["clock"]
        assert plain["vector"] == expected["vector"].tolist()
        assert plain["ragged"] == expected["ragged"].tolist()
