"""Digests in a Parquet dataset's manifest: what is read for the first time is held against them."""

from __future__ import annotations

import pickle
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.parquet import NGram, NGramIterator, ParquetDataset, ParquetWriter, col
from data_stack.formats.parquet.dataset_copying import copy_dataset
from data_stack.formats.parquet.metadata import ParquetManifest
from data_stack.formats.parquet.metadata_generation import generate_metadata
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
    generate_metadata(folder, checksums=True)
    return folder


def flip(path: Path, at: int, bit: int = 1) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= bit
    path.write_bytes(content)


def middle_of(path: Path, column: int, group: int = 1) -> int:
    chunk = pq.read_metadata(path).row_group(group).column(column)
    return int((chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size // 3)


def test_each_of_300_flips_is_noticed(foreign: Path) -> None:
    draw, files = random.Random(1), sorted(foreign.glob("*.parquet"))
    noticed = 0

    for _ in range(300):
        path = draw.choice(files)
        content = path.read_bytes()
        flip(path, draw.randrange(4, len(content)), 1 << draw.randrange(8))  # not in the first four, which nothing reads
        with pytest.raises(DatasetFileCorruptError, match=path.name):
            dataset = ParquetDataset(foreign)
            for name in dataset.schema.fields:
                dataset.read_column(name)
        noticed += 1
        path.write_bytes(content)

    assert noticed == 300


def test_the_error_names_file_row_group_and_column_on_every_way_of_reading(foreign: Path, tmp_path: Path) -> None:
    flip(foreign / "1.parquet", middle_of(foreign / "1.parquet", 1))
    named = pytest.raises(
        DatasetFileCorruptError, match=r"row group 1 of .*1\.parquet is damaged: column 'x.*digest.*generate-meta"
    )

    for way in (
        lambda dataset: dataset[399],
        lambda dataset: dataset.read_batch([0, 399]),
        lambda dataset: dataset.read_column("x"),
        lambda dataset: list(dataset),
        lambda dataset: pickle.loads(pickle.dumps(dataset))[300],
        lambda dataset: ParquetDataset(foreign, filters=col("time") == 350)[0],
        lambda dataset: NGramIterator(dataset, NGram({0: ["x"], 1: ["x"]}, 1, "time")).read_batch([299]),
        lambda dataset: copy_dataset(foreign, tmp_path / "copy"),
    ):
        with named:
            way(ParquetDataset(foreign))


def test_a_reader_of_other_columns_and_row_groups_is_not_concerned(foreign: Path) -> None:
    flip(foreign / "1.parquet", middle_of(foreign / "1.parquet", 1))

    dataset = ParquetDataset(foreign)

    assert dataset.read_column("time").tolist() == list(range(N_ROWS))
    np.testing.assert_array_equal(dataset.read_column("x", range(300)), columns()["x"][:300])


def test_a_column_is_checked_once_and_again_when_the_file_was_touched(foreign: Path) -> None:
    dataset = ParquetDataset(foreign, ["x"], max_cached_bytes=0)
    path = foreign / "1.parquet"
    assert dataset.read_column("x").shape == (N_ROWS, 8)

    unchecked = dataset._footers._of(1).unchecked
    assert unchecked is not None
    assert [sorted(group) for group in unchecked] == [[0, 2], [0, 2]]
    flip(path, middle_of(path, 1, 0))  # the file has another version now, and the same footer

    with pytest.raises(DatasetFileCorruptError, match="row group 0"):
        dataset.read_column("x")


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
            generate_metadata(foreign, checksums=True)
    with pytest.raises(DatasetFileCorruptError, match="written it anew"):
        ParquetDataset(foreign)[0]

    generate_metadata(foreign, checksums=True)

    assert ParquetDataset(foreign)[0]["text"] == "b"


def test_a_manifest_of_other_columns_than_a_file_has_is_refused(foreign: Path) -> None:
    from dataclasses import replace

    folder = folder_of(foreign)
    manifest = ParquetManifest.read(folder)
    assert manifest is not None
    files = tuple(replace(file, column_digests=("0" * 16,) * len(file.row_groups)) for file in manifest.files)
    replace(manifest, files=files).write(folder)

    with pytest.raises(DatasetFileCorruptError, match="of other columns or row groups"):
        ParquetDataset(foreign)


def test_a_manifest_of_an_earlier_version_is_refused_and_made_anew(foreign: Path) -> None:
    from data_stack.dataset.strict_json import sealed_json

    manifest = foreign / "_data_stack_manifest.json"
    manifest.write_bytes(sealed_json({"format": "data_stack parquet 1", "files": []}))
    with pytest.raises(DatasetFileCorruptError, match=r"parquet 1'.*generate-metadata --checksums` makes it anew"):
        ParquetDataset(foreign)

    generate_metadata(foreign, checksums=True)

    assert len(ParquetDataset(foreign)) == N_ROWS


def test_a_copy_of_the_dataset_is_checked_likewise(foreign: Path, tmp_path: Path) -> None:
    shutil.copytree(foreign, tmp_path / "copied")
    flip(tmp_path / "copied" / "0.parquet", middle_of(tmp_path / "copied" / "0.parquet", 0, 0))

    with pytest.raises(DatasetFileCorruptError, match="column 'time'"):
        ParquetDataset(tmp_path / "copied")[0]
