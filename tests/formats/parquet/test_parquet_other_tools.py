"""Other tools read the folder of a Parquet dataset as it lies; Spark does so in tests/spark."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from parquet_layouts import COLUMNS, LAYOUTS, N_ROWS, SCHEMA, write_layout

from data_stack.formats.parquet import ParquetDataset, ParquetWriter, SingleIndexSelector
from data_stack.formats.parquet.dataset_names import COMMON_METADATA

#: Returns ids and names of columns, as the tool reads them.
Tool = Callable[[Path], tuple[Any, Any]]


def dask(folder: Path) -> tuple[Any, Any]:
    frame = importlib.import_module("dask.dataframe").read_parquet(folder).compute(scheduler="sync")
    return frame["id"], frame.columns


def duckdb(folder: Path, files: str = "**/*.parquet") -> tuple[Any, Any]:
    found = importlib.import_module("duckdb").sql(f"select * from read_parquet('{folder}/{files}')")
    return [row[0] for row in found.fetchall()], found.columns


def duckdb_from(folder: Path) -> tuple[Any, Any]:
    return duckdb(folder, "*/*/*.parquet" if folder.name == "partitions" else "*.parquet")


def hugging_face(folder: Path, **source: Any) -> tuple[Any, Any]:
    load = importlib.import_module("datasets").load_dataset
    rows = load(**(source or {"path": str(folder)}), split="train", cache_dir=folder.parent / "cache")
    return rows["id"], [*rows.column_names, *(["day", "lane"] if folder.name == "partitions" else [])]  # it knows no partitions


def hugging_face_by_name(folder: Path) -> tuple[Any, Any]:
    return hugging_face(folder, path="parquet", data_dir=str(folder))


def polars(folder: Path, files: str = "") -> tuple[Any, Any]:
    frame = importlib.import_module("polars").read_parquet(f"{folder}/{files}")
    return frame["id"], frame.columns


def polars_lazily(folder: Path) -> tuple[Any, Any]:
    frame = importlib.import_module("polars").scan_parquet(folder).collect()
    return frame["id"], frame.columns


def pandas(folder: Path) -> tuple[Any, Any]:
    frame = pd.read_parquet(folder)
    return frame["id"], frame.columns


def pyarrow(folder: Path) -> tuple[Any, Any]:
    table = pads.dataset(folder, partitioning="hive").to_table()
    return pq.read_table(folder).column("id").to_pylist(), table.column_names


@pytest.fixture(scope="module", params=LAYOUTS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_layout(tmp_path_factory.mktemp("tools") / request.param, request.param)


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # of dask's own code, by pandas 3.1
@pytest.mark.parametrize(
    "tool", [dask, duckdb, duckdb_from, hugging_face, hugging_face_by_name, polars, polars_lazily, pandas, pyarrow]
)
def test_a_tool_reads_the_folder_as_it_lies(folder: Path, tool: Tool) -> None:
    if folder.name == "petastorm" and tool in (polars, polars_lazily):
        with pytest.raises(Exception, match=f"different file extensions.*{COMMON_METADATA}"):
            tool(folder)
        ids, columns = polars(folder, "*.parquet")
    else:
        ids, columns = tool(folder)

    assert sorted(map(int, ids)) == list(range(N_ROWS))
    assert sorted(columns) == sorted(COLUMNS)


def test_indexes_are_kept_beside_the_files(folder: Path) -> None:
    dataset = ParquetDataset(folder, row_groups=SingleIndexSelector("by_id", [11]))

    assert 11 in dataset.read_column("id")
    assert (folder / COMMON_METADATA).exists() == (folder.name == "petastorm")


def test_the_manifest_moves_into_the_first_partition_of_a_dataset_that_had_none(tmp_path: Path) -> None:
    with ParquetWriter(tmp_path, SCHEMA, partition_by=["day"]):
        pass
    assert (len(ParquetDataset(tmp_path)), ParquetDataset(tmp_path).schema) == (0, SCHEMA)

    with ParquetWriter(tmp_path) as writer:
        for day in ("2024-01-02", "2024-01-01"):
            writer.append({"id": 0, "text": None, "image": np.zeros((1, 1, 3), np.uint8), "day": day, "lane": 0})

    assert [path.parent.name for path in tmp_path.rglob("_*")] == ["day=2024-01-01"]
    assert len(ParquetDataset(tmp_path)) == 2
