"""The command that converts datasets: what it prints, makes, and answers with its exit code."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_stack.formats import records
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
