"""Values of any kind into Parquet files, and what is no value of its field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from frame_rows import SCHEMA, row
from PIL import Image
from torch_or_stand_in import torch

from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.exception import ConfigError
from data_stack.formats.parquet import (
    Field,
    JpegCodec,
    ParquetDataset,
    ParquetWriter,
    PngCodec,
    Schema,
)
from data_stack.testing.comparing import assert_same


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    with ParquetWriter(tmp_path, SCHEMA) as writer:
        positions = [writer.append(row(number)) for number in range(30)]

    dataset = ParquetDataset(tmp_path)
    assert positions == list(range(30))
    assert dataset.schema == SCHEMA
    for number, found in enumerate(dataset):
        assert_same(found, row(number))


def test_values_of_other_libraries_are_taken(tmp_path: Path) -> None:
    schema = Schema(
        "values",
        [
            Field("n", "int32"),
            Field("x", "float32", (2,)),
            Field("image", "uint8", (None, None, 3), PngCodec()),
            Field("t", str),
        ],
    )
    image = Image.fromarray(np.arange(24, dtype=np.uint8).reshape(2, 4, 3))
    rows = [
        {"n": 1, "x": [1, 2], "image": image, "t": "a"},
        {
            "n": np.array(1),
            "x": torch.ones(2, requires_grad=True).cumsum(0),
            "image": np.asarray(image),
            "t": np.array("a"),
        },
        {
            "n": torch.tensor(1, dtype=torch.int32),
            "x": np.array([1, 2], np.float32),
            "image": np.asarray(image),
            "t": "a",
        },
    ]

    with ParquetWriter(tmp_path, schema) as writer:
        for each in rows:
            writer.append(each)
        numbers, vectors = torch.tensor([1, 1], dtype=torch.int32), torch.tensor([[1.0, 2.0]] * 2)
        writer.append_columns(
            {"n": numbers, "x": vectors, "image": [image] * 2, "t": np.array(["a", "a"])}
        )

    expected = {
        "n": np.int32(1),
        "x": np.array([1, 2], np.float32),
        "image": np.asarray(image),
        "t": "a",
    }
    found = list(ParquetDataset(tmp_path))
    assert len(found) == 5
    for each in found:
        assert_same(each, expected)


def test_values_may_be_changed_after_they_were_appended(tmp_path: Path) -> None:
    schema = Schema(
        "s", [Field("n", "int64"), Field("x", "float32", (4,)), Field("y", "float32", (2, 2))]
    )
    with ParquetWriter(tmp_path / "columns", schema) as writer:
        columns: dict[str, Any] = {
            "n": np.arange(5),
            "x": np.ones((5, 4), np.float32),
            "y": np.ones((5, 2, 2), np.float32),
        }
        writer.append_columns(columns)
        for array in columns.values():
            array[...] = 7
    with ParquetWriter(tmp_path / "rows") as writer:
        ones = np.ones(4, np.float32)
        writer.append({"n": 0, "x": ones})
        writer.append({"n": 1, "x": ones})
        ones[...] = 7

    whole = ParquetDataset(tmp_path / "columns").read_batch(range(5))
    assert whole["n"].tolist() == [0, 1, 2, 3, 4]
    assert (whole["x"] == 1).all()
    assert (whole["y"] == 1).all()
    assert all((each["x"] == 1).all() for each in ParquetDataset(tmp_path / "rows"))


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("id", 2**63, "int64|int too big|out of"),
        ("id", None, "null"),
        ("name", "\ud800", "surrogate"),
        ("more", {1, 2}, ""),
    ],
)
def test_a_misfit_value_is_refused_with_field_and_row(
    tmp_path: Path, field: str, value: Any, why: str
) -> None:
    with ParquetWriter(tmp_path, SCHEMA) as writer:
        for number in range(3):
            writer.append(row(number))

        with pytest.raises(ConfigError, match=f"field '{field}', row 3, .*(?s:{why})"):
            writer.append({**row(3), field: value})
        columns: dict[str, list[Any]] = {
            name: [row(number)[name] for number in range(3, 6)] for name in row(0)
        }
        columns[field] = [columns[field][0], value, columns[field][2]]
        with pytest.raises(ConfigError, match=f"field '{field}', row 4, .*(?s:{why})"):
            writer.append_columns(columns)
        writer.append(row(3))

    for number, found in enumerate(ParquetDataset(tmp_path)):
        assert_same(found, row(number))
    assert number == 3


def test_missing_and_unknown_fields_are_named(tmp_path: Path) -> None:
    schema = Schema("s", [Field("speed", "int64"), Field("note", str, nullable=True)])
    with ParquetWriter(tmp_path, schema) as writer:
        with pytest.raises(ConfigError, match=r"row 0 .* lacks 'speed'"):
            writer.append({"note": "x"})
        with pytest.raises(ConfigError, match=r"'sped'.*did you mean 'speed'"):
            writer.append({"sped": 1})
        with pytest.raises(ConfigError, match=r"row 0 .* is a list"):
            writer.append([1, 2])  # type: ignore[arg-type]
        for unordered in ({1, 2}, frozenset({1}), {1: 2}, "ab", 5):
            with pytest.raises(ConfigError, match=r"'speed'.* needs an array or a list"):
                writer.append_columns({"speed": unordered})
        with pytest.raises(ConfigError, match="differ in length"):
            writer.append_columns({"speed": [1, 2], "note": ["x"]})
        writer.append({"speed": 1})

    assert list(ParquetDataset(tmp_path)) == [{"speed": 1, "note": None}]


def test_a_schema_is_seen_from_the_first_row(tmp_path: Path) -> None:
    with ParquetWriter(tmp_path / "set") as writer:
        writer.append(
            {
                "i": 1,
                "x": 0.5,
                "t": "a",
                "array": torch.ones(2, 3),
                "image": Image.new("RGB", (3, 2)),
                "tags": ["v"],
            }
        )
        writer.append(
            {"i": None, "x": 1, "t": "b", "array": np.ones((1, 1), np.float32), "tags": ["u", "v"]}
        )
        writer.append({"i": 3, "x": 2.5})

    schema = ParquetDataset(tmp_path / "set").schema
    assert {field.name: (field.dtype, field.shape) for field in schema} == {
        "i": (np.dtype(np.int64), ()),
        "x": (np.dtype(np.float64), ()),
        "t": (np.dtype(str), ()),
        "array": (np.dtype(np.float32), (None, None)),
        "image": (np.dtype(np.uint8), (None, None, 3)),
        "tags": (np.dtype(str), (None,)),
    }
    found = list(ParquetDataset(tmp_path / "set"))
    assert [each["i"] for each in found] == [1, None, 3]
    assert [each["x"] for each in found] == [0.5, 1.0, 2.5]
    assert found[2]["t"] is None
    assert found[0]["array"].shape == (2, 3)


def test_a_schema_is_seen_from_columns_and_frames(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", None], "c": pd.array([2**53 + 1, None], "Int64")})

    with ParquetWriter(tmp_path / "frame") as writer:
        writer.append_columns(frame)
    with ParquetWriter(tmp_path / "arrays") as writer:
        writer.append_columns(
            {"image": np.zeros((4, 28, 28), np.uint8), "label": np.arange(4, dtype=np.uint8)}
        )

    assert list(ParquetDataset(tmp_path / "frame")) == [
        {"a": 1, "b": "x", "c": 2**53 + 1},
        {"a": 2, "b": None, "c": None},
    ]
    assert ParquetDataset(tmp_path / "arrays").schema["image"].shape == (28, 28)
    assert ParquetDataset(tmp_path / "arrays").schema["label"].dtype == np.uint8


@pytest.mark.parametrize("value", [None, [], object()])
def test_a_value_without_a_type_asks_for_a_schema(tmp_path: Path, value: Any) -> None:
    with ParquetWriter(tmp_path) as writer:
        with pytest.raises(ConfigError, match=r"field 'x'.*schema="):
            writer.append({"x": value})
        assert writer.append({"x": 1}) == 0

    assert list(ParquetDataset(tmp_path)) == [{"x": 1}]
    with pytest.raises(ConfigError, match="schema"):
        ParquetWriter(tmp_path / "other").close()


@pytest.mark.parametrize("name", ["row_group_mb", "row_group_rows", "file_mb", "rows_per_file"])
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), 1j, np.complex64(1), "1"])
def test_a_limit_must_be_a_finite_positive_number(tmp_path: Path, name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"{name} must be a number"):
        ParquetWriter(tmp_path, SCHEMA, **{name: value})


def test_a_writer_writes_only_the_samples_that_are_missing(tmp_path: Path) -> None:
    samples = [(np.full((4, 4), number, np.uint8), number) for number in range(100)]
    stack = SequenceDatasetIterator(
        [[sample[0] for sample in samples], [sample[1] for sample in samples]]
    )
    with ParquetWriter(tmp_path, rows_per_file=30) as writer:
        assert writer.write(stack[:50], names=["image", "label"], progress=False) == 50

    with ParquetWriter(tmp_path, rows_per_file=30) as writer:
        assert len(writer) == 50
        assert writer.write(stack, names=["image", "label"], progress=False) == 100
        with pytest.raises(ConfigError, match="99 samples"):
            writer.write(stack[:99], names=["image", "label"])

    dataset = ParquetDataset(tmp_path)
    assert dataset.read_column("label").tolist() == list(range(100))
    assert dataset[99]["image"].tolist() == samples[99][0].tolist()
    with (
        pytest.raises(ConfigError, match=r"needs? names="),
        ParquetWriter(tmp_path / "other") as writer,
    ):
        writer.write(stack)


def test_cells_that_are_encoded_are_stored_as_they_are(tmp_path: Path) -> None:
    schema = Schema(
        "s", [Field("id", "int64"), Field("image", "uint8", (None, None, 3), JpegCodec())]
    )
    with ParquetWriter(tmp_path / "a", schema) as writer:
        writer.append({"id": 0, "image": np.arange(192, dtype=np.uint8).reshape(8, 8, 3)})
    cells = pq.read_table(tmp_path / "a").column("image").to_pylist()

    with ParquetWriter(tmp_path / "b", schema) as writer:
        writer.append_columns({"id": [0], "image": cells}, encoded=["image"])
        writer.append_arrow(pq.read_table(tmp_path / "a"))
        with pytest.raises(ConfigError, match="field 'id'"):
            writer.append_arrow(pa.table({"id": ["x"], "image": cells}))

    assert pq.read_table(tmp_path / "b").column("image").to_pylist() == cells * 2


def test_nulls_of_polars_are_none(tmp_path: Path) -> None:
    schema = Schema(
        "values",
        [
            Field("n", "int64", nullable=True),
            Field("x", "float64", nullable=True),
            Field("t", "datetime64[ns]", nullable=True),
        ],
    )
    times = pl.Series([1_001, None, 3]).cast(pl.Datetime("ns"))
    columns = {
        "n": pl.Series([2**62 + 1, None, 3]),
        "x": pl.Series([float("nan"), None, 0.5]),
        "t": times,
    }

    with ParquetWriter(tmp_path, schema) as writer:
        writer.append_columns(columns)

    dataset = ParquetDataset(tmp_path)
    assert dataset.read_column("n").tolist() == [2**62 + 1, None, 3]
    assert dataset.read_column("x").tolist() == [pytest.approx(np.nan, nan_ok=True), None, 0.5]
    assert dataset[0]["t"] == np.datetime64(1_001, "ns")
    assert dataset[1]["t"] is None


def test_a_frame_of_pandas_is_no_column_of_scalars(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": [1.0, 2.0]})
    writer = ParquetWriter(tmp_path, Schema("values", [Field("x", "float64")]))

    with writer, pytest.raises(ConfigError, match=r"field 'x', row 0.*shape"):
        writer.append_columns({"x": frame})


def test_image_cells_are_not_compressed_again_whatever_their_field_name(
    tmp_path: Path,
) -> None:
    image = Field("camera.image", "uint8", (2, 2), PngCodec())
    schema = Schema("values", [image, Field("camera", "int64")])

    with ParquetWriter(tmp_path, schema, compression="zstd") as writer:
        writer.append({"camera.image": np.zeros((2, 2), np.uint8), "camera": 1})

    file = next(tmp_path.glob("part-*.parquet"))
    row_group = pq.read_metadata(file).row_group(0)
    compressions = [row_group.column(number).compression for number in range(2)]
    assert compressions == ["UNCOMPRESSED", "ZSTD"]
