"""``data-stack parquet throughput``: what it reads, what it tells, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1,000 rows in ten row groups of two files."""
    folder = tmp_path_factory.mktemp("table")
    for part in range(2):
        ids = np.arange(part * 500, (part + 1) * 500)
        columns = {"id": ids, "speed": ids.astype("float32"), "text": [f"row {i}" for i in ids]}
        pq.write_table(pa.table(columns), folder / f"part-{part}.parquet", row_group_size=100)
    return folder


def test_whole_epochs_are_read(command: Any, table: Path) -> None:
    outcome = command("parquet", "throughput", str(table), "--workers", "2", "--epochs", "3", "--json")

    assert outcome.code == 0, outcome.err
    found = outcome.json
    assert (found["n_rows"], found["n_epochs"]) == (3000, 3)
    assert found["fields"] == ["id", "speed", "text"]
    assert found["rows_per_second"] == pytest.approx(3000 / found["seconds"])
    assert found["first_batch_seconds"] > 0
    assert found["peak_memory_mb"] > 10


def test_bytes_are_those_of_the_fields_that_are_read(command: Any, table: Path) -> None:
    found = command("parquet", "throughput", str(table), "--fields", "speed", "--worker-kind", "inline", "--json").json

    columns = [pq.read_metadata(file).row_group(group).column(1) for file in table.iterdir() for group in range(5)]
    assert found["fields"] == ["speed"]
    stored = sum(column.total_compressed_size for column in columns) / 1000 / 1e6
    assert found["stored_mb_per_second"] / found["rows_per_second"] == pytest.approx(stored)


def test_the_figures_are_printed_one_a_line(command: Any, table: Path) -> None:
    outcome = command("parquet", "throughput", str(table), "--fields", "id|sp.*", "--worker-kind", "inline", "--no-shuffle")

    lines = dict(line.split(maxsplit=1) for line in outcome.out.splitlines())
    assert outcome.code == 0, outcome.err
    assert lines["fields"] == "id, speed"
    assert (lines["worker_kind"], lines["n_rows"]) == ("inline", "1,000")
    assert {"rows_per_second", "peak_memory_mb"} <= set(lines)


def test_a_dataset_without_rows_is_refused(command: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": pa.array([], pa.int64())}), tmp_path / "empty.parquet")

    outcome = command("parquet", "throughput", str(tmp_path))

    assert (outcome.code, "no rows" in outcome.err) == (2, True)
