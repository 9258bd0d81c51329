"""What grows with the number of samples, files, ranks and resources, and what does not.

Run: python benchmarks/scale.py [--only CASE …]

Cases:
  files      a thousand million rows in 10,000 Parquet files, which are links to one file: opened with a manifest
  order      a shuffled loader of a million and of a thousand million samples: made, resumed, its memory
  plan       ranks 0, 500 and 999 of 1,000, on a thousand million samples, shuffle=True: samples are positions
  ranks      an epoch of ten million samples for 64 ranks with 8 threads each, all of them in this process
  resources  1,000, 10,000 and 100,000 resources of 100 bytes in a folder and in a mongod: listed, verified, collected
"""

from __future__ import annotations

import functools
import itertools
import os
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from harness import SUPPORT, Results, in_turn, machine, parser_of, timed

from data_stack.dataset.iterator import DatasetIterator, SequenceDatasetIterator
from data_stack.formats.parquet import ParquetDataset, generate_metadata
from data_stack.io.storage_connectors import FileStorageConnector, StorageConnector
from data_stack.io.storage_connectors.mongodb import MongoDBStorageConnector
from data_stack.loader import BlockShuffled, Loader
from data_stack.stores.verification import verify_storage

sys.path.insert(0, str(SUPPORT))
from mongodb_server import MongoDBServer

N_SAMPLES = (10**6, 10**9)
N_RANKS, N_THREADS, BATCH = 64, 8, 256


