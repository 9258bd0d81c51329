"""A finished dataset that Granular appended to: what the manifest covers is checked against it, the rest is served."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import granular
import numpy as np
import pytest

from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats import records
from data_stack.formats.records import Column, RecordReader, RecordWriter, ShardedRecordWriter
from data_stack.io.storage_connectors.memory import InMemoryStorageConnector

#: Four thousand bytes a record: the manifest ends inside of a block of 64 KiB.
SPEC: dict[str, str | Column] = {"label": "i64", "text": "utf8", "x": Column("array", "float32", (1000,))}
TYPES = {"label": "i64", "text": "utf8", "x": "array"}


def sample(i: int) -> dict[str, Any]:
    return {"label": i, "text": f"number {i}", "x": np.full(1000, i, np.float32)}


def write(folder: Path, n_ours: int = 30, n_theirs: int = 25) -> Path:
    with RecordWriter(folder, SPEC) as writer:
        for i in range(n_ours):
            writer.append(sample(i))
    with granular.DatasetWriter(folder, TYPES, granular.encoders) as theirs:
        for i in range(n_ours, n_ours + n_theirs):
            theirs.append(sample(i))
    return folder


def labels_of(reader: RecordReader) -> list[int]:
    assert all(each["x"][-1] == each["label"] and each["text"] == f"number {each['label']}" for each in reader)
    return [each["label"] for each in reader]


@pytest.mark.parametrize("mapped", [True, False])
def test_what_granular_appended_is_served_with_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mapped: bool
) -> None:
    folder = write(tmp_path / "data")

    with RecordReader(folder, mapped=mapped) as reader, RecordReader(folder, mapped=mapped) as second:
        assert labels_of(reader) == list(range(55))
        assert len(second) == 55
        assert second.read_batch([54, 3, 29, 30])["x"][:, 0].tolist() == [54, 3, 29, 30]
        assert reader.manifest is None
        assert reader.size == sum(path.stat().st_size for path in folder.iterdir() if path.suffix in (".bag", ".idx"))

    assert [record.getMessage() for record in caplog.records if "covers 30 of 55" in record.getMessage()] == [
        f"{folder / 'manifest.json'} covers 30 of 55 samples: another program, such as Granular, appended the others. These have "
        f"no checksums; add them with data_stack.formats.records.seal({str(folder)!r})"
    ]


@pytest.mark.parametrize("mapped", [True, False])
def test_damage_is_found_where_the_manifest_covers(tmp_path: Path, mapped: bool) -> None:
    folder = write(tmp_path / "data")
    data = bytearray((folder / "x.bag").read_bytes())
    size = len(data) // 55
    data[29 * size + size // 2] ^= 1
    (folder / "x.bag").write_bytes(data)

    with RecordReader(folder, mapped=mapped) as reader:
        assert reader[54]["label"] == 54
        assert reader[3]["label"] == 3
        with pytest.raises(DatasetFileCorruptError, match=r"x\.bag is damaged"):
            reader[29]
        with pytest.raises(DatasetFileCorruptError, match=r"x\.bag is damaged"):
            reader.verify()
    with pytest.raises(DatasetFileCorruptError, match="digest in the manifest"):
        records.seal(folder)


def test_verify_says_it_and_seal_renews_the_manifest(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = write(tmp_path / "data")
    with RecordReader(folder) as reader:
        caplog.clear()
        reader.verify()
        assert "covers 30 of 55 samples" in caplog.text

    assert records.seal(folder) == 55 == records.seal(str(folder))

    caplog.clear()
    with RecordReader(folder) as reader, caplog.at_level(logging.WARNING):
        reader.verify()
        assert reader.manifest is not None
        assert reader.manifest.count == 55
        assert labels_of(reader) == list(range(55))
    assert caplog.text == ""


def test_values_of_another_form_behind_those_of_one_layout(tmp_path: Path) -> None:
    folder = write(tmp_path / "data", 3, 0)
    with granular.DatasetWriter(folder, TYPES, granular.encoders) as theirs:
        theirs.append({**sample(3), "x": np.arange(4)})

    with RecordReader(folder) as reader:
        assert reader[3]["x"].tolist() == [0, 1, 2, 3]
        assert reader[2]["x"].shape == (1000,)


def test_of_an_interrupted_append_whole_samples_are_served(tmp_path: Path) -> None:
    folder = write(tmp_path / "data", 5, 2)
    with granular.BagWriter(folder / "label.bag") as ahead:
        ahead.append((7).to_bytes(8, "little"))
    with (folder / "x.bag").open("ab") as torn:
        torn.write(b"torn")

    with RecordReader(folder) as reader:
        assert labels_of(reader) == list(range(7))
    assert records.seal(folder) == 7
    assert (folder / "label.idx").stat().st_size == 7 * 8


def test_while_our_writer_is_at_work_the_manifest_counts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with RecordWriter(tmp_path / "data", SPEC) as writer:
        writer.append(sample(0), flush=True)
        for i in range(1, 600):
            writer.append(sample(i))
        with RecordReader(tmp_path / "data") as reader:
            assert len(reader) == 1
            assert reader[0]["label"] == 0
    assert caplog.text == ""


def test_shards_are_sealed_and_stores_are_not(tmp_path: Path) -> None:
    with ShardedRecordWriter(tmp_path / "shards", SPEC, shardlen=2) as writer:
        for i in range(4):
            writer.append(sample(i))
    with granular.DatasetWriter(tmp_path / "shards" / "000001", TYPES, granular.encoders) as theirs:
        theirs.append(sample(4))

    assert records.seal(tmp_path / "shards") == 5
    with records.open(tmp_path / "shards") as reader:
        assert [each["label"] for each in reader] == [0, 1, 2, 3, 4]
    with pytest.raises(ConfigError, match="local folder"):
        records.seal(InMemoryStorageConnector())
