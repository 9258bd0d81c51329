"""Other tools read the folder of a Parquet dataset as it lies; Spark does so in plugins/spark/tests."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from parquet_layouts import COLUMNS, LAYOUTS, N_ROWS, SCHEMA, write_layout

from data_stack.formats.parquet import ParquetDataset, ParquetWriter
from data_stack.formats.parquet.metadata_files import COMMON_METADATA

PARTITIONED = "partitions"


def datasets(folder: Path, **source: str) -> Any:
    load = import_module("datasets").load_dataset
    frame = load(**source, split="train", cache_dir=folder.parent / "cache").to_pandas()
    return (
        frame.assign(day="", lane=0) if folder.name == PARTITIONED else frame
    )  # it knows no partitions


#: Returns a data frame.
TOOLS: dict[str, Callable[[Path], Any]] = {
    "dask": lambda folder: (
        import_module("dask.dataframe").read_parquet(folder).compute(scheduler="sync")
    ),
    "datasets": lambda folder: datasets(folder, path=str(folder)),
    "duckdb": lambda folder: (
        import_module("duckdb").sql(f"select * from read_parquet('{folder}/**/*.parquet')").df()
    ),
    "pandas": pd.read_parquet,
    "polars": lambda folder: import_module("polars").read_parquet(f"{folder}/"),
    "pyarrow": lambda folder: pq.read_table(folder).to_pandas(),
}
if import_module("pyarrow").__version__ < "23":  # with which dask reads no file without row groups
    del TOOLS["dask"]


@pytest.fixture(scope="module", params=LAYOUTS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_layout(tmp_path_factory.mktemp("tools") / request.param, request.param)


@pytest.mark.filterwarnings("ignore:The inplace keyword")  # of dask's own code, by pandas 3.1
@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_reads_the_folder_as_it_lies(folder: Path, tool: str) -> None:
    if folder.name == "petastorm" and tool.startswith("polars"):
        with pytest.raises(Exception, match=f"(?s)different file extensions.*{COMMON_METADATA}"):
            TOOLS[tool](folder)
        frame = import_module("polars").read_parquet(folder / "*.parquet")
    else:
        frame = TOOLS[tool](folder)

    assert sorted(map(int, frame["id"])) == list(range(N_ROWS))
    assert sorted(frame.columns) == sorted(COLUMNS)


def test_the_manifest_moves_into_the_first_partition_of_a_dataset(
    tmp_path: Path,
) -> None:
    with ParquetWriter(tmp_path, SCHEMA, partition_by=["day"]):
        pass
    assert (len(ParquetDataset(tmp_path)), ParquetDataset(tmp_path).schema) == (0, SCHEMA)

    with ParquetWriter(tmp_path) as writer:
        for day in ("2024-01-02", "2024-01-01"):
            writer.append(
                {
                    "id": 0,
                    "text": None,
                    "image": np.zeros((1, 1, 3), np.uint8),
                    "day": day,
                    "lane": 0,
                }
            )

    assert [path.parent.name for path in tmp_path.rglob("_*")] == ["day=2024-01-01"]
    assert len(ParquetDataset(tmp_path)) == 2


def test_views_of_text_and_bytes_within_other_types_are_read(tmp_path: Path) -> None:
    text = pa.array(["x", None, "größe"], pa.string_view())
    data = pa.array([b"1", b"", None], pa.binary_view())
    struct = pa.StructArray.from_arrays([text, data], names=["text", "data"])
    lists = pa.array([["a"], [], None], pa.list_(pa.string_view()))
    try:
        pq.write_table(pa.table({"struct": struct, "lists": lists}), tmp_path / "a.parquet")
    except pa.ArrowNotImplementedError:
        pytest.skip("old versions of pyarrow write no views to Parquet")

    rows = ParquetDataset(tmp_path / "a.parquet")

    expected = struct.to_pylist()
    assert rows.read_column("struct").tolist() == expected
    assert rows.read_column("struct", [2, 0]).tolist() == [expected[2], expected[0]]
    assert [row["struct"] for row in rows] == expected
    assert [None if row["lists"] is None else list(row["lists"]) for row in rows] == [
        ["a"],
        [],
        None,
    ]
