"""Parquet as a source and a target of ``convert``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from petastorm_fixtures import petastorm_folder

from data_stack.formats import convert, records
from data_stack.formats.parquet import ParquetDataset

SPEC: dict[str, Any] = {
    "vector": records.Column("array", "float32", (3,)),
    "matrix": records.Column("array", "int16", (2, 2)),
    "ragged": "array",
    "label": "i64",
    "big": "u64",
    "score": "array",
    "text": "utf8",
    "data": "bytes",
    "picture": "png",
    "photo": "jpg",
    "facts": "json",
    "deep": "tree",
}


def sample(number: int) -> dict[str, Any]:
    rng = np.random.default_rng(number)
    return {
        "vector": rng.normal(size=3).astype(np.float32),
        "matrix": np.full((2, 2), number, np.int16),
        "ragged": np.zeros((number % 3, 2)),
        "label": -number,
        "big": 2**63 + number,
        "score": np.float64(number) if number else np.float64(np.nan),
        "text": f"é {number}",
        "data": b"\0" * number,
        "picture": rng.integers(0, 255, (4, 5, 3)).astype(np.uint8),
        "photo": rng.integers(0, 255, (8, 8, 3)).astype(np.uint8),
        "facts": {"n": number, "none": None},
        "deep": {"array": np.arange(number)},
    }


@pytest.fixture
def source(tmp_path: Path) -> Path:
    with records.RecordWriter(tmp_path / "source", SPEC) as writer:
        for number in range(25):
            writer.append(sample(number))
    return tmp_path / "source"


def files(folder: Path) -> dict[str, bytes]:
    with records.open(folder, codecs={"png": None, "jpg": None}) as reader:
        return {name: b"".join(reader.read_column(name)) for name in ("picture", "photo")}


def test_records_come_back_from_parquet_with_their_files_as_they_were(tmp_path: Path, source: Path) -> None:
    there = convert(source, tmp_path / "set.parquet", shardlen=10)
    back = convert(tmp_path / "set.parquet", tmp_path / "back")

    assert (there.target_format, back.source_format, there.n_verified, back.n_verified) == ("parquet", "parquet", 25, 25)
    assert dict(there.columns) == dict(back.columns)
    assert files(tmp_path / "back") == files(source)
    assert [path.name for path in sorted((tmp_path / "set.parquet").glob("part-*"))] == [
        f"part-00000{n}.parquet" for n in range(3)
    ]
    table = pq.read_table(tmp_path / "set.parquet")
    assert table.column("label").to_pylist() == [-number for number in range(25)]
    assert table.column("big").to_pylist()[1] == 2**63 + 1


def test_nulls_and_what_petastorm_wrote_are_converted(tmp_path: Path) -> None:
    report = convert(
        petastorm_folder("timeseries"),
        tmp_path / "records",
        columns=["timestamp", "accel", "events", "temperature"],
        verify=False,
    )

    assert dict(report.columns) == {"timestamp": "i64", "accel": "array", "events": "tree", "temperature": "tree"}
    with records.open(tmp_path / "records") as reader:
        dataset = ParquetDataset(petastorm_folder("timeseries"))
        assert reader[0]["temperature"] is dataset[0]["temperature"] is None
        np.testing.assert_array_equal(reader[4999]["accel"], dataset[4999]["accel"])
