"""Record datasets that are written under faults; their samples depend on nothing but their
number.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import numpy as np

from data_stack.exception import DataStackError
from data_stack.formats.records import ColumnType, RecordWriter

N_SAMPLES = 40
SPECS: dict[str, dict[str, str | ColumnType]] = {
    "columns": {
        "blob": "bytes",
        "id": "i64",
        "text": "utf8",
        "x": ColumnType("array", "float32", (5,)),
    },
    "sequences": {"frames": "array[]", "id": "i64", "text": "utf8[]"},
}


def sample(kind: str, i: int) -> dict[str, Any]:
    """Sample ``i`` of a dataset."""
    if kind == "columns":
        blob = random.Random(i).randbytes(i * 37 % 900)
        return {
            "blob": blob,
            "id": i,
            "text": f"text {i}" * (i % 3),
            "x": np.full(5, i, np.float32),
        }
    return {
        "frames": [np.full((2, 2), i % 256, np.uint8)] * (i % 3),
        "id": i,
        "text": [f"{i} {k}" for k in range(i * 7 % 4)],
    }


def write(folder: str, kind: str, said: str, n_samples: int = N_SAMPLES) -> int:
    """Write a dataset, or go on with it: with samples that are flushed and others, columns at once,
    and a checkpoint.

    Each time that samples are safe from a kill, their number is written to the file ``said``. With
    sequences they are at the end.
    """
    if kind == "sequences" and (Path(folder) / "spec.json").exists():
        return n_samples
    with RecordWriter(folder, SPECS[kind]) as writer:
        found = len(writer)
        while len(writer) < n_samples:
            i = len(writer)
            if i % 11 == 3:
                stop = min(n_samples, i + 5)
                rows = [sample(kind, k) for k in range(i, stop)]
                writer.extend({name: [row[name] for row in rows] for name in rows[0]})
            else:
                writer.append(sample(kind, i), flush=i % 3 == 0)
                if i % 3 == 0 and kind == "columns":
                    _say(said, len(writer))
            if i == n_samples // 2:
                writer.flush()
    _say(said, len(writer))
    return found


def large_sample(i: int) -> dict[str, Any]:
    """Sample ``i`` of a dataset of which a mebibyte is soon written."""
    return {**sample("columns", i), "blob": random.Random(i).randbytes(9_000 + i % 1000)}


def write_where_nothing_can_be_written(folder: str) -> list[str]:
    """The errors of a writer without the right to write, and of one whose dataset may only be
    read.
    """
    errors = []
    for path in (folder, str(Path(folder) / "below")):
        try:
            RecordWriter(path, SPECS["columns"])
        except DataStackError as error:
            errors.append(f"{type(error).__name__}: {error}")
    return errors


def hold(folder: str, ready: str) -> None:
    """Have a dataset open until we are killed."""
    with RecordWriter(folder, SPECS["columns"]) as writer:
        writer.append(sample("columns", 0), flush=True)
        Path(ready).touch()
        time.sleep(60)


def fork_with_an_open_writer(folder: str) -> list[Any]:
    """A fork that has our writer: what it is told, and whether we still hold the lock once it has
    ended.
    """
    writer = RecordWriter(folder, SPECS["columns"])
    for i in range(5):
        writer.append(sample("columns", i))
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with writer:
                writer.append(sample("columns", 5))
        except DataStackError as error:
            os.write(writing, str(error).encode())
        del writer
        os._exit(0)
    os.waitpid(child, 0)
    said = os.read(reading, 4096).decode()
    try:
        RecordWriter(folder, SPECS["columns"])
        is_free = True
    except DataStackError:
        is_free = False
    on_disk = os.path.getsize(Path(folder) / "id.bag")
    writer.append(sample("columns", 5))
    writer.close()
    return [said, is_free, on_disk, len(writer)]


def forget(folder: str) -> list[Any]:
    """A writer that nobody closes, and that is collected as garbage; threads and lock go with
    it.
    """
    writer = RecordWriter(folder, SPECS["columns"])
    for i in range(300):
        writer.append(large_sample(i))
    del writer
    with RecordWriter(folder, SPECS["columns"]) as again:  # the lock is free
        found = len(again)
        again.abandon()
    return [found, (Path(folder) / "manifest.json").exists()]


def _say(path: str, number: int) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    os.pwrite(handle, b"%09d" % number, 0)  # at once: we may be killed
    os.close(handle)
