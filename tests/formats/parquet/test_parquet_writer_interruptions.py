"""Parquet writers that are killed, refused by the disk, or left by an error: no row is lost or doubled, nothing is half there."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from full_disk import files_limited
from mongodb_server import folder_in_memory
from process_harness import in_fork
from sizes import sized

from data_stack.exception import ConfigError, DatasetFileCorruptError, StorageFullError
from data_stack.formats.parquet import (
    Field,
    ParquetDataset,
    ParquetManifest,
    ParquetWriter,
    Schema,
    writer_part,
)
from data_stack.io.folder import folder_of

SCHEMA = Schema("s", [Field("id", "int64"), Field("x", "float64", (512,))])


def append(writer: ParquetWriter, first: int, last: int) -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(1000, 512))
    for number in range(first, last):
        writer.append({"id": number, "x": noise[number]})


# ---------------------------------------------------------------------- used after its end


def test_an_abandoned_writer_writes_no_waiting_rows(tmp_path: Path) -> None:
    schema = Schema("s", [Field("id", "int64")])
    writer = ParquetWriter(tmp_path / "d", schema)
    writer.append({"id": 1})  # waits to be a batch
    writer.abandon()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ConfigError, match="its writer is abandoned"):
        writer.append_arrow(pa.table({"id": [2]}))
    assert sorted(tmp_path.rglob("*")) == before


# ---------------------------------------------------------------------- killed

PARTS = Schema("s", [Field("id", "int64"), Field("part", str), Field("x", "float32", (3,))])


def write(folder: str, partition_by: list[str], first: int, last: int) -> None:
    with ParquetWriter(folder, PARTS, rows_per_file=5, partition_by=partition_by) as writer:
        assert len(writer) >= first, len(writer)
        for number in range(len(writer), last):
            writer.append(
                {"id": number, "part": f"p{number % 2}", "x": np.full(3, number, np.float32)}
            )


def write_until_killed(folder: str, partition_by: list[str], at: int) -> None:
    """Write 12 rows, and 10 more, in a fork, which is killed at its n-th operation on names of files."""
    operations = itertools.count(1)

    def kill(event: str, arguments: tuple[Any, ...]) -> None:
        is_operation = event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir")
        if (
            is_operation
            and (folder in arguments[0] or "/" not in arguments[0])
            and next(operations) == at
        ):
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(kill)
    write(folder, partition_by, 0, 12)
    write(folder, partition_by, 12, 22)


@pytest.mark.parametrize(("partition_by", "stride"), [(["part"], sized(18, 1)), ([], sized(14, 1))])
def test_a_writer_killed_anywhere_loses_and_doubles_no_row(
    partition_by: list[str], stride: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not partition_by:
        monkeypatch.setattr(writer_part, "_MAX_UNNOTED_PERCENT", 60)  # as of many files
    # In memory where there is such a folder: processes are killed here, no power is cut.
    with tempfile.TemporaryDirectory(prefix="data_stack-parquet-", dir=folder_in_memory()) as place:
        for at in itertools.count(1, stride):
            folder = f"{place}/{at}"
            status = in_fork(
                lambda folder=folder, at=at: write_until_killed(  # type: ignore[misc]
                    folder, partition_by, at
                )
            )
            if status == 0:
                break
            assert status == -signal.SIGKILL
            # What is complete is never lost: the first run completed 12 rows, if its manifest is there.
            is_complete = os.path.isdir(folder) and ParquetManifest.read(folder_of(folder))
            write(folder, partition_by, len(ParquetDataset(folder)) if is_complete else 0, 22)

            rows = list(ParquetDataset(folder))
            assert sorted(row["id"] for row in rows) == list(range(22))
            assert all((row["x"] == row["id"]).all() for row in rows)
            left = [path.name for path in Path(folder).rglob("[._]*") if path.is_file()]
            assert left == ["_data_stack_manifest.parquet"]
    assert at > 20


# ---------------------------------------------------------------------- refused by the disk


@pytest.mark.parametrize(
    "n_bytes", [100_000, 380_000, 389_120]
)  # in the rows of the first file, in its last ones
def test_a_disk_full_before_the_first_file_leaves_nothing(tmp_path: Path, n_bytes: int) -> None:
    with files_limited(n_bytes), pytest.raises(StorageFullError, match="part-000000"):
        with ParquetWriter(tmp_path, SCHEMA, rows_per_file=100) as writer:
            append(writer, 0, 150)
    gc.collect()

    assert list(tmp_path.iterdir()) == []


def test_after_a_full_disk_writing_resumes_behind_complete_files(
    tmp_path: Path,
) -> None:
    with ParquetWriter(tmp_path, SCHEMA, rows_per_file=50) as writer:
        append(writer, 0, 120)
        writer.checkpoint()
        with files_limited(100_000):
            with pytest.raises(StorageFullError, match=r"part-0000"):
                append(writer, 120, 300)
            with pytest.raises(ConfigError, match="broken by an error"):
                append(writer, 120, 121)
            with pytest.raises(ConfigError, match="broken by an error"):
                writer.close()

    with pytest.raises(DatasetFileCorruptError, match="not finished"):
        ParquetDataset(tmp_path)
    with ParquetWriter(tmp_path, rows_per_file=50) as writer:
        assert len(writer) == 120
        append(writer, 120, 200)
    assert ParquetDataset(tmp_path).read_column("id").tolist() == list(range(200))
    left = [path.name for path in tmp_path.iterdir() if not path.name.startswith("part-")]
    assert left == ["_data_stack_manifest.parquet"]


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
