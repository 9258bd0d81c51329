"""Reads files of every kind where memory is short, in processes of its own, and prints what becomes of each as JSON.

    python tests/support/short_memory.py FOLDER

Each job runs in children, whose address space may grow by a few MiB; ``{job: [name of an error, or "read"]}``.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import resource
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import data_stack
from data_stack.codecs import codec_of
from data_stack.formats import ImageFolderIterator, WebDatasetIterator, records
from data_stack.formats.parquet import ParquetDataset
from data_stack.formats.records import RecordWriter

ROOMS = tuple(n << 20 for n in (2, 8))
#: What the C library does where a new thread has no memory.
DIED = "died"
CODECS = ("jpg", "png", "webp", "tiff", "mp4", "flac", "npz", "array", "zstd(bytes)", "json")
TABLES = ("numbers", "text", "nested")


def _value(kind: str, n: int) -> Any:
    """A value of a codec that grows with ``n``."""
    pixels = np.tile(np.arange(64 * 64 * 3, dtype=np.uint32).astype(np.uint8).reshape(64, 64, 3), (n, n, 1))
    grey = np.ascontiguousarray(pixels[..., 0])
    others: dict[str, Callable[[], Any]] = {
        "tiff": lambda: grey.astype(np.float32),
        "mp4": lambda: np.zeros((n, 720, 1280, 3), np.uint8),
        "flac": lambda: (np.zeros(400_000 * n, np.int16), 16_000),
        "npz": lambda: grey,
        "array": lambda: grey,
        "zstd(bytes)": lambda: bytes(2_000_000 * n),
        "json": lambda: ["abc"] * 40_000 * n,
    }
    return others.get(kind, lambda: pixels)()


def _table(kind: str, n: int) -> pa.Table:
    values: dict[str, Callable[[int], Any]] = {
        "numbers": lambda i: i,
        "text": lambda i: f"text {i}",
        "nested": lambda i: [{"a": i}],
    }
    return pa.table({"x": [values[kind](i) for i in range(n)]})


def make_files(folder: Path) -> None:
    """Write what is read later: here, so that no memory that was used for it is there then."""
    for kind in CODECS:
        for name, n in (("few", 1), ("many", 12 if kind == "mp4" else 50)):
            (folder / f"{name} {kind}").write_bytes(codec_of(kind).encode(_value(kind, n)))
    (folder / "pictures").mkdir()
    for number, n in enumerate((50, 1)):
        (folder / "pictures" / f"{number}.png").write_bytes(codec_of("png").encode(_value("png", n)))
    with tarfile.open(folder / "shard.tar", "w") as tar:
        tar.add(folder / "pictures", "pictures")
    with RecordWriter(folder / "records", {"x": "zstd(bytes)"}) as writer:
        writer.append({"x": bytes(90_000_000)})
        writer.append({"x": b"a"})
    with h5py.File(folder / "numbers.h5", "w") as file:
        file.create_dataset("x", data=np.arange(4_000_000).reshape(100, -1) % 1000, chunks=(50, 40_000), compression="gzip")
    for kind in TABLES:
        for name, n in (("few", 2), ("many", 600_000)):
            (folder / f"{name} {kind}").mkdir()
            pq.write_table(_table(kind, n), folder / f"{name} {kind}" / "0.parquet", row_group_size=n)


def outcome(job: Callable[[], Any], room: int) -> str:
    """The name of the error of a job in a process with so little memory."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            told = _run(job, room)
            resource.setrlimit(resource.RLIMIT_AS, resource.getrlimit(resource.RLIMIT_AS)[1:] * 2)
            os.write(writing, told.encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as file:
        told = file.read()
    os.waitpid(child, 0)
    return told or DIED


def _run(job: Callable[[], Any], room: int) -> str:
    pa.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (held, most))
    ballast = []  # what is free inside of the process
    for n_bytes in (1 << 20, 1 << 16, 1 << 12):
        with contextlib.suppress(MemoryError):
            while True:
                ballast.append(bytearray(n_bytes))
    resource.setrlimit(resource.RLIMIT_AS, (held + room, most))
    try:
        job()
    except MemoryError:
        return "MemoryError"
    except Exception as error:  # what this is about
        return f"{type(error).__name__}: {error}"[:200]
    return "read"


def jobs_of(folder: Path) -> dict[str, Callable[[], Any]]:
    """What is read, after each has read something small, so that all that it imports is there."""
    found: dict[str, Callable[[], Any]] = {}
    for kind in CODECS:
        codec = codec_of(kind)
        codec.decode((folder / f"few {kind}").read_bytes())
        record = (folder / f"many {kind}").read_bytes()
        found[f"codec {kind}"] = functools.partial(codec.decode, record)
    for kind in TABLES:
        ParquetDataset(folder / f"few {kind}").read_batch([0, 1])
        dataset = ParquetDataset(folder / f"many {kind}")
        found[f"parquet {kind}"] = functools.partial(dataset.read_batch, range(len(dataset)))
    iterators = {
        "folder": ImageFolderIterator(folder / "pictures"),
        "webdataset": WebDatasetIterator(folder / "shard.tar"),
        "records": records.open(folder / "records"),
    }
    for name, iterator in iterators.items():
        _ = iterator[len(iterator) - 1]
        found[name] = functools.partial(iterator.__getitem__, 0)
    rows: Any = data_stack.load(str(folder / "numbers.h5"))
    found["hdf5"] = functools.partial(rows.read_batch, range(len(rows)))
    return found


def main() -> None:
    """Run all jobs."""
    folder = Path(sys.argv[1])
    maker = os.fork()
    if maker == 0:
        try:
            make_files(folder)
        finally:
            os._exit(0)
    os.waitpid(maker, 0)
    jobs = jobs_of(folder)
    print(json.dumps({name: [outcome(job, room) for room in ROOMS] for name, job in jobs.items()}))


if __name__ == "__main__":
    main()
