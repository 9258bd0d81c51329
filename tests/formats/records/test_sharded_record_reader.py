"""Shards read as one dataset."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from layer_laws import as_plain, check_all_ways_agree

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.exception import DatasetFileCorruptError
from data_stack.formats import records
from data_stack.formats.records import Column, RecordWriter, ShardedRecordReader
from data_stack.testing import DatasetIteratorContract
from data_stack.testing.iterators import assert_same

SPEC: dict[str, str | Column] = {"id": "i64", "name": "utf8", "x": Column("array", "int16", (3,))}


def sample(i: int) -> dict[str, Any]:
    return {"id": i, "name": "n" * (i % 5), "x": np.array([i, i + 1, i + 2], np.int16)}


def write(target: Any, lengths: list[int], prefix: str = "") -> list[dict[str, Any]]:
    """Shards of these lengths."""
    written: list[dict[str, Any]] = []
    for number, length in enumerate(lengths):
        part = [sample(len(written) + i) for i in range(length)]
        with RecordWriter(target, SPEC, prefix=f"{prefix}{number:06d}") as writer:
            for each in part:
                writer.append(each)
        written += part
    return written


class TestShardedRecordReader(DatasetIteratorContract):
    @pytest.fixture
    def expected(self, tmp_path: Path) -> list[Any]:
        return write(tmp_path, [3, 0, 4, 1])

    @pytest.fixture
    def iterator(self, tmp_path: Path, expected: list[Any]) -> Iterator[DatasetIteratorIF]:
        with ShardedRecordReader(tmp_path) as reader:
            yield reader


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lengths=st.lists(st.integers(0, 4), min_size=1, max_size=4), data=st.data())
def test_all_ways_to_the_samples_agree(tmp_path_factory: pytest.TempPathFactory, lengths: list[int], data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("shards")
    expected = write(folder, lengths)

    with ShardedRecordReader(folder) as reader:
        check_all_ways_agree(reader, expected, data)
        assert list(reader.read_batch([])) == list(SPEC)


def test_parts_of_samples_are_read(tmp_path: Path) -> None:
    for number in range(2):
        with RecordWriter(tmp_path / f"{number:06d}", {"id": "i64", "words": "utf8[]"}) as writer:
            for i in range(3):
                writer.append({"id": i + 3 * number, "words": [f"{number}{i}{k}" for k in range(i)]})

    with records.open(tmp_path) as reader:
        assert reader[5, ["id"]] == {"id": 5}
        assert reader[-1, {"words": range(1, 9)}] == {"words": ["121"]}
        assert reader.available(5) == {"id": True, "words": range(2)}
        assert as_plain(reader.read_batch([5, 0])) == {"id": [5, 0], "words": [["120", "121"], []]}
        with pytest.raises(TypeError):
            reader[1:2, ["id"]]


def test_a_shard_that_is_missing_or_damaged_is_named(tmp_path: Path) -> None:
    write(tmp_path, [2, 2, 2])
    shutil.copytree(tmp_path, tmp_path / "copy")

    (tmp_path / "copy" / "000001" / "spec.json").unlink()
    with pytest.raises(DatasetFileCorruptError, match="000001"):
        records.open(tmp_path / "copy")
    shutil.rmtree(tmp_path / "copy" / "000001")
    with pytest.raises(DatasetFileCorruptError, match=r"shard 000001 .*is missing"):
        records.open(tmp_path / "copy")
    (tmp_path / "copy" / "000001").mkdir()
    with pytest.raises(DatasetFileCorruptError, match="000001"):
        records.open(tmp_path / "copy")
    with RecordWriter(tmp_path / "copy" / "000001", {"id": "i64"}, prefix="") as writer:
        writer.append({"id": 1})
    with pytest.raises(DatasetFileCorruptError, match="000001 has the columns"):
        records.open(tmp_path / "copy")


def test_hundreds_of_shards_need_few_descriptors(tmp_path: Path) -> None:
    expected = write(tmp_path, [2] * 60)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    n_open = len(os.listdir("/proc/self/fd"))
    order = np.random.default_rng(0).permutation(120)
    resource.setrlimit(resource.RLIMIT_NOFILE, (n_open + 60, hard))
    try:
        with ShardedRecordReader(tmp_path) as reader:
            assert_same([reader[int(i)] for i in order], [expected[i] for i in order])
            assert_same(list(reader), expected)
            assert reader.read_batch(order)["id"].tolist() == [expected[i]["id"] for i in order]
            assert len(os.listdir("/proc/self/fd")) - n_open < 50
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(os.listdir("/proc/self/fd")) == n_open
