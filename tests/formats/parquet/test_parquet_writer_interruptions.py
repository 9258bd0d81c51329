"""Parquet writers that are killed, refused by the disk, or left by an error: no row is lost or doubled, nothing is half there."""

from __future__ import annotations

import gc
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from mongodb_server import folder_in_memory
from sizes import sized

from data_stack.exception import ConfigError, DatasetFileCorruptError, StorageFullError
from data_stack.formats.parquet import Field, ParquetDataset, ParquetWriter, Schema

#: Kills a writer at its n-th file operation, has another one go on, and prints how many operations a whole run takes.
KILLER = """
import os, shutil, signal, sys, traceback
import numpy as np
import pandas  # pyarrow does it, and each child would anew
from data_stack.formats.parquet import Field, ParquetDataset, ParquetManifest, ParquetWriter, Schema
from data_stack.io.folder import folder_of
import data_stack.formats.parquet.selecting
import data_stack.formats.parquet.writer_part

folder, partitioned = sys.argv[1], sys.argv[2] == "yes"
schema = Schema("s", [Field("id", "int64"), Field("part", str), Field("x", "float32", (3,))])
countdown = -1
if not partitioned:
    data_stack.formats.parquet.writer_part._UNNOTED_PERCENT = 60  # as of many files

def at_each_operation(event, arguments):
    global countdown
    if event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir") and (folder in arguments[0] or "/" not in arguments[0]):
        countdown -= 1
        if countdown == 0:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(at_each_operation)

def write(first, last):
    with ParquetWriter(folder, schema, rows_per_file=5, partition_by=["part"] if partitioned else []) as writer:
        assert len(writer) >= first, len(writer)
        for number in range(len(writer), last):
            writer.append({"id": number, "part": f"p{number % 2}", "x": np.full(3, number, np.float32)})

def in_child(work):
    global countdown
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    return status

def check():
    dataset = ParquetDataset(folder)
    assert sorted(dataset.read_column("id").tolist()) == list(range(22))
    assert all((row["x"] == row["id"]).all() for row in dataset)
    left = [name for _, _, names in os.walk(folder) for name in names if name.startswith((".", "_"))]
    assert sorted(left) == ["_data_stack_manifest.parquet"], left

def write_and_append():
    write(0, 12)
    write(12, 22)

def go_on():
    # What is complete is never lost: the first run completed 12 rows, if its manifest was there.
    n_there = len(ParquetDataset(folder)) if os.path.isdir(folder) and ParquetManifest.read(folder_of(folder)) else 0
    write(n_there, 22)

stride = int(sys.argv[3])
at = 1 - stride
while True:
    at += stride
    shutil.rmtree(folder, ignore_errors=True)
    countdown = at
    status = in_child(write_and_append)
    countdown = -1
    if not os.WIFSIGNALED(status):
        assert status == 0, (at, status)
        break
    assert in_child(go_on) == 0, at
    assert in_child(check) == 0, at
print(at)
"""

SCHEMA = Schema("s", [Field("id", "int64"), Field("x", "float64", (512,))])


def append(writer: ParquetWriter, first: int, last: int) -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(1000, 512))
    for number in range(first, last):
        writer.append({"id": number, "x": noise[number]})


@pytest.mark.parametrize(("partitioned", "stride"), [("yes", sized(18, 1)), ("no", sized(14, 1))])
def test_a_writer_killed_at_any_point_loses_and_doubles_no_row(partitioned: str, stride: int) -> None:
    # In memory where there is such a folder: processes are killed here, no power is cut.
    with tempfile.TemporaryDirectory(prefix="data_stack-parquet-", dir=folder_in_memory()) as folder:
        found = subprocess.run(
            [sys.executable, "-W", "ignore::DeprecationWarning", "-c", KILLER, f"{folder}/set", partitioned, str(stride)],
            capture_output=True,
            text=True,
            check=False,
        )

    assert found.returncode == 0, found.stderr
    assert int(found.stdout) > 20


@pytest.fixture
def limited() -> Iterator[Any]:
    """Sets how large a file may become, as a disk or quota that is full does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit(n_bytes: int | None) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft if n_bytes is None else n_bytes, hard))

    yield limit
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("n_bytes", [100_000, 380_000, 389_120])  # in the rows of the first file, in its last ones
def test_a_disk_that_is_full_before_the_first_file_leaves_nothing(tmp_path: Path, limited: Any, n_bytes: int) -> None:
    limited(n_bytes)
    try:
        with pytest.raises(StorageFullError, match="part-000000"), ParquetWriter(tmp_path, SCHEMA, rows_per_file=100) as writer:
            append(writer, 0, 150)
    finally:
        limited(None)
    gc.collect()

    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_is_reported_and_the_next_writer_resumes_after_complete_files(tmp_path: Path, limited: Any) -> None:
    with ParquetWriter(tmp_path, SCHEMA, rows_per_file=50) as writer:
        append(writer, 0, 120)
        writer.checkpoint()
        limited(100_000)
        try:
            with pytest.raises(StorageFullError, match=r"part-0000"):
                append(writer, 120, 300)
            with pytest.raises(ConfigError, match="broken by an error"):
                append(writer, 120, 121)
            with pytest.raises(ConfigError, match="broken by an error"):
                writer.close()
        finally:
            limited(None)

    with pytest.raises(DatasetFileCorruptError, match="not finished"):
        ParquetDataset(tmp_path)
    with ParquetWriter(tmp_path, rows_per_file=50) as writer:
        assert len(writer) == 120
        append(writer, 120, 200)
    assert ParquetDataset(tmp_path).read_column("id").tolist() == list(range(200))
    assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith("part-")) == [
        "_data_stack_manifest.parquet"
    ]


def test_an_error_in_the_block_leaves_only_whole_files(tmp_path: Path) -> None:
    with pytest.raises(KeyError), ParquetWriter(tmp_path, SCHEMA, rows_per_file=50) as writer:
        append(writer, 0, 120)
        raise KeyError

    files = sorted(path.name for path in tmp_path.iterdir() if path.is_file())
    assert files == ["part-000000.parquet", "part-000001.parquet"]
    assert pq.read_table(tmp_path / files[1]).column("id").to_pylist() == list(range(50, 100))
    with pytest.raises(ConfigError, match="interrupted"):
        ParquetWriter(tmp_path, SCHEMA, resume=False)
    with pytest.raises(ConfigError, match="another schema"):
        ParquetWriter(tmp_path, Schema("s", [Field("id", "int64")]))
    note = tmp_path / "_data_stack_progress" / "manifest.json"
    data = note.read_bytes()
    note.write_bytes(data.replace(b"50", b"51", 1))
    with pytest.raises(DatasetFileCorruptError, match=r"_data_stack_progress"):
        ParquetWriter(tmp_path)
    note.write_bytes(data)
    with ParquetWriter(tmp_path, SCHEMA) as writer:
        assert len(writer) == 100
