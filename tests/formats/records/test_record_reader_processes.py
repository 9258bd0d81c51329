"""One reader and many threads, forked children and spawned processes."""

from __future__ import annotations

import multiprocessing
import operator
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_stack.codecs import codec
from data_stack.codecs.npy import NpyCodec
from data_stack.formats import records
from data_stack.formats.records import Column, RecordReader, RecordWriter, ShardedRecordReader, ShardedRecordWriter

N = 600
SPEC: dict[str, str | Column] = {
    "id": "i64",
    "image": Column("png", "uint8", (24, 24, 3)),
    "text": "utf8",
    "x": Column("array", "float32", (16,)),
}


def sample(i: int) -> dict[str, Any]:
    noise = np.random.default_rng(i)
    return {
        "id": i,
        "image": noise.integers(0, 256, (24, 24, 3), np.uint8),
        "text": f"text of {i} " * (i % 7),
        "x": np.full(16, i, np.float32),
    }


def is_right(found: dict[str, Any], i: int) -> bool:
    expected = sample(i)
    return all(np.array_equal(found[name], expected[name]) for name in expected)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("records")
    with RecordWriter(folder / "plain", SPEC) as writer:
        for i in range(N):
            writer.append(sample(i))
    with ShardedRecordWriter(folder / "sharded", SPEC, shardlen=70) as writer:
        for i in range(N):
            writer.append(sample(i))
    return folder


@pytest.fixture(params=["by range", "sharded"])
def reader(request: pytest.FixtureRequest, folder: Path, tmp_path: Path) -> Iterator[RecordReader | ShardedRecordReader]:
    name = "sharded" if request.param == "sharded" else "plain"
    with records.open(folder / name, mapped=request.param != "by range") as opened:
        yield opened


def check_much(reader: Any, seed: int, n_reads: int = 20) -> int:
    """Read here and there in all ways; number of wrong samples."""
    noise = np.random.default_rng(seed)
    wrong = 0
    for _ in range(n_reads):
        i = int(noise.integers(N))
        wrong += not is_right(reader[i], i)
        indices = noise.integers(0, N, 8)
        batch = reader.read_batch(indices)
        wrong += sum(
            not is_right({name: column[place] for name, column in batch.items()}, int(i)) for place, i in enumerate(indices)
        )
    return wrong


def test_threads_share_a_reader(reader: RecordReader) -> None:
    wrong: list[int] = []
    threads = [threading.Thread(target=lambda seed=seed: wrong.append(check_much(reader, seed))) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == [0] * 8


def test_forked_children_go_on_with_the_reader_of_their_parent(reader: RecordReader) -> None:
    check_much(reader, 0, 3)  # files are open, and threads have been made
    context = multiprocessing.get_context("fork")
    answers: Any = context.Queue()
    children = [context.Process(target=lambda seed=seed: answers.put(check_much(reader, seed))) for seed in range(4)]
    for child in children:
        child.start()
    here = check_much(reader, 99)
    there = [answers.get(timeout=60) for _ in children]
    for child in children:
        child.join()

    assert (here, there) == (0, [0] * 4)


def test_a_type_of_a_plugin_is_known_in_a_spawned_process_that_imported_no_plugins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(codec, "_providers", [lambda: {"scan": NpyCodec()}])
    spec: dict[str, str | Column] = {"scan": "scan", "small": "zstd(scan)"}
    for writer in (RecordWriter(tmp_path / "plain", spec), ShardedRecordWriter(tmp_path / "sharded", spec, shardlen=2)):
        with writer:
            for i in range(5):
                writer.append({"scan": np.full(3, i), "small": np.full(4, i)})

    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        for name in ("plain", "sharded"):
            with records.open(tmp_path / name) as reader:
                found = pool.submit(operator.getitem, reader, 3).result(timeout=120)
            assert found["scan"].tolist() == [3, 3, 3]
            assert found["small"].tolist() == [3, 3, 3, 3]
