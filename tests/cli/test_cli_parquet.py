"""The commands ``data-stack parquet``."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from petastorm_fixtures import petastorm_folder

from data_stack.formats.parquet import Field, ParquetWriter, Schema

SCHEMA = Schema(
    "frames", [Field("id", "int64"), Field("car", str), Field("note", str, nullable=True), Field("x", "float32", (4,))]
)


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    folder = tmp_path / "frames"
    with ParquetWriter(folder, SCHEMA, rows_per_file=10, row_group_rows=5) as writer:
        for number in range(20):
            writer.append(
                {"id": number, "car": f"car {number // 10}", "note": "n" if number % 2 else None, "x": np.ones(4, np.float32)}
            )
    return folder


def test_info_tells_what_there_is(command: Any, dataset: Path) -> None:
    outcome = command("parquet", "info", f"file://{dataset}")
    facts = command("parquet", "info", str(dataset), "--json").json

    assert (facts["n_rows"], facts["n_files"], facts["n_row_groups"]) == (20, 2, 4)
    assert Schema.from_json(facts["schema"]) == SCHEMA
    assert outcome.code == 0
    assert [outcome.facts[name] for name in ("n_rows", "row_group_rows", "schema")] == ["20", "5, 5", "frames"]
    assert "up to date" in outcome.out


def test_info_reads_what_petastorm_wrote(command: Any) -> None:
    facts = command("parquet", "info", str(petastorm_folder("legacy/0.7.6")), "--json").json

    assert facts["schema_from"] == "Petastorm"
    assert facts["manifest"] == "none"


def test_info_of_what_is_none_says_so(command: Any, tmp_path: Path) -> None:
    (tmp_path / "bad.parquet").write_bytes(b"nonsense")

    missing = command("parquet", "info", str(tmp_path / "nothing"))
    damaged = command("parquet", "info", str(tmp_path / "bad.parquet"))

    assert missing.code == 1
    assert str(tmp_path / "nothing") in missing.err
    assert damaged.code == 1
    assert "bad.parquet" in damaged.err


def test_metadata_are_made_anew_after_files_were_added(command: Any, dataset: Path) -> None:
    shutil.copy(dataset / "part-000001.parquet", dataset / "part-000005.parquet")
    outdated = command("parquet", "info", str(dataset))

    outcome = command("parquet", "generate-metadata", str(dataset), "--petastorm")

    assert "outdated" in outdated.out
    assert outcome.code == 0
    assert outcome.facts["n_rows"] == "30"
    assert "up to date" in command("parquet", "info", str(dataset)).out
