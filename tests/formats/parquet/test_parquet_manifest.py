"""Digests of footers in a Parquet dataset's manifest: what is read is held against them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.parquet import ParquetDataset, ParquetWriter
from data_stack.formats.parquet.metadata import MANIFEST_KEY
from data_stack.formats.parquet.metadata_generation import generate_metadata
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
def test_a_flip_in_the_footer_is_noticed_when_the_dataset_is_opened(tmp_path: Path, where: str) -> None:
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
    with pytest.raises(DatasetFileCorruptError, match=r"the footer of .*part-000001\.parquet is damaged"):
        ParquetDataset(source, prefix="set")


def test_files_that_another_tool_wrote_anew_are_read_as_they_are(foreign: Path) -> None:
    pq.write_table(pa.table({"time": [7], "x": [[1.0] * 8], "text": ["other"]}), foreign / "1.parquet")

    assert ParquetDataset(foreign)[200]["text"] == "other"


def test_generated_metadata_of_files_of_one_size_replace_those_of_the_files_before(foreign: Path) -> None:
    table = pq.read_table(foreign / "0.parquet")
    for letter in "ab":
        changed = table.set_column(2, "text", pa.array([letter] * len(table)))
        pq.write_table(changed, foreign / "0.parquet", compression="none")
        if letter == "a":
            generate_metadata(foreign)
    with pytest.raises(DatasetFileCorruptError, match="written it anew"):
        ParquetDataset(foreign)[0]

    generate_metadata(foreign)

    assert ParquetDataset(foreign)[0]["text"] == "b"


def test_a_manifest_of_an_earlier_version_is_refused_and_made_anew(foreign: Path) -> None:
    from data_stack.dataset.strict_json import seal_json

    earlier = pa.schema([], metadata={MANIFEST_KEY: seal_json({"format": "data_stack parquet 3", "files": []})})
    pq.write_metadata(earlier, foreign / "_data_stack_manifest.parquet")
    with pytest.raises(DatasetFileCorruptError, match=r"parquet 3'.*generate-metadata` makes it anew"):
        ParquetDataset(foreign)

    generate_metadata(foreign)

    assert len(ParquetDataset(foreign)) == N_ROWS
