"""Shards read as one dataset."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from far_store import FarStorageConnector
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from layer_laws import as_plain, check_all_ways_agree
from mongodb_server import folder_in_memory
from writing import append_all

from data_stack.dataset.iterator import DatasetIteratorIF
from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.formats import records
from data_stack.formats.records import (
    ColumnType,
    RecordReader,
    RecordWriter,
    ShardedRecordReader,
    ShardedRecordWriter,
)
from data_stack.formats.records import writer as record_writer
from data_stack.io.storage_connectors import FileStorageConnector
from data_stack.loader import BlockShuffled, Loader
from data_stack.testing import DatasetIteratorContract
from data_stack.testing.comparing import assert_same

SPEC: dict[str, str | ColumnType] = {
    "id": "i64",
    "name": "utf8",
    "x": ColumnType("array", "int16", (3,)),
}


def sample(i: int) -> dict[str, Any]:
    return {"id": i, "name": "n" * (i % 5), "x": np.array([i, i + 1, i + 2], np.int16)}


def write(target: Any, lengths: list[int], prefix: str = "") -> list[dict[str, Any]]:
    """Shards of these lengths."""
    written: list[dict[str, Any]] = []
    for number, length in enumerate(lengths):
        part = [sample(len(written) + i) for i in range(length)]
        append_all(RecordWriter(target, SPEC, prefix=f"{prefix}{number:06d}"), part)
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
def test_all_ways_to_the_samples_agree(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int], data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("shards")
    expected = write(folder, lengths)

    with ShardedRecordReader(folder) as reader:
        check_all_ways_agree(reader, expected, data)
        assert list(reader.read_batch([])) == list(SPEC)


def test_parts_of_samples_are_read(tmp_path: Path) -> None:
    for number in range(2):
        part = (
            {"id": i + 3 * number, "words": [f"{number}{i}{k}" for k in range(i)]} for i in range(3)
        )
        append_all(RecordWriter(tmp_path / f"{number:06d}", {"id": "i64", "words": "utf8[]"}), part)

    with records.open(tmp_path) as reader:
        assert (
            reader[5]
            == reader.read(5)
            == next(iter(reader[5:]))
            == {"id": 5, "words": ["120", "121"]}
        )
        assert reader[5, ["id"]] == {"id": 5}
        assert reader[-1, {"words": range(1, 9)}] == {"words": ["121"]}
        assert reader.available(5) == {"id": True, "words": range(2)}
        assert reader.features["words"].dtype == "utf8[]"
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
    append_all(RecordWriter(tmp_path / "copy" / "000001", {"id": "i64"}, prefix=""), [{"id": 1}])
    with pytest.raises(DatasetFileCorruptError, match="000001 has the columns"):
        records.open(tmp_path / "copy")


@pytest.mark.parametrize("sequences", [{}, {"xs": "utf8[]"}], ids=["rows", "sequences"])
def test_hundreds_of_shards_need_few_descriptors(tmp_path: Path, sequences: dict[str, str]) -> None:
    expected = [{**sample(i), **{key: ["a", "b"] for key in sequences}} for i in range(120)]
    append_all(ShardedRecordWriter(tmp_path, {**SPEC, **sequences}, shardlen=2), expected)
    (soft, hard), n_open = (
        resource.getrlimit(resource.RLIMIT_NOFILE),
        len(os.listdir("/proc/self/fd")),
    )
    order = np.random.default_rng(0).permutation(120)
    resource.setrlimit(resource.RLIMIT_NOFILE, (n_open + 60, hard))
    try:
        for source, mapped in (
            (tmp_path, True),
            (tmp_path, False),
            (FileStorageConnector(tmp_path), True),
        ):
            with ShardedRecordReader(source, mapped=mapped) as reader:
                assert_same([reader[int(i)] for i in order], [expected[i] for i in order])
                assert [reader.read(i, {}) for i in range(120)] == [{}] * 120
                assert_same(list(reader), expected)
                assert reader.read_batch(order)["id"].tolist() == [expected[i]["id"] for i in order]
                assert len(os.listdir("/proc/self/fd")) - n_open < 50
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(os.listdir("/proc/self/fd")) <= n_open


def test_remote_shards_of_sequences_fetch_their_references_once(tmp_path: Path) -> None:
    store, expected = (
        FarStorageConnector(tmp_path),
        [{"id": i, "words": ["a"][: i % 2]} for i in range(6)],
    )
    append_all(ShardedRecordWriter(store, {"id": "i64", "words": "utf8[]"}, shardlen=3), expected)
    store.requests.clear()

    with records.open(store) as reader:
        assert as_plain(reader.read_batch([5, 2, 0])) == {"id": [5, 2, 0], "words": [["a"], [], []]}
        assert list(reader) == expected
        with pytest.raises(ConfigError):
            reader.read_column("nothing", [5, 0])
    # Of each shard the manifest, the references, and of both columns the records, after the end of
    # the file for their size.
    assert len(store.requests) == 2 * 6


# ---------------------------------------------------------------------- writing shards


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
    steps=st.lists(
        st.tuples(st.sampled_from(["append", "extend", "close", "abandon"]), st.integers(0, 8)),
        max_size=6,
    ),
    shardlen=st.integers(1, 6),
)
def test_the_shards_do_not_depend_on_how_samples_were_given(
    steps: list[tuple[str, int]], shardlen: int
) -> None:
    with tempfile.TemporaryDirectory(dir=folder_in_memory()) as folder:
        writer = ShardedRecordWriter(Path(folder), SPEC, shardlen=shardlen)
        n_samples = 0
        for what, size in steps:
            assert len(writer) == n_samples
            if what == "append":
                for i in range(n_samples, n_samples + size):
                    writer.append(sample(i))
            elif what == "extend":
                stop = n_samples + size
                writer.extend(
                    {name: [sample(i)[name] for i in range(n_samples, stop)] for name in SPEC}
                )
            else:
                writer.close() if what == "close" else writer.abandon()
                writer = ShardedRecordWriter(Path(folder), SPEC, shardlen=shardlen)
            n_samples += size if what in ("append", "extend") else 0
        writer.close()

        assert ids(Path(folder)) == [
            list(range(i, min(n_samples, i + shardlen)))
            for i in range(0, max(1, n_samples), shardlen)
        ]


def test_more_samples_than_a_dataset_may_have_are_for_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_writer, "MAX_RECORDS", 5)
    with RecordWriter(tmp_path, SPEC) as writer:
        writer.extend({name: [sample(i)[name] for i in range(5)] for name in SPEC})
        with pytest.raises(ConfigError, match=r"at most 5 samples; write shards"):
            writer.append(sample(5), flush=True)
        assert len(writer) == 5


def test_in_a_store_only_the_unfinished_shard_is_written_again(
    tmp_path: Path,
) -> None:
    connector = FileStorageConnector(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        with ShardedRecordWriter(connector, SPEC, prefix="a", shardlen=4) as writer:
            for i in range(10):
                writer.append(sample(i))
            raise KeyboardInterrupt
    (tmp_path / "a" / "000002").mkdir(exist_ok=True)
    (tmp_path / "a" / "000002" / "id.bag").write_bytes(bytes(40))  # died while it was published

    with ShardedRecordWriter(connector, SPEC, prefix="a", shardlen=4) as writer:
        n_found = len(writer)
        for i in range(n_found, 10):
            writer.append(sample(i))

    assert n_found == 8
    assert ids(tmp_path / "a") == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    with records.open(connector, prefix="a") as reader:
        assert reader.read_column("id").tolist() == list(range(10))


@pytest.mark.parametrize(
    "arguments",
    [{"shardlen": 0}, {"shardstart": 1}, {"shardstep": 2}, {"shardlen": 5, "shardstart": -1}],
)
def test_arguments_that_mean_nothing_are_refused(tmp_path: Path, arguments: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ShardedRecordWriter(tmp_path / "a", SPEC, **arguments)


def test_an_epoch_by_blocks_fetches_each_remote_block_once(tmp_path: Path) -> None:
    store, rng = FarStorageConnector(tmp_path, block_bytes=1 << 16), np.random.default_rng(0)
    writer = ShardedRecordWriter(
        FileStorageConnector(tmp_path), {"data": "bytes", "n": "i64"}, shardlen=90
    )
    append_all(
        writer,
        ({"data": rng.bytes(100_000) + b"%d" % number, "n": number} for number in range(270)),
    )
    reader = records.open(store)
    whole = sum(file.stat().st_size for file in tmp_path.rglob("*.bag"))

    with Loader(reader, 16, shuffle=BlockShuffled(window=4), worker_kind="threads") as loader:
        seen = [
            pair
            for batch in loader
            for pair in zip(batch["n"].tolist(), batch["data"], strict=True)
        ]

    assert sorted(number for number, _ in seen) == list(range(270))
    assert all(data.endswith(b"%d" % number) for number, data in seen)
    assert store.fetched_bytes <= 1.2 * whole
    assert reader.read_batch([200, 5, 100])["n"].tolist() == [200, 5, 100]
