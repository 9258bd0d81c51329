"""Nulls of Parquet as NaN, or as zeros beside a mask."""

from __future__ import annotations

import datetime
import pickle
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import data_stack
from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats.parquet import Field, ParquetDataset, ParquetWriter, Schema, col
from data_stack.loader import Loader

INTEGERS = [
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.uint8(),
    pa.uint16(),
    pa.uint32(),
    pa.uint64(),
]
FLOATS = [pa.float16(), pa.float32(), pa.float64()]
TIMESTAMPS = [pa.timestamp("ms"), pa.timestamp("us", "UTC"), pa.timestamp("ns")]
TIMES = [pa.date32(), pa.time32("ms"), pa.time64("ns"), pa.duration("us"), *TIMESTAMPS]


def cells(type_: pa.DataType, numbers: list[int | None]) -> pa.Array:
    """Cells of an integer, float or time type."""
    width = pa.int32() if type_.bit_width == 32 else pa.int64()
    return (
        pa.array(numbers, width).view(type_)
        if type_ in TIMES
        else pa.array(numbers, pa.float64()).cast(type_)
    )


def write(folder: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), folder / "a.parquet", row_group_size=2)
    return folder


def check_samples_and_batches_agree(dataset: ParquetDataset) -> None:
    """All ways of reading, in this process or by a pickle, give columns of one dtype, whatever rows are read."""
    whole = dataset.read_batch(range(len(dataset)))
    for reader in (dataset, pickle.loads(pickle.dumps(dataset))):
        for name, column in whole.items():
            assert [sample[name].dtype for sample in reader] == [column.dtype] * len(column)
            np.testing.assert_array_equal([sample[name] for sample in reader], column)
            np.testing.assert_array_equal([reader[row][name] for row in range(len(reader))], column)
            for rows in ([], [0], [len(column) - 1, 0]):
                part = reader.read_batch(rows)[name]
                assert part.dtype == column.dtype
                np.testing.assert_array_equal(part, column[rows])


@pytest.mark.parametrize("type_", [*INTEGERS, *FLOATS, *TIMES, pa.bool_()], ids=str)
@pytest.mark.parametrize("numbers", [[1, None, 0, 1, None], [None] * 4], ids=["some", "all"])
def test_nulls_are_nan_or_zeros_beside_a_mask(
    tmp_path: Path, type_: pa.DataType, numbers: list[int | None]
) -> None:
    folder, is_null = (
        write(tmp_path, x=cells(type_, numbers)),
        [number is None for number in numbers],
    )
    dtype = ParquetDataset(folder).schema["x"].dtype

    nan, masked = (ParquetDataset(folder, nulls=nulls) for nulls in ("nan", "mask"))

    (column,) = nan.read_batch(range(len(numbers))).values()
    assert column.dtype == (np.float64 if type_ in (*INTEGERS, pa.bool_()) else dtype)
    assert (np.isnat(column) if column.dtype.kind in "mM" else np.isnan(column)).tolist() == is_null
    filled = np.array([number or 0 for number in numbers], np.int64)
    there = ~np.array(is_null)
    assert (column[there].astype(np.int64) == filled[there]).all()
    batch = masked.read_batch(range(len(numbers)))
    assert list(batch) == list(masked[0]) == list(masked.schema.fields) == ["x", "x_is_null"]
    assert batch["x"].dtype == dtype
    assert batch["x_is_null"].dtype == np.bool_
    assert (batch["x"].astype(np.int64) == filled).all()
    assert batch["x_is_null"].tolist() == is_null
    for dataset in (nan, masked):
        check_samples_and_batches_agree(dataset)


def test_nulls_in_one_file_decide_the_type_in_all_files(
    tmp_path: Path,
) -> None:
    pq.write_table(pa.table({"label": [1, 2], "age": [3, 4]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"label": [3, 4], "age": pa.array([None, 6])}), tmp_path / "b.parquet")

    nan, masked = (ParquetDataset(tmp_path, nulls=nulls) for nulls in ("nan", "mask"))

    assert {name: column.dtype.name for name, column in nan.read_batch([0]).items()} == {
        "label": "int64",
        "age": "float64",
    }
    assert {name: column.tolist() for name, column in masked.read_batch([1, 2]).items()} == {
        "label": [2, 3],
        "age": [4, 0],
        "age_is_null": [False, True],
    }


