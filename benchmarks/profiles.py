"""Where the time goes in the work that falls short of its target: the functions that take most, by
their own time.

Run: python benchmarks/profiles.py [--only CASE …]

Cases:
  plain     an epoch of the loader over columns of numbers and lists of Parquet, shuffled over 4 row groups, in this thread
  png       an epoch of the loader over 60,000 PNGs of 28 x 28, in this thread
  ngram     an epoch of make_reader over sequences of three frames
  columns   writing W4 as records, by columns
  first     the first pass over W2 as records, every block checked
  single    one sample of W4 as records after the other, at random positions
  mongodb   256 MiB out of MongoDB in order
  s3        64 ranges of 4 KiB out of an object store on loopback, at once

Only the calling thread is profiled: what others do is in its waiting for them (``acquire``,
``poll``), and in the processor time of the process. A profiler makes calls of Python's functions
look two to five times as dear as they are.
"""

from __future__ import annotations

import cProfile
import pstats
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from harness import MIB, SUPPORT, machine, parser_of
from parquet_peers import alone
from record_peers import ours
from record_peers.workload import WORKLOADS

from data_stack.formats.records import RecordReader
from data_stack.io.storage_connectors import StorageConnector

_N_SHOWN = 12


@contextmanager
def parquet(folder: Path, case: str, way: str) -> Iterator[Callable[[], object]]:
    """An epoch of ``parquet.py``."""
    if not (folder / "files").exists():
        alone.write_files(folder / "files", small=False)
    yield lambda: alone.epoch_of(case, way, folder / "files")


@contextmanager
def records(
    folder: Path, name: str, read: Callable[[RecordReader], object] | None
) -> Iterator[Callable[[], object]]:
    """Writing a workload, or reading it."""
    work = WORKLOADS[name](False)
    if read is None:
        yield lambda: ours.write(work, folder / f"written-{random.randrange(10**9)}")
        return
    ours.write(work, folder / name)
    yield lambda: read(RecordReader(folder / name))


def read_all(reader: RecordReader) -> None:
    """Batches of 256 in order."""
    for start in range(0, len(reader), 256):
        reader.read_batch(np.arange(start, min(start + 256, len(reader))))


def read_singles(reader: RecordReader) -> None:
    """100,000 samples at random."""
    for position in np.random.default_rng(1).integers(0, len(reader), 100_000).tolist():
        reader[position]


@contextmanager
def mongodb() -> Iterator[Callable[[], object]]:
    """Reading in pieces of 1 MiB."""
    from mongodb_server import MongoDBServer

    from data_stack.io.storage_connectors.mongodb import MongoDBStorageConnector

    with MongoDBServer() as server:
        connector = MongoDBStorageConnector(server.uri(), "profiles")
        connector.set_resource("big", random.randbytes(128 * MIB) * 2)
        yield lambda: read_in_order(connector)


def read_in_order(connector: StorageConnector) -> None:
    """A whole resource in pieces of 1 MiB."""
    with connector.get_resource("big") as resource:
        while resource.read(MIB):
            pass


@contextmanager
def s3() -> Iterator[Callable[[], object]]:
    """Reading many ranges at once."""
    from s3_server import S3Server

    from data_stack.io.storage_connectors.object_store import FsspecStorageConnector

    with S3Server() as server:
        connector = FsspecStorageConnector(f"s3://{server.new_bucket()}/ours", **server.options())
        connector.set_resource("big", random.randbytes(64 * MIB))
        ranges = [(random.randrange(64 * MIB - 4096), 4096) for _ in range(64)]
        yield lambda: connector.read_ranges("big", ranges)


def show(work: Callable[[], object]) -> None:
    """Do the work to warm up, then without and with the profiler, and print the table."""
    work()
    started, before = time.perf_counter(), time.process_time()
    work()
    print(
        f"  {(time.perf_counter() - started) * 1e3:,.0f} ms, {(time.process_time() - before) * 1e3:,.0f} ms of processor time"
    )
    profile = cProfile.Profile()
    profile.runcall(work)
    stats = pstats.Stats(profile)
    rows = sorted(stats.stats.items(), key=lambda each: -each[1][2])  # type: ignore[attr-defined]  # typeshed lacks it
    total = sum(each[1][2] for each in rows)
    print(f"  {total * 1e3:,.0f} ms with the profiler")
    for (path, line, name), (_, n_calls, own, *_) in rows[:_N_SHOWN]:
        place = name if line == 0 else f"{Path(path).parent.name}/{Path(path).name}:{name}"
        print(f"  {own / total:6.1%}  {n_calls:>9,} calls  {place}")


def main() -> None:
    """Profile, and print."""
    sys.path.insert(0, str(SUPPORT))
    with tempfile.TemporaryDirectory(prefix="data_stack-profiles-") as temporary:
        folder = Path(temporary)
        cases = {
            "plain": lambda: parquet(folder, "plain", "loader, inline"),
            "png": lambda: parquet(folder, "mnist", "loader, inline"),
            "ngram": lambda: parquet(folder, "ngram", "make_reader"),
            "columns": lambda: records(folder, "W4", None),
            "first": lambda: records(folder, "W2", read_all),
            "single": lambda: records(folder, "W4", read_singles),
            "mongodb": mongodb,
            "s3": s3,
        }
        given = parser_of(__doc__, list(cases)).parse_args()
        print(machine())
        for name in given.only:
            print(f"\n{name}", flush=True)
            with cases[name]() as work:
                show(work)


if __name__ == "__main__":
    main()
