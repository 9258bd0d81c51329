"""parquet info, parquet generate-metadata."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from command_runs import Run
from petastorm_fixtures import petastorm_folder

from data_stack.formats.parquet import Field, ParquetWriter, Schema

SCHEMA = Schema(
    "frames",
    [
        Field("id", "int64"),
        Field("car", str),
        Field("note", str, nullable=True),
        Field("x", "float32", (4,)),
    ],
)


@pytest.fixture
def frames(tmp_path: Path) -> Path:
    """A dataset of twenty rows in two files of two row groups each."""
    folder = tmp_path / "frames"
    with ParquetWriter(folder, SCHEMA, rows_per_file=10, row_group_rows=5) as writer:
        for number in range(20):
            writer.append(
                {
                    "id": number,
                    "car": f"car {number // 10}",
                    "note": "n" if number % 2 else None,
                    "x": np.ones(4, np.float32),
                }
            )
    return folder


def test_info_prints_the_facts_of_a_dataset(command: Run, frames: Path) -> None:
    outcome = command("parquet", "info", f"file://{frames}")

    assert outcome.code == 0
    assert outcome.facts["n_rows"] == "20"
    assert outcome.facts["row_group_rows"] == "5, 5"
    assert outcome.facts["schema"] == "frames"
    assert "up to date" in outcome.out


def test_info_as_json_has_the_schema(command: Run, frames: Path) -> None:
    facts = command("parquet", "info", str(frames), "--json").json

    assert (facts["n_rows"], facts["n_files"], facts["n_row_groups"]) == (20, 2, 4)
    assert facts["schema_from"] == "data_stack"
    assert Schema.from_json(facts["schema"]) == SCHEMA
    assert [field["name"] for field in facts["fields"]] == ["id", "car", "note", "x"]


def test_info_describes_a_dataset_of_petastorm(command: Run) -> None:
    facts = command("parquet", "info", str(petastorm_folder("legacy/0.7.6")), "--json").json

    assert facts["schema_from"] == "Petastorm"
    assert facts["manifest"] == "none"


def test_metadata_is_rebuilt_after_files_were_added(command: Run, frames: Path) -> None:
    shutil.copy(frames / "part-000001.parquet", frames / "part-000005.parquet")
    outdated = command("parquet", "info", str(frames))

    outcome = command("parquet", "generate-metadata", str(frames), "--petastorm")
    rebuilt = command("parquet", "info", str(frames))

    assert "outdated" in outdated.out
    assert outcome.code == 0
    assert outcome.facts["n_rows"] == "30"
    assert "up to date" in rebuilt.out
