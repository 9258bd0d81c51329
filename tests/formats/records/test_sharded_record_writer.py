"""Shards: their length, going on with them, several writers, and in stores."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mongodb_server import folder_in_memory

from data_stack.exception import ConfigError
from data_stack.formats import records
from data_stack.formats.records import Column, RecordReader, ShardedRecordWriter
from data_stack.io.storage_connectors import FileStorageConnector

SPEC: dict[str, str | Column] = {"id": "i64", "name": "utf8"}


def row(i: int) -> dict[str, Any]:
    return {"id": i, "name": f"n{i}"}


def ids(folder: Path) -> list[list[int]]:
    """The numbers in each shard."""
    found = []
    for name in sorted(os.listdir(folder)):
        with RecordReader(folder / name) as reader:
            reader.verify()
            assert reader.manifest is not None
            found.append(reader.read_column("id").tolist() if len(reader) else [])
    return found


@given(
    steps=st.lists(st.tuples(st.sampled_from(["append", "extend", "close", "abandon"]), st.integers(0, 8)), max_size=6),
    shardlen=st.integers(1, 6),
)
def test_the_shards_do_not_depend_on_how_samples_were_given(steps: list[tuple[str, int]], shardlen: int) -> None:
    with tempfile.TemporaryDirectory(dir=folder_in_memory()) as folder:
        check_shards(Path(folder), steps, shardlen)


def check_shards(folder: Path, steps: list[tuple[str, int]], shardlen: int) -> None:
    writer = ShardedRecordWriter(folder, SPEC, shardlen=shardlen)
    n_samples = 0
    for what, size in steps:
        assert len(writer) == n_samples
        if what == "append":
            for i in range(n_samples, n_samples + size):
                writer.append(row(i))
        elif what == "extend":
            stop = n_samples + size
            writer.extend({"id": np.arange(n_samples, stop), "name": [f"n{i}" for i in range(n_samples, stop)]})
        else:
            writer.close() if what == "close" else writer.abandon()
            writer = ShardedRecordWriter(folder, SPEC, shardlen=shardlen)
        n_samples += size if what in ("append", "extend") else 0
    writer.close()

    assert ids(folder) == [list(range(i, min(n_samples, i + shardlen))) for i in range(0, max(1, n_samples), shardlen)]


def test_in_a_store_finished_shards_stay_and_the_unfinished_one_is_begun_anew(tmp_path: Path) -> None:
    connector = FileStorageConnector(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        with ShardedRecordWriter(connector, SPEC, prefix="a", shardlen=4) as writer:
            for i in range(10):
                writer.append(row(i))
            raise KeyboardInterrupt
    (tmp_path / "a" / "000002").mkdir(exist_ok=True)
    (tmp_path / "a" / "000002" / "id.bag").write_bytes(bytes(40))  # died while it was published

    with ShardedRecordWriter(connector, SPEC, prefix="a", shardlen=4) as writer:
        n_found = len(writer)
        for i in range(n_found, 10):
            writer.append(row(i))

    assert n_found == 8
    assert ids(tmp_path / "a") == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    with records.open(connector, prefix="a") as reader:
        assert reader.read_column("id").tolist() == list(range(10))


@pytest.mark.parametrize("arguments", [{"shardlen": 0}, {"shardstart": 1}, {"shardstep": 2}, {"shardlen": 5, "shardstart": -1}])
def test_arguments_that_mean_nothing_are_refused(tmp_path: Path, arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ShardedRecordWriter(tmp_path / "a", SPEC, **arguments)
