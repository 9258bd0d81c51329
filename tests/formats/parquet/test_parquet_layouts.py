"""Which files, folders and columns a Parquet dataset may have: odd names, partitions, many files, few rows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_stack_petastorm.predicates import in_lambda, in_set

from data_stack.exception import (
    ConfigError,
    DatasetFileCorruptError,
    LeftOutWarning,
    ResourceNotFoundError,
    StorageError,
)
from data_stack.formats.parquet import Field, ParquetDataset, Schema
from data_stack.formats.parquet.selecting import col


def write(path: Path, table: pa.Table, **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)


ONE_ROW = pa.table({"id": [1]})


def test_a_dotted_column_name_does_not_mean_a_nested_field(tmp_path: Path) -> None:
    table = pa.table(
        {"a.b": [1, 2], "a": [{"b": 5}, {"b": 6}], "a.c": ["x", "y"], "list": [[1], [2]]}
    )
    write(tmp_path / "a.parquet", table)

    assert ParquetDataset(tmp_path, columns=["a.b", "a.c"]).read_batch([1, 0])["a.b"].tolist() == [
        2,
        1,
    ]
    assert [sample["a"] for sample in ParquetDataset(tmp_path, columns=["a"])] == [
        {"b": 5},
        {"b": 6},
    ]
    assert [sample["a.c"] for sample in ParquetDataset(tmp_path, filters=col("a.b") > 1)] == ["y"]


@pytest.mark.parametrize("name", ["quo\"te's", "line\nbreak", "ä€😀", "x" * 2000, "a/b", ".*"])
def test_a_column_may_be_called_anything(tmp_path: Path, name: str) -> None:
    write(tmp_path / "a.parquet", pa.table({name: [1, 2], "other": [3, 4]}))

    dataset = ParquetDataset(tmp_path)

    assert dataset.read_column(name).tolist() == [1, 2]
    assert len(ParquetDataset(tmp_path, filters=in_set([2], name))) == 1


def test_values_in_the_names_of_folders_are_decoded(tmp_path: Path) -> None:
    for folder in ("k=a%2Fb%20c", "k=", "k=%C3%A4", "k=1=2", "k=_x"):
        write(tmp_path / folder / "a.parquet", ONE_ROW)

    assert sorted(sample["k"] for sample in ParquetDataset(tmp_path)) == [
        "",
        "1=2",
        "_x",
        "a/b c",
        "ä",
    ]


def test_the_folder_name_wins_over_a_column_in_the_file(tmp_path: Path) -> None:
    write(tmp_path / "k=7" / "a.parquet", pa.table({"id": [1], "k": [9]}))

    with pytest.warns(LeftOutWarning, match="column k: 9 instead of 7"):
        rows = ParquetDataset(tmp_path)
    with pytest.warns(LeftOutWarning, match="column k: 9 instead of 7"):
        selected = ParquetDataset(tmp_path, filters=col("k") == 9)

    assert rows[0] == {"id": 1, "k": 7}
    assert len(selected) == 0


def test_a_file_outside_of_the_partitions_has_null(tmp_path: Path) -> None:
    write(tmp_path / "day=3" / "a.parquet", ONE_ROW)
    write(tmp_path / "z.parquet", ONE_ROW)

    with pytest.warns(UserWarning, match=r"null in their rows: 'day' \(.*z\.parquet\)"):
        dataset = ParquetDataset(tmp_path)

    assert [sample["day"] for sample in dataset] == [3, None]
    assert dataset.read_column("day").tolist() == [3, None]
    with pytest.warns(UserWarning, match="'day'"):
        assert len(ParquetDataset(tmp_path, filters=col("day").is_null())) == 1


def test_files_without_a_nullable_column_are_named(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", pa.table({"id": [1], "x": [2]}))
    for name in ("b.parquet", "c.parquet"):
        write(tmp_path / name, ONE_ROW)

    with pytest.warns(UserWarning, match=r"'x' \(.*b\.parquet and 1 more files\)") as warned:
        dataset = ParquetDataset(tmp_path)

    assert dataset.read_column("x").tolist() == [2, None, None]
    assert len(warned) == 1


def test_a_lacking_column_that_is_expected_is_not_named(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", pa.table({"id": [1], "x": [2]}))
    write(tmp_path / "b.parquet", ONE_ROW)
    fields = [Field("id", "int64", nullable=True), Field("x", "int64", nullable=True)]

    declared = ParquetDataset(tmp_path, schema=Schema("s", fields))
    without_it = ParquetDataset(tmp_path, ["id"])

    assert declared.read_column("x").tolist() == [2, None]
    assert without_it.read_column("id").tolist() == [1, 1]


@pytest.mark.parametrize(
    ("dtype", "values"),
    [
        ("int16", {"-3": -3}),
        ("bool", {"True": True}),
        ("M8[D]", {"1969-01-01": np.datetime64("1969-01-01")}),
    ],
)
def test_partitions_have_the_dtype_of_the_schema(
    tmp_path: Path, dtype: str, values: dict[str, Any]
) -> None:
    for text, value in values.items():
        write(tmp_path / f"part={text}" / "a.parquet", ONE_ROW)
        schema = Schema("typed", [Field("id", "int64", nullable=True), Field("part", dtype)])

        assert list(ParquetDataset(tmp_path, schema=schema).read_column("part")) == [value]
        assert len(ParquetDataset(tmp_path, schema=schema, filters=in_set([value], "part"))) == 1


@pytest.mark.parametrize(
    ("dtype", "text"),
    [
        ("int8", "300"),
        ("int64", "x"),
        ("int64", "0x10"),
        ("uint8", "0XFF"),
        ("float64", "1e400"),
        ("datetime64[D]", "2024-13-01"),
        ("datetime64[D]", ""),
        ("bool", "2"),
    ],
)
def test_a_folder_whose_name_is_no_value_is_named(tmp_path: Path, dtype: str, text: str) -> None:
    write(tmp_path / f"part={text}" / "a.parquet", ONE_ROW)

    with pytest.raises(DatasetFileCorruptError, match=r"a\.parquet.*part="):
        ParquetDataset(
            tmp_path,
            schema=Schema("typed", [Field("id", "int64", nullable=True), Field("part", dtype)]),
        )


def test_files_in_folders_that_a_filter_excludes_are_not_opened(tmp_path: Path) -> None:
    write(tmp_path / "day=1" / "a.parquet", ONE_ROW)
    for day in (2, 3):
        write(tmp_path / f"day={day}" / "a.parquet", pa.table({"id": [day]}))
    (tmp_path / "day=2" / "a.parquet").write_bytes(b"damaged")

    dataset = ParquetDataset(tmp_path, filters=(col("day") != 2) & (col("id") > 1))

    assert list(dataset) == [{"id": 3, "day": 3}]
    nothing = ParquetDataset(tmp_path, filters=col("day") == 7)
    assert len(nothing) == 0
    assert nothing.read_batch([])["id"].dtype == np.int64
    with pytest.raises(DatasetFileCorruptError, match="day=2"):
        ParquetDataset(tmp_path, filters=col("day") > 1)


def test_times_of_nanoseconds_are_found_though_pyarrow_rounds_their_statistics(
    tmp_path: Path,
) -> None:
    times = pa.array([1, 1999], pa.int64()).cast(pa.time64("ns"))
    pq.write_table(
        pa.table({"time": times, "id": [0, 1]}), tmp_path / "a.parquet", row_group_size=1
    )

    assert [
        sample["id"]
        for time in times
        for sample in ParquetDataset(tmp_path, filters=col("time") == time)
    ] == [0, 1]


@pytest.mark.parametrize("choice", [3, "1", [1.5], [20]])
def test_row_groups_that_there_are_not_are_errors(tmp_path: Path, choice: Any) -> None:
    write(tmp_path / "a.parquet", pa.table({"id": np.arange(20)}), row_group_size=1)

    with pytest.raises(ConfigError, match=r"row.group"):
        ParquetDataset(tmp_path, row_groups=choice)
    assert [
        sample["id"] for sample in ParquetDataset(tmp_path, row_groups=[np.int64(3), 1, -1, 3])
    ] == [1, 3, 19]
    assert len(ParquetDataset(tmp_path, row_groups=[])) == 0


def test_hdfs_without_hadoop_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HADOOP_HOME", "CLASSPATH"):
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(StorageError, match="HADOOP_HOME"):
        ParquetDataset("hdfs://nowhere:8020/frames")


@pytest.mark.parametrize("kind", ["pipe", "zeros", "dangling", "loop"])
def test_what_is_no_file_is_not_waited_for(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "a.parquet"
    if kind == "pipe":
        os.mkfifo(file)
    else:
        file.symlink_to({"zeros": "/dev/zero", "dangling": "nowhere", "loop": file.name}[kind])

    with pytest.raises(
        StorageError if kind == "loop" else ResourceNotFoundError, match=r"a\.parquet"
    ):
        ParquetDataset(tmp_path)


@pytest.mark.parametrize("text", ["-0", "1२", "007", "1" * 19])
def test_a_folder_that_int64_would_not_give_back_is_text(tmp_path: Path, text: str) -> None:
    write(tmp_path / "n=5" / "a.parquet", ONE_ROW)
    write(tmp_path / f"n={text}" / "a.parquet", ONE_ROW)

    dataset = ParquetDataset(tmp_path)

    assert sorted(dataset.read_column("n").tolist()) == sorted(["5", text])


def test_a_predicate_that_raises_for_a_partition_names_the_file(tmp_path: Path) -> None:
    for text in ("1", "0"):
        write(tmp_path / f"n={text}" / "a.parquet", ONE_ROW)

    with pytest.raises(ConfigError, match=r"partition of .*n=0/a\.parquet: .*ZeroDivisionError"):
        len(ParquetDataset(tmp_path, filters=in_lambda(["n"], lambda n: 1 / n > 0)))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (10**30, "too large"),
        (np.datetime64(10**12, "D"), "too large"),
        (np.datetime64("NaT"), "no unit"),
    ],
)
def test_a_value_that_arrow_cannot_hold_is_no_filter(
    tmp_path: Path, value: Any, message: str
) -> None:
    write(tmp_path / "a.parquet", ONE_ROW)

    with pytest.raises(ConfigError, match=message):
        ParquetDataset(tmp_path, filters=[("id", "<", value)])


@pytest.mark.parametrize("time", [np.datetime64("NaT", "D"), np.datetime64("NaT", "us")], ids=repr)
def test_nat_in_a_filter_selects_nothing(tmp_path: Path, time: Any) -> None:
    days = pa.array(np.array(["2020-01-01"], "M8[D]"))
    write(tmp_path / "a.parquet", pa.table({"day": days}))

    dataset = ParquetDataset(tmp_path, filters=[("day", ">", time)])

    assert len(dataset) == 0


def test_an_empty_first_file_does_not_spoil_the_size_estimate(tmp_path: Path) -> None:
    table = pa.table({"x": range(1000)})
    pq.write_table(table.slice(0, 0), tmp_path / "part-0.parquet")
    empty = ParquetDataset(tmp_path)._access.groups.estimate_bytes(["x"])
    for number in (1, 2):
        pq.write_table(table, tmp_path / f"part-{number}.parquet", use_dictionary=False)

    n_bytes = ParquetDataset(tmp_path)._access.groups.estimate_bytes(["x"])

    assert empty == 0
    assert 2 * 8 * 1000 <= n_bytes < 2 * 9 * 1000