def files(results: Results, folder: Path, rounds: int, small: bool) -> None:
    """Open 10,000 files of 100,000 rows, and read a row and a batch."""
    n_files, n_rows = (100, 100_000) if small else (10_000, 100_000)
    first = folder / "part-000000.parquet"
    pq.write_table(pa.table({"x": np.arange(n_rows)}), first, row_group_size=n_rows // 4)
    for number in range(1, n_files):
        os.link(first, folder / f"part-{number:06d}.parquet")
    results.keep(
        "files", "opened without a manifest", [timed(lambda: ParquetDataset(folder))], "ms"
    )
    results.keep("files", "manifest made, once", [timed(lambda: generate_metadata(folder))], "ms")
    dataset = ParquetDataset(folder)

    def first_batch() -> None:
        with Loader(
            dataset, BATCH, shuffle=BlockShuffled(window=4), worker_kind="inline"
        ) as loader:
            next(iter(loader))

    ways: dict[str, Callable[[], object]] = {
        "opened": lambda: ParquetDataset(folder),
        "opened, one row": lambda: ParquetDataset(folder)[len(dataset) - 1],
        "first batch, shuffled by blocks": first_batch,
    }
    keep_times("files", ways, results, rounds)
    results.at_most(f"{len(dataset):,} rows in {n_files:,} files", "files", "opened", 0.1)


def order(results: Results, _: Path, rounds: int, small: bool) -> None:
    """Make and resume loaders, and say how much memory that takes."""
    sizes = (10**4, 10**6) if small else N_SAMPLES

    def resume(n_samples: int) -> None:
        with Loader(range(n_samples), BATCH, shuffle=True, worker_kind="inline") as loader:
            loader.seek(0, n_samples // 2 // BATCH * BATCH, 0)
            state = loader.state_dict()
        with Loader(range(n_samples), BATCH, shuffle=True, worker_kind="inline") as loader:
            loader.load_state_dict(state)
            next(iter(loader))

    ways = {
        f"{n:,} samples: made, resumed in its middle, one batch": lambda n=n: resume(n)
        for n in sizes
    }
    keep_times("order", ways, results, rounds)
    for n_samples in sizes:
        tracemalloc.start()
        resume(n_samples)
        results.keep(
            "order, memory",
            f"{n_samples:,} samples",
            [float(tracemalloc.get_traced_memory()[1])],
            "MiB",
        )
        tracemalloc.stop()
    results.print("order, memory")


class Positions(DatasetIterator):
    """So many samples, which are their positions: what is left is the loader's arithmetic."""

    def __init__(self, n_samples: int) -> None:
        self._n_samples = n_samples

    def __len__(self) -> int:
        return self._n_samples

    def __getitem__(self, index: int) -> Any:
        return (index,)

    def read_batch(self, indices: Any) -> Any:
        return (np.asarray(indices),)


def plan(results: Results, _: Path, rounds: int, small: bool) -> None:
    """The first batch, and 1,000 further ones, of some of 1,000 ranks; no sample comes twice."""
    positions, world = Positions(10**6 if small else 10**9), 1000
    n_batches, seen = 3 if small else 1000, list[Any]()
    for rank in (0, world // 2, world - 1):
        tracemalloc.start()
        way, start = f"rank {rank} of {world:,}", time.perf_counter()
        with Loader(positions, BATCH, shuffle=True, shard=(rank, world), workers=0) as loader:
            batches = iter(loader)
            seen.append(next(batches)[0])
            first = time.perf_counter()
            seen += [batch for (batch,) in itertools.islice(batches, n_batches)]
            end = time.perf_counter()
        results.keep("plan, first batch", way, [first - start], "ms")
        results.keep(f"plan, {n_batches:,} further batches of {BATCH}", way, [end - first], "ms")
        results.keep(
            "plan, memory without batches", way, [float(tracemalloc.get_traced_memory()[1])], "MiB"
        )
        tracemalloc.stop()
    for case in [case for case in results.figures if case.startswith("plan, ")]:
        results.print(case)
    n_twice = sum(map(len, seen)) - len(np.unique(np.concatenate(seen)))
    results.judge("no sample twice", "loader", "", f"{n_twice} twice", "0", n_twice == 0)


def ranks(results: Results, _: Path, rounds: int, small: bool) -> None:
    """Count how often each sample comes, and the steps of each rank."""
    n_samples = 10**5 + 1 if small else 10**7 + 1
    iterator = SequenceDatasetIterator([np.arange(n_samples)])
    seen = np.zeros(n_samples, np.int64)
    steps: list[int] = []

    def epoch() -> None:
        seen[:], steps[:] = 0, []
        for rank in range(N_RANKS):
            options: dict[str, Any] = {"shuffle": True, "shard": (rank, N_RANKS), "uneven": "drop"}
            with Loader(
                iterator, BATCH, workers=N_THREADS, worker_kind="threads", **options
            ) as loader:
                n_steps = 0
                for (batch,) in loader:
                    np.add.at(seen, batch, 1)
                    n_steps += 1
            steps.append(n_steps)

    seconds = timed(epoch)
    results.keep(
        "ranks", f"{n_samples:,} samples, {N_RANKS} ranks, {N_THREADS} threads each", [seconds], "s"
    )
    results.print("ranks")
    n_left_out, n_twice = int((seen == 0).sum()), int((seen > 1).sum())
    is_right = n_twice == 0 and n_left_out == n_samples % N_RANKS and len(set(steps)) == 1
    found = f"{n_twice} twice, {n_left_out} left out, {sorted(set(steps))} steps"
    wanted = f"0 twice, {n_samples % N_RANKS} left out"
    results.judge("each sample once, equal steps", "loader", "", found, wanted, is_right)


def resources(results: Results, folder: Path, rounds: int, small: bool) -> None:
    """Work on stores of growing size, and on ten resources of each."""
    sizes = (100, 1000) if small else (1000, 10_000, 100_000)
    for kind in ("folder", "mongod"):
        for n in sizes:
            with store(kind, folder / f"{kind}-{n}") as connector:
                ways: dict[str, tuple[Callable[[], object], int]] = {
                    "write, each": (functools.partial(write, connector, n), n),
                    "list, each": (connector.list_resources, n),
                    "list ten, in all": (
                        functools.partial(connector.list_resources, "set-000000/"),
                        1,
                    ),
                    "verify, each": (functools.partial(verify_storage, connector), n),
                    "gc, each": (functools.partial(connector.collect_garbage, dry_run=True), n),
                }
                for way, (work, n_pieces) in ways.items():
                    results.keep(f"{kind}, {way}", f"{n:,}", [timed(work) / n_pieces], "us")
        for case in [case for case in results.figures if case.startswith(f"{kind}, ")]:
            results.print(case, f"{sizes[0]:,}")


def write(connector: StorageConnector, n_resources: int) -> None:
    """Store resources of 100 bytes, ten to a folder, by eight threads."""

    def store_one(number: int) -> None:
        connector.set_resource(
            f"set-{number // 10:06d}/{number % 10}.bin", number.to_bytes(100, "big")
        )

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(store_one, range(n_resources)))


@contextmanager
def store(kind: str, folder: Path) -> Iterator[StorageConnector]:
    """An empty store."""
    if kind == "folder":
        yield FileStorageConnector(folder)
        return
    with (
        MongoDBServer(cache_gb=1.0, folder=folder.parent) as server,
        MongoDBStorageConnector(server.uri("scale")) as connector,
    ):
        yield connector


def keep_times(
    case: str, ways: dict[str, Callable[[], object]], results: Results, rounds: int
) -> None:
    """Times of some ways of a case, the first two rounds dropped."""
    taken = in_turn(
        case,
        {way: lambda work=work: timed(work) for way, work in ways.items()},
        rounds + 2,
        results,
    )  # type: ignore[misc]
    for way, kept in taken.items():
        results.keep(case, way, kept[2:], "ms")
    results.print(case)


CASES = {"files": files, "order": order, "plan": plan, "ranks": ranks, "resources": resources}


def main() -> None:
    """Run the cases."""
    given = parser_of(__doc__, tuple(CASES)).parse_args()
    results = Results()
    print(machine(), flush=True)
    for case in given.only:
        with tempfile.TemporaryDirectory(
            prefix="data_stack-benchmark-scale-", dir=given.folder
        ) as folder:
            CASES[case](results, Path(folder), given.rounds, given.small)
    results.save(given.json)


if __name__ == "__main__":
    main()
