"""Record datasets without a manifest whose columns do not hold the same samples, as a kill or a cut leaves them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import granular
import pytest

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats import records
from data_stack.formats.records import RecordReader, RecordWriter

SPEC = {"number": "i64", "text": "utf8"}


def sample(i: int) -> dict[str, Any]:
    return {"number": i, "text": "word " * (i % 4 + 1)}


def write_by_granular(folder: Path, n_samples: int) -> None:
    with granular.DatasetWriter(folder, SPEC, granular.encoders) as writer:
        for i in range(n_samples):
            writer.append(sample(i))


def cut(path: Path, n_bytes: int) -> None:
    os.truncate(path, path.stat().st_size - n_bytes)


def lengthen(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


#: What is done to a dataset of 10 samples, and how many are whole then.
FAULTS: dict[str, tuple[Callable[[Path], None], int]] = {
    "index torn": (lambda folder: cut(folder / "text.idx", 3), 9),
    "records cut short": (lambda folder: cut(folder / "number.bag", 1), 9),
    "records of all gone": (lambda folder: cut(folder / "number.bag", 80), 0),
    "records longer": (lambda folder: lengthen(folder / "text.bag", b"wor"), 10),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_columns_that_differ_are_an_error_until_a_writer_resumes_behind_the_common_prefix(tmp_path: Path, fault: str) -> None:
    damage, n_whole = FAULTS[fault]
    write_by_granular(tmp_path, 10)
    damage(tmp_path)

    with pytest.raises(DatasetFileCorruptError, match=r"'number': \d+, 'text': \d+.*RecordWriter"):
        records.open(tmp_path, columns=["number"])
    with RecordWriter(tmp_path, SPEC) as writer:
        assert len(writer) == n_whole
        for i in range(n_whole, 12):
            writer.append(sample(i))
    with RecordReader(tmp_path) as reader:
        assert list(reader) == [sample(i) for i in range(12)]


@pytest.mark.parametrize("column", ["id", "words", "refs"])
def test_files_of_another_dataset_among_those_of_granular_0_21_are_noticed(tmp_path: Path, column: str) -> None:
    expected = [{"id": i, "words": ["a", "b"][: i % 3]} for i in range(6)]
    for name, n_samples in (("long", 6), ("short", 3)):
        with RecordWriter(tmp_path / name, {"id": "i64", "words": "utf8[]"}) as writer:
            for each in expected[:n_samples]:
                writer.append(each)
        (tmp_path / name / "manifest.json").unlink()
    shutil.copy(tmp_path / "short" / f"{column}.bag", tmp_path / "long")

    with pytest.raises(DatasetFileCorruptError):
        records.open(tmp_path / "long")
