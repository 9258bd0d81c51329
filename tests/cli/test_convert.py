"""The commands on files in formats."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from petastorm_fixtures import petastorm_folder

from data_stack.formats import records
from data_stack.formats.parquet import Field, ParquetWriter, Schema
from data_stack.formats.records import Column


@pytest.fixture
def source(tmp_path: Path) -> Path:
    with records.RecordWriter(
        tmp_path / "source", {"x": Column("array", "float32", (4,)), "label": "i64", "text": "utf8"}
    ) as writer:
        for i in range(12):
            writer.append({"x": np.full(4, i, np.float32), "label": i, "text": "x" * i})
    return tmp_path / "source"


def test_a_dataset_is_converted_and_compared(command: Any, source: Path, tmp_path: Path) -> None:
    arguments = ("convert", str(source), str(tmp_path / "out.h5"), "--columns", "image=x,label")

    outcome = command(*arguments)

    assert outcome.code == 0, outcome.err
    assert command(*arguments, "--json").code == 2  # it is there already
    assert all(text in outcome.out for text in ("has 12 samples", "12 read back and equal", "image (array), label (i64)"))


def test_an_installed_dataset_is_a_source(command: Any, tmp_path: Path) -> None:
    outcome = command("convert", "digits:train", str(tmp_path / "digits"), "--columns", "image=sample,label=1")

    assert outcome.code == 0, outcome.err
    assert "1,437 samples of digits" in outcome.out
    with records.open(tmp_path / "digits") as reader:
        assert reader.schema["image"].shape == (8, 8)
        assert set(reader.read_column("label").tolist()) == set(range(10))


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["digits", "OUT"], 2, "train, test; choose one, such as digits:train"),
        (["nothing", "OUT"], 2, "no plugin provides a dataset 'nothing'"),
        (["nothing", "OUT", "--from", "hdf5"], 2, "'nothing'"),
        (["SOURCE", "OUT", "-O", "a=b"], 2, "--storage and -O"),
        (["SOURCE", "mongodb://user:secret@host/db"], 2, "must name a dataset in the store"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(
    command: Any, source: Path, tmp_path: Path, arguments: list[str], code: int, message: str
) -> None:
    places = {
        "SOURCE": str(source),
        "OUT": str(tmp_path / "out"),
    }

    outcome = command("convert", *(places.get(each, each) for each in arguments))

    assert outcome.code == code
    assert message in outcome.err
    assert "secret" not in outcome.err
    assert "Traceback" not in outcome.err
    assert sorted(os.listdir(tmp_path)) in (["source"], ["source", "store"])


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
