"""A finished dataset that Granular appended to: it is served without checksums until it is sealed."""

from __future__ import annotations

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


def test_what_granular_appended_is_served_with_one_warning_until_it_is_sealed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write(tmp_path / "data", 3, 2)
    with granular.DatasetWriter(folder, TYPES, granular.encoders) as theirs:
        theirs.append({**sample(5), "x": np.arange(4)})  # of another form than those before

    for _ in range(2):
        with RecordReader(folder) as reader:
            assert (len(reader), reader.manifest) == (6, None)
            assert reader.read_batch([4, 1])["x"][:, 0].tolist() == [4, 1]
            assert reader[5]["x"].tolist() == [0, 1, 2, 3]
            reader.verify()
    assert caplog.text.count("does not cover all samples") == 1

    assert records.seal(folder) == 6 == records.seal(str(folder))
    with RecordReader(folder) as reader:
        reader.verify()
        assert reader.manifest is not None
        assert reader.manifest.count == 6


def test_damage_is_found_by_seal_where_the_manifest_covers(tmp_path: Path) -> None:
    folder = write(tmp_path / "data")
    data = bytearray((folder / "x.bag").read_bytes())
    data[len(data) // 3] ^= 1
    (folder / "x.bag").write_bytes(data)

    with pytest.raises(DatasetFileCorruptError, match="digest in the manifest"):
        records.seal(folder)


def test_an_interrupted_append_is_an_error_until_it_is_sealed(tmp_path: Path) -> None:
    folder = write(tmp_path / "data", 5, 2)
    with granular.BagWriter(folder / "label.bag") as ahead:
        ahead.append((7).to_bytes(8, "little"))
    with (folder / "x.bag").open("ab") as torn, (folder / "text.idx").open("ab") as index, (folder / "x.idx").open("ab") as other:
        torn.write(b"torn")
        index.write(b"t")
        other.write(b"t")

    with pytest.raises(DatasetFileCorruptError, match="differ in their numbers"):
        RecordReader(folder)
    assert records.seal(folder) == 7
    assert (folder / "label.idx").stat().st_size == 7 * 8


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
