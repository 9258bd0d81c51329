"""Spark reads the folder of a Parquet dataset as it lies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from parquet_layouts import COLUMNS, LAYOUTS, N_ROWS, write_layout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize("layout", LAYOUTS)
def test_spark_reads_a_folder(spark: SparkSession, tmp_path: Path, layout: str) -> None:
    frame = spark.read.parquet(str(write_layout(tmp_path / layout, layout)))

    assert sorted(row["id"] for row in frame.select("id").collect()) == list(range(N_ROWS))
    assert sorted(frame.columns) == sorted(COLUMNS)
