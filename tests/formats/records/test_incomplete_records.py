"""Record datasets without a manifest whose columns do not hold the same samples, as a kill or a cut leaves them."""

from __future__ import annotations

import logging
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import granular
import pytest

from data_stack.cli.main import main
from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats import records
from data_stack.formats.records import RecordReader, RecordWriter, ShardedRecordReader
from data_stack.io.storage_connectors import InMemoryStorageConnector

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


#: What is done to a dataset of 10 samples, how many are whole then, and what the error says of the column.
FAULTS: dict[str, tuple[Callable[[Path], None], int, str]] = {
    "one index short": (lambda folder: cut(folder / "text.idx", 8), 9, r"number 10, text 9 \("),
    "index torn": (lambda folder: cut(folder / "text.idx", 3), 9, r"text 9 \(and a part"),
    "index with a torn entry more": (lambda folder: lengthen(folder / "text.idx", b"abc"), 10, r"text 10 \(and a part"),
    "index empty": (lambda folder: cut(folder / "text.idx", 80), 0, r"number 10, text 0 \("),
    "records cut short": (lambda folder: cut(folder / "number.bag", 1), 9, r"number 9 \(and a part"),
    "records of all gone": (lambda folder: cut(folder / "number.bag", 80), 0, r"number 0 \(and a part"),
    "records longer": (lambda folder: lengthen(folder / "text.bag", b"wor"), 10, r"text 10 \(and a part"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_columns_that_differ_are_an_error_that_names_each_with_its_length_and_what_to_do(tmp_path: Path, fault: str) -> None:
    damage, _, said = FAULTS[fault]
    write_by_granular(tmp_path, 10)
    damage(tmp_path)

    for open_it in (RecordReader, records.open):
        with pytest.raises(DatasetFileCorruptError, match=said) as caught:
            open_it(tmp_path, columns=["number"])
        for words in ("number ", "text ", "RecordWriter", "incomplete='prefix'"):
            assert words in str(caught.value)


@pytest.mark.parametrize("fault", FAULTS)
def test_the_common_prefix_is_read_where_it_is_asked_for_with_a_warning(
    tmp_path: Path, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    damage, n_whole, said = FAULTS[fault]
    write_by_granular(tmp_path, 10)
    damage(tmp_path)

    with caplog.at_level(logging.WARNING, "data_stack"), records.open(tmp_path, incomplete="prefix") as reader:
        assert list(reader) == list(pickle.loads(pickle.dumps(reader))) == [sample(i) for i in range(n_whole)]
        with pytest.raises(DatasetFileCorruptError, match=said):
            reader.verify()
    assert f"The first {n_whole} samples" in caplog.text


@pytest.mark.parametrize("fault", FAULTS)
def test_a_writer_goes_on_behind_the_common_prefix(tmp_path: Path, fault: str) -> None:
    damage, n_whole, _ = FAULTS[fault]
    write_by_granular(tmp_path, 10)
    damage(tmp_path)

    with RecordWriter(tmp_path, SPEC) as writer:
        assert len(writer) == n_whole
        for i in range(n_whole, 12):
            writer.append(sample(i))

    with RecordReader(tmp_path) as reader:
        assert list(reader) == [sample(i) for i in range(12)]


def test_what_granular_refuses_is_refused(tmp_path: Path) -> None:
    write_by_granular(tmp_path, 10)
    cut(tmp_path / "text.idx", 8)

    with pytest.raises(AssertionError, match="Inconsistent column lengths"):
        granular.DatasetReader(tmp_path, granular.decoders)
    with pytest.raises(DatasetFileCorruptError, match="text 9"):
        RecordReader(tmp_path)


def test_in_a_store_too(tmp_path: Path) -> None:
    write_by_granular(tmp_path, 10)
    cut(tmp_path / "text.idx", 8)
    store = InMemoryStorageConnector()
    for path in tmp_path.iterdir():
        with path.open("rb") as file:
            store.set_resource(f"set/{path.name}", file)

    with pytest.raises(DatasetFileCorruptError, match="number 10, text 9"):
        records.open(store, prefix="set")
    assert len(records.open(store, prefix="set", incomplete="prefix")) == 9


@pytest.mark.parametrize(("column", "n_whole"), [("id", 3), ("words", 5), ("refs", 3)])
def test_files_of_another_dataset_among_those_of_granular_0_21_are_noticed(tmp_path: Path, column: str, n_whole: int) -> None:
    expected = [{"id": i, "words": ["a", "b"][: i % 3]} for i in range(6)]
    for name, n_samples in (("long", 6), ("short", 3)):
        with RecordWriter(tmp_path / name, {"id": "i64", "words": "utf8[]"}) as writer:
            for each in expected[:n_samples]:
                writer.append(each)
        (tmp_path / name / "manifest.json").unlink()
    shutil.copy(tmp_path / "short" / f"{column}.bag", tmp_path / "long")

    with pytest.raises(DatasetFileCorruptError, match=f"{column} 3"):
        records.open(tmp_path / "long")
    with records.open(tmp_path / "long", incomplete="prefix") as reader:
        assert list(reader) == expected[: 3 if column != "words" else len(reader)]
        assert len(reader) == (4 if column == "words" else n_whole)


def test_an_incomplete_shard_is_named_and_its_prefix_read_where_that_is_asked_for(tmp_path: Path) -> None:
    with granular.ShardedDatasetWriter(tmp_path, SPEC, granular.encoders, shardlen=4) as writer:
        for i in range(10):
            writer.append(sample(i))
    cut(tmp_path / "000002" / "text.idx", 8)

    for open_it in (records.open, ShardedRecordReader):
        with pytest.raises(DatasetFileCorruptError, match=r"000002.*number 2, text 1"):
            open_it(tmp_path)
    with records.open(tmp_path, incomplete="prefix") as reader:
        assert list(reader) == list(pickle.loads(pickle.dumps(reader))) == [sample(i) for i in range(9)]


def test_a_shard_of_other_columns_is_refused_whichever_are_read(tmp_path: Path) -> None:
    for number, spec in enumerate(({"number": "i64", "text": "utf8"}, {"number": "i64"})):
        with RecordWriter(tmp_path / f"{number:06d}", spec) as writer:
            writer.append({name: sample(3)[name] for name in spec})

    with pytest.raises(DatasetFileCorruptError, match=r"shard .*000001 has the columns .*'number': 'i64'}, the first one"):
        records.open(tmp_path, columns=["number"])


def test_convert_fails_on_an_incomplete_dataset_and_leaves_no_target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_by_granular(tmp_path / "source", 10)
    cut(tmp_path / "source" / "text.idx", 8)

    code = main(["convert", str(tmp_path / "source"), str(tmp_path / "target.npz")])

    assert code == 1
    assert "number 10, text 9" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["source"]


def test_other_words_for_incomplete_are_refused(tmp_path: Path) -> None:
    write_by_granular(tmp_path, 1)

    with pytest.raises(ConfigError, match="'raise' or 'prefix'"):
        records.open(tmp_path, incomplete="skip")  # type: ignore[arg-type]