def test_cells_that_are_no_numbers_stay_none(
    tmp_path: Path,
) -> None:
    columns = {
        "text": pa.array(["a", None]),
        "bytes": pa.array([b"a", None]),
        "dictionary": pa.array(["a", None]).dictionary_encode(),
        "decimal": pa.array([Decimal("1.5"), None]),
        "struct": pa.array([{"a": 1}, None]),
        "nothing": pa.nulls(2),
        "list": pa.array([[1, None], None]),
        "floats": pa.array([[1.0, None], None]),
    }
    write(tmp_path, **columns)

    for nulls in ("nan", "mask"):
        batch = ParquetDataset(tmp_path, nulls=nulls).read_batch([0, 1])

        assert list(batch) == list(columns)
        assert [column[1] for column in batch.values()] == [None] * len(columns)
        assert batch["list"][0].tolist() == [1, None]
        np.testing.assert_array_equal(batch["floats"][0], [1, np.nan if nulls == "nan" else None])


def test_dictionaries_and_partitions_have_nulls(tmp_path: Path) -> None:
    schema = Schema("s", [Field("part", "int64", nullable=True), Field("n", "int64")])
    with ParquetWriter(tmp_path / "parts", schema, partition_by=["part"]) as writer:
        writer.append_columns({"n": [1, 2], "part": [5, None]})
    dictionary = pa.DictionaryArray.from_arrays(pa.array([0, None, 1]), pa.array([7, 8]))
    pq.write_table(pa.table({"n": dictionary}), tmp_path / "dictionary.parquet")
    cases: list[tuple[Any, str, list[int]]] = [
        (tmp_path / "parts", "part", [5, 0]),
        (tmp_path / "dictionary.parquet", "n", [7, 0, 8]),
    ]

    for source, name, expected in cases:
        nan, masked = (ParquetDataset(source, [name], nulls=nulls) for nulls in ("nan", "mask"))

        assert sorted(masked.read_column(name).tolist()) == sorted(expected)
        assert (masked.read_column(f"{name}_is_null") == (masked.read_column(name) == 0)).all()
        np.testing.assert_array_equal(
            nan.read_column(name), [value or np.nan for value in masked.read_column(name)]
        )
        for dataset in (nan, masked):
            check_samples_and_batches_agree(dataset)


def test_a_column_that_a_file_lacks_has_nulls(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1], "x": [2]}), tmp_path / "some.parquet")
    pq.write_table(pa.table({"n": [3]}), tmp_path / "without.parquet")

    with pytest.warns(UserWarning, match=r"'x' \(.*without\.parquet\)"):
        nan = ParquetDataset(tmp_path, nulls="nan")
    with pytest.warns(UserWarning, match=r"'x' \(.*without\.parquet\)"):
        masked = ParquetDataset(tmp_path, nulls="mask")

    np.testing.assert_array_equal(nan.read_column("x"), [2, np.nan])
    assert masked.read_column("x_is_null").tolist() == [False, True]
    for dataset in (nan, masked):
        check_samples_and_batches_agree(dataset)


def test_filters_see_the_nulls(tmp_path: Path) -> None:
    write(tmp_path, x=pa.array([0, None, 3, None]), y=[1, 2, 3, 4])

    for nulls in ("nan", "mask"):
        assert ParquetDataset(tmp_path, ["y"], col("x").is_null(), nulls=nulls).read_column(
            "y"
        ).tolist() == [2, 4]
        assert ParquetDataset(tmp_path, filters=col("x") < 1, nulls=nulls).read_column(
            "y"
        ).tolist() == [1]
    assert ParquetDataset(tmp_path, filters=col("x").is_null(), nulls="mask")[1] == {
        "x": 0,
        "x_is_null": True,
        "y": 4,
    }


def test_filters_see_the_nulls_of_maps(tmp_path: Path) -> None:
    write(tmp_path, pairs=pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())), y=[1, 2])

    assert ParquetDataset(tmp_path, ["y"], col("pairs").is_null()).read_column("y").tolist() == [2]


def test_masks_follow_their_columns_and_cannot_be_chosen(tmp_path: Path) -> None:
    write(tmp_path, x=pa.array([1, None]), y=pa.array([None, 2.5]))

    assert list(ParquetDataset(tmp_path, ["y"], nulls="mask")[0]) == ["y", "y_is_null"]
    assert ParquetDataset(tmp_path, nulls="mask").read_column("x_is_null").tolist() == [False, True]
    with pytest.raises(ConfigError, match="'x_is_null' does not exist"):
        ParquetDataset(tmp_path, ["x_is_null"], nulls="mask")


