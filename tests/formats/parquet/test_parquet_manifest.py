"""Digests of footers in a Parquet dataset's manifest: what is read is held against them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.parquet import ParquetDataset, ParquetWriter
from data_stack.formats.parquet.inference import generate_metadata
from data_stack.formats.parquet.metadata import MANIFEST_KEY, ParquetManifest, write_metadata
from data_stack.formats.parquet.selecting import col
from data_stack.io.folder import folder_of
from data_stack.io.storage_connectors import InMemoryStorageConnector

N_ROWS = 400


def columns() -> dict[str, Any]:
    numbers = np.random.default_rng(0)
    return {
        "time": np.arange(N_ROWS),
        "x": numbers.normal(size=(N_ROWS, 8)).astype("float32"),
        "text": [f"text {i % 17} " * (i % 3) for i in range(N_ROWS)],
    }


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """Two files of another tool, without checksums of pages, and a manifest made of them."""
    folder = tmp_path / "foreign"
    folder.mkdir()
    table = pa.table({name: list(column) if name == "x" else column for name, column in columns().items()})
    for number, start in enumerate((0, 200)):
        pq.write_table(table.slice(start, 200), folder / f"{number}.parquet", row_group_size=100)
    generate_metadata(folder)
    return folder


def flip(path: Path, at: int, bit: int = 1) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= bit
    path.write_bytes(content)


@pytest.mark.parametrize("where", ["folder", "store"])
def test_a_flip_in_the_footer_is_noticed_when_a_row_of_the_file_is_read_or_filtered(tmp_path: Path, where: str) -> None:
    # in statistics: a filter would leave out rows
    with ParquetWriter(tmp_path / "set", rows_per_file=100) as writer:
        writer.append_columns({"time": np.arange(200)})
    path = tmp_path / "set" / "part-000001.parquet"
    statistics = path.read_bytes().rindex(np.int64(199).tobytes())

    flip(path, statistics)

    source: Any = tmp_path
    if where == "store":
        source = InMemoryStorageConnector()
        for each in (tmp_path / "set").iterdir():
            source.set_resource(f"set/{each.name}", each.read_bytes())
    dataset = ParquetDataset(source, prefix="set")
    assert dataset[99] == {"time": 99}
    with pytest.raises(DatasetFileCorruptError, match=r"the footer of .*part-000001\.parquet is damaged"):
        dataset[100]
    with pytest.raises(DatasetFileCorruptError, match=r"the footer of .*part-000001\.parquet is damaged"):
        ParquetDataset(source, filters=col("time") > 0, prefix="set")


@pytest.mark.parametrize("change", [{"row_groups": (3, 3)}, {"columns": {"time": None}}, {"columns": {"time": 1, "more": 1}}])
def test_a_manifest_that_lies_about_a_footer_is_an_error(tmp_path: Path, change: dict[str, Any]) -> None:
    with ParquetWriter(tmp_path, rows_per_file=10) as writer:
        writer.append_columns({"time": np.arange(6)})
    manifest = ParquetManifest.read(folder_of(tmp_path))
    assert manifest is not None

    lying = replace(manifest, files=(replace(manifest.files[0], **change),))
    write_metadata(folder_of(tmp_path), pq.read_schema(tmp_path / "part-000000.parquet"), [], lying)

    with pytest.raises(DatasetFileCorruptError, match=r"part-000000\.parquet.*manifest"):
        ParquetDataset(tmp_path)[0]


def test_files_that_another_tool_rewrote_are_read(foreign: Path) -> None:
    pq.write_table(pa.table({"time": [7], "x": [[1.0] * 8], "text": ["other"]}), foreign / "1.parquet")

    assert ParquetDataset(foreign)[200]["text"] == "other"


def test_a_manifest_of_an_earlier_version_is_refused_and_recreated(foreign: Path) -> None:
    from data_stack.values.strict_json import seal_json

    earlier = pa.schema([], metadata={MANIFEST_KEY: seal_json({"format": "data_stack parquet 3", "files": []})})
    pq.write_metadata(earlier, foreign / "_data_stack_manifest.parquet")
    with pytest.raises(DatasetFileCorruptError, match=r"parquet 3'.*generate-metadata"):
        ParquetDataset(foreign)

    generate_metadata(foreign)

    assert len(ParquetDataset(foreign)) == N_ROWS
