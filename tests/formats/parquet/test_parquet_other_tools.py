"""Other tools read the folder of a Parquet dataset as it lies; Spark: tests/spark/test_spark_other_tools.py."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
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

ALONE = [name for name in LAYOUTS if name != "petastorm"]


@pytest.fixture(scope="module", params=ALONE)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_layout(tmp_path_factory.mktemp("tools") / request.param, request.param)


def is_whole(ids: Iterable[Any], columns: Sequence[str], lacking: Sequence[str] = ()) -> bool:
    return sorted(map(int, ids)) == list(range(N_ROWS)) and sorted(columns) == sorted(set(COLUMNS) - set(lacking))


def partitions_of(folder: Path) -> list[str]:
    return ["day", "lane"] if folder.name == "partitions" else []


def test_our_own_dataset_finds_rows_and_indexes(folder: Path) -> None:
    dataset = ParquetDataset(folder, row_groups=SingleIndexSelector("by_id", [11]))

    assert is_whole(ParquetDataset(folder).read_column("id"), list(dataset.schema.fields))
    assert 11 in dataset.read_column("id")
    assert not (folder / COMMON_METADATA).exists()


def test_polars_reads_a_folder(folder: Path) -> None:
    import polars

    for frame in (polars.read_parquet(f"{folder}/"), polars.scan_parquet(folder).collect()):
        assert is_whole(frame["id"].to_list(), frame.columns)


def test_duckdb_reads_a_folder(folder: Path) -> None:
    import duckdb

    levels = "*/*/" if partitions_of(folder) else ""

    for source in (f"'{folder}/{levels}*.parquet'", f"read_parquet('{folder}/**/*.parquet')"):
        found: Any = duckdb.sql(f"select * from {source} where image is not null")
        assert is_whole([row[0] for row in found.fetchall()], found.columns)


def test_pandas_and_pyarrow_read_a_folder(folder: Path) -> None:
    for table in (pq.read_table(folder), pads.dataset(folder, partitioning="hive").to_table()):
        assert is_whole(table.column("id").to_pylist(), table.column_names)
    frame = pd.read_parquet(folder)
    assert is_whole(list(frame["id"]), list(frame.columns))


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # of dask's own code, by pandas 3.1
def test_dask_reads_a_folder(folder: Path) -> None:
    import dask.dataframe as dataframe

    frame = dataframe.read_parquet(folder).compute(scheduler="sync")

    assert is_whole(list(frame["id"]), list(frame.columns))


@pytest.mark.parametrize("by_name", [True, False])
def test_hugging_face_loads_a_folder(folder: Path, by_name: bool, tmp_path: Path) -> None:
    datasets = importlib.import_module("datasets")  # it has no types

    source: dict[str, Any] = {"path": "parquet", "data_dir": str(folder)} if by_name else {"path": str(folder)}

    loaded = datasets.load_dataset(**source, split="train", cache_dir=tmp_path)

    assert is_whole(loaded["id"], loaded.column_names, partitions_of(folder))


def test_what_petastorm_needs_keeps_polars_away_from_the_folder_but_not_from_its_files(tmp_path: Path) -> None:
    import polars

    folder = write_layout(tmp_path / "petastorm", "petastorm")
    assert (folder / COMMON_METADATA).exists()

    with pytest.raises(polars.exceptions.InvalidOperationError):
        polars.read_parquet(folder)
    frame = polars.read_parquet(folder / "*.parquet")

    assert is_whole(frame["id"].to_list(), frame.columns)


def test_the_manifest_moves_into_the_first_partition_of_a_dataset_that_had_none(tmp_path: Path) -> None:
    with ParquetWriter(tmp_path, SCHEMA, partition_by=["day"]):
        pass
    assert len(ParquetDataset(tmp_path)) == 0
    assert ParquetDataset(tmp_path).schema == SCHEMA

    with ParquetWriter(tmp_path) as writer:
        for day in ("2024-01-02", "2024-01-01"):
            writer.append({"id": 0, "text": None, "image": np.zeros((1, 1, 3), np.uint8), "day": day, "lane": 0})

    assert [path.parent.name for path in tmp_path.rglob("_*")] == ["day=2024-01-01"]
    assert len(ParquetDataset(tmp_path)) == 2