def test_a_column_named_like_a_mask_is_refused_with_advice(tmp_path: Path) -> None:
    write(tmp_path, x=pa.array([1, None]), x_is_null=[False, True], y=pa.array([1, None]))

    with pytest.raises(
        ConfigError,
        match=r"adds a column 'x_is_null' to 'x', but .* leave one of the two out with columns=",
    ):
        ParquetDataset(tmp_path, nulls="mask")
    assert list(ParquetDataset(tmp_path, ["x", "y"], nulls="mask")[0]) == [
        "x",
        "x_is_null",
        "y",
        "y_is_null",
    ]
    assert ParquetDataset(tmp_path, nulls="nan").read_column("x_is_null").tolist() == [False, True]


@pytest.mark.parametrize("type_", [pa.int64(), pa.uint64()])
def test_integers_that_floats_would_round_are_refused_with_advice(
    tmp_path: Path, type_: pa.DataType
) -> None:
    write(tmp_path, x=pa.array([1, 2**53 + 1, None], type_))

    with pytest.raises(
        DatasetFileCorruptError,
        match=r"row 1, field 'x': 9007199254740993 does not fit.* nulls='mask'",
    ):
        ParquetDataset(tmp_path, nulls="nan").read_batch([0])
    assert ParquetDataset(tmp_path, nulls="mask").read_column("x").tolist() == [1, 2**53 + 1, 0]


def test_load_takes_the_option_nulls_as_part_of_the_fingerprint(
    tmp_path: Path,
) -> None:
    write(tmp_path, x=pa.array([1, None]), text=pa.array([["a"], ["b", "c"]]), y=[1, 2])

    loaded = data_stack.load(tmp_path, nulls="nan")

    np.testing.assert_array_equal(loaded.read_column("x"), [1.0, np.nan])
    assert loaded[1]["text"] == ["b", "c"]
    assert data_stack.load(tmp_path, nulls="mask", columns=["y", "x_is_null"])[1] == {
        "y": 2,
        "x_is_null": True,
    }
    assert (
        len(
            {
                data_stack.load(tmp_path, nulls=nulls).fingerprint()
                for nulls in ("none", "nan", "mask")
            }
        )
        == 3
    )


def test_an_unknown_value_of_nulls_is_refused(tmp_path: Path) -> None:
    write(tmp_path, x=pa.array([1, None]))

    with pytest.raises(ConfigError, match="nulls must be 'none', 'nan' or 'mask', got 'zero'"):
        data_stack.load(tmp_path, nulls="zero")


@pytest.mark.parametrize("kind", ["inline", "threads", "processes"])
def test_loaders_make_tensors_of_one_dtype(tmp_path: Path, kind: str) -> None:
    import torch

    write(tmp_path, x=pa.array([1, None, 3, 4]), b=pa.array([True, False, None, True]))
    workers: Any = {"worker_kind": kind, "workers": 0 if kind == "inline" else 2}

    with Loader(ParquetDataset(tmp_path, nulls="nan"), 2, **workers) as nan:
        first, second = nan.torch()
    with Loader(ParquetDataset(tmp_path, nulls="mask"), 2, **workers) as masked:
        batches = list(masked.torch())

    assert {tensor.dtype for batch in (first, second) for tensor in batch.values()} == {
        torch.float64
    }
    assert first["x"].isnan().tolist() == [False, True]
    assert second["b"].isnan().tolist() == [True, False]
    assert [tensor.tolist() for tensor in batches[1].values()] == [
        [3, 4],
        [False, False],
        [False, True],
        [True, False],
    ]
    with (
        Loader(ParquetDataset(tmp_path), 4, **workers) as loader,
        pytest.raises(ConfigError, match=r"'x' .*nulls='mask'"),
    ):
        next(iter(loader.torch()))


def test_timestamps_change_their_unit_and_are_nat(tmp_path: Path) -> None:
    write(tmp_path, at=pa.array([datetime.datetime(2020, 1, 1), None]))

    nan, masked = (
        ParquetDataset(tmp_path, nulls=nulls, timestamp_unit="s").read_batch([0, 1])
        for nulls in ("nan", "mask")
    )

    assert (nan["at"].dtype, masked["at"].dtype) == (np.dtype("M8[s]"),) * 2
    assert np.isnat(nan["at"]).tolist() == masked["at_is_null"].tolist() == [False, True]


@pytest.mark.parametrize("name", ["nulls", "timestamp_unit"])
@pytest.mark.parametrize("value", ["x", 1, ["nan"], np.array(["nan", "s"])], ids=repr)
def test_an_invalid_option_is_refused(tmp_path: Path, name: str, value: Any) -> None:
    folder = write(tmp_path, x=[1, None])
    options: Any = {name: value}

    with pytest.raises(ConfigError, match=f"{name} must be"):
        ParquetDataset(folder, **options)
