"""The commands ``data-stack parquet``."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from petastorm_fixtures import petastorm_folder

from data_stack.formats.parquet import Field, ParquetDataset, ParquetWriter, Schema, SingleFieldIndex

SCHEMA = Schema(
    "frames", [Field("id", "int64"), Field("car", str), Field("note", str, nullable=True), Field("x", "float32", (4,))]
)


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    folder = tmp_path / "frames"
    indexes = [SingleFieldIndex("by_car", "car")]
    with ParquetWriter(folder, SCHEMA, rows_per_file=10, row_group_rows=5, indexes=indexes) as writer:
        for number in range(20):
            writer.append(
                {"id": number, "car": f"car {number // 10}", "note": "n" if number % 2 else None, "x": np.ones(4, np.float32)}
            )
    return folder


def test_info_tells_what_there_is(command: Any, dataset: Path) -> None:
    outcome = command("parquet", "info", str(dataset), "--values")
    facts = command("parquet", "info", str(dataset), "--json").json

    assert (facts["n_rows"], facts["n_files"], facts["n_row_groups"]) == (20, 2, 4)
    assert Schema.from_json(facts["schema"]) == SCHEMA
    assert outcome.code == 0
    assert [outcome.facts[name] for name in ("n_rows", "row_group_rows", "schema")] == ["20", "5, 5", "frames"]
    for text in (
        "up to date",
        "ZSTD",
        "by_car",
        "car 1: 2, 3",
    ):
        assert text in outcome.out


def test_info_reads_what_petastorm_wrote(command: Any) -> None:
    facts = command("parquet", "info", str(petastorm_folder("legacy/0.7.6")), "--json", "--values").json

    assert facts["schema_from"] == "Petastorm"
    assert facts["manifest"] == "none"
    assert "dataset-toolkit.unischema.v1" in facts["metadata"]
    assert len(facts["indexes"]) == 4


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

    outcome = command("parquet", "generate-metadata", str(dataset))

    assert "outdated" in outdated.out
    assert "build_indexes" in outdated.out
    assert outcome.code == 0
    assert outcome.facts["n_rows"] == "30"
    assert "build_indexes()" in outcome.err
    assert "up to date" in command("parquet", "info", str(dataset)).out


def test_metadata_take_a_schema_from_a_file(command: Any, dataset: Path, tmp_path: Path) -> None:
    schema = Schema("other", [Field("id", "int64"), Field("car", str)])
    file = tmp_path / "schema.json"
    file.write_text(json.dumps({"schema": schema.to_json()}))

    outcome = command("parquet", "generate-metadata", str(dataset), "--schema", str(file), "--petastorm", "--json")

    assert outcome.json["schema_from"] == "given"
    assert ParquetDataset(dataset).schema == schema
    file.write_text("{")
    assert command("parquet", "generate-metadata", str(dataset), "--schema", str(file)).code == 2


def test_a_copy_is_made_and_told_of(command: Any, dataset: Path, tmp_path: Path) -> None:
    target = tmp_path / "copy"
    options = ["--fields", "id|car", "--not-null", "note", "--partition-by", "car", "--compression", "snappy"]

    outcome = command("parquet", "copy", str(dataset), str(target), *options)

    assert outcome.code == 0
    assert (outcome.facts["n_rows"], outcome.facts["n_left_out"]) == ("10", "10")
    assert "by_car" in outcome.out
    assert sorted(ParquetDataset(target).read_column("id").tolist()) == list(range(1, 20, 2))
    assert command("parquet", "copy", str(dataset), str(target)).code == 2
    assert command("parquet", "copy", str(dataset), str(target), "--overwrite", "--json").json["n_rows"] == 20


def test_datasets_in_stores_are_named_by_url(command: Any, dataset: Path, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/copied"

    outcome = command("parquet", "copy", str(dataset), url)

    assert outcome.code == 0, outcome.err
    assert command("parquet", "info", url, "--json").json["n_rows"] == 20
