"""256 readers of one dataset that start at once: a folder, MongoDB and S3, each as it is and behind
a cache of the node.

    python benchmarks/many_readers.py [--processes 32] [--threads 8]

The readers are 8 threads in each of 32 processes, forked from one interpreter with the packages
imported: 256 processes would take 20 GB. Each has a rank: it loads a ready dataset of 4 MB of
records in 2 shards, and reads two batches of 8 of its share, shuffled. A cache has cacheFresh=60.
MongoDB is a mongod of its own; S3 is slow_server.py, 5 ms away. Figures: the time until all readers
had a batch; the requests that the server counted, in all, by reader, and in the busiest tenth of a
second; how many of them were for pointers of resources, and for the manifest of the dataset; bytes
moved by those of the dataset; requests and batches per second. --small has 4 processes.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from harness import SUPPORT, Results, machine, parser_of
from slow_line import _KEYS, log_of, server

sys.path.insert(0, str(SUPPORT))

import pymongo
import s3fs  # noqa: F401  # before the forks
from mongodb_server import MongoDBServer

import data_stack
from data_stack import DatasetCard, DatasetFactory
from data_stack.formats import records
from data_stack.io.storage_connectors import FileStorageConnector, StorageConnector
from data_stack.io.storage_connectors.mongodb import MongoDBStorageConnector
from data_stack.io.storage_connectors.object_store import FsspecStorageConnector
from data_stack.loader import Loader

N_RECORDS, N_SHARDS, BATCH = 4096, 2, 8
CASES = ("folder", "MongoDB", "MongoDB, cache", "S3", "S3, cache")


class Many(DatasetFactory):
    """Records of 1 KB."""

    card = DatasetCard("many", "1.0.0", license="CC0-1.0")
    splits = ("train",)

    def preprocess(self, raw: Any, prepared: Any) -> None:
        with records.ShardedRecordWriter(
            prepared, {"data": "bytes"}, prefix="train", shardlen=N_RECORDS // N_SHARDS
        ) as writer:
            for _ in range(N_RECORDS):
                writer.append({"data": os.urandom(1000)})

    def open(self, split: str, prepared: Any) -> Any:
        return records.open(prepared, prefix=split)


def read(
    store: str, rank: int, world: int, n_batches: int, seen: list[tuple[float, float, int]]
) -> None:
    """Open, and read batches; adds when the first and the last one came, and how many there
    were.
    """
    train = data_stack.load("many", split="train", storage=store)
    loader = Loader(train, BATCH, shuffle=True, seed=1, shard=(rank, world), workers=0)
    first, n_read = 0.0, 0
    for _ in loader:
        first, n_read = first or time.time(), n_read + 1
        if n_read == n_batches:
            break
    seen.append((first, time.time(), n_read))


def all_at_once(
    store: str, n_processes: int, n_threads: int
) -> tuple[float, list[tuple[float, float, int]]]:
    """When the readers started, and what each saw."""
    world = n_processes * n_threads
    gate, started = os.pipe()
    answers, children = [], []
    for process in range(n_processes):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(started)
                seen: list[tuple[float, float, int]] = []
                ranks = range(process * n_threads, (process + 1) * n_threads)
                threads = [
                    threading.Thread(target=read, args=(store, rank, world, 2, seen))
                    for rank in ranks
                ]
                os.read(gate, 1)  # until the parent closes it
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                os.write(writing, json.dumps(seen).encode())
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        os.close(writing)
        answers.append(reading)
        children.append(child)
    start = time.time()
    os.close(started)
    found: list[tuple[float, float, int]] = []
    for answer, child in zip(answers, children, strict=True):
        with open(answer, "rb") as file:
            found += json.loads(file.read() or b"[]")
        os.waitpid(child, 0)
    os.close(gate)
    if len(found) < world:
        raise RuntimeError(f"{world - len(found)} of {world} readers failed")
    return start, found


def copy_to(store: StorageConnector, source: FileStorageConnector) -> None:
    """The ready dataset, its manifest last."""
    names = source.list_resources("many/1.0.0/")
    for name in sorted(names, key=lambda name: name.endswith("/manifest.json")):
        with source.get_resource(name) as resource:
            store.set_resource(name, resource)


Count = Callable[[], dict[str, float]]


@contextlib.contextmanager
def stores(folder: Path, wanted: list[str]) -> Iterator[dict[str, tuple[str, Count]]]:
    """By case the store of the dataset, and what counts the requests since the last call."""
    data_stack.default_repository().register("many", Many)
    source = FileStorageConnector(folder / "store")
    data_stack.load("many", storage=source)
    found: dict[str, tuple[str, Count]] = {"folder": (str(folder / "store"), dict)}
    with contextlib.ExitStack() as exits:
        if any("MongoDB" in case for case in wanted):
            mongod = exits.enter_context(MongoDBServer())
            copy_to(MongoDBStorageConnector(mongod.uri("many")), source)
            client: Any = exits.enter_context(pymongo.MongoClient(mongod.uri()))
            last = collections.Counter[str]()

            def of_mongod() -> dict[str, float]:
                status = client.admin.command("serverStatus")
                now = collections.Counter(
                    {
                        "requests": sum(
                            status["opcounters"][key] for key in ("query", "getmore", "command")
                        )
                    }
                )
                now["bytes"] = status["network"]["bytesOut"]
                new = {key: float(now[key] - last[key]) for key in now}
                last.update({key: now[key] - last[key] for key in now})
                return new

            # On two cores, a server answers 256 readers late.
            url = mongod.uri("many") + "&serverSelectionTimeoutMS=60000"
            found["MongoDB"] = url, of_mongod
            found["MongoDB, cache"] = (
                f"{url}&cache={folder / 'cache-mongodb'}&cacheFresh=60",
                of_mongod,
            )
        if any("S3" in case for case in wanted):
            copy_to(FsspecStorageConnector(f"file://{folder}/www/ours"), source)
            os.environ.update(_KEYS)
            port = exits.enter_context(server(folder / "www", "5", "119"))

            def of_s3() -> dict[str, float]:
                log = log_of(port)
                tenths = collections.Counter(int(each[0] * 10) for each in log)
                pointers = sum("/objects/" not in each[3] for each in log)
                of_manifest = sum("/many/1.0.0/manifest.json" in each[3] for each in log)
                facts = {"requests": len(log), "pointers": pointers, "manifest": of_manifest}
                return {
                    **facts,
                    "bytes": sum(each[2] for each in log),
                    "peak": max(tenths.values(), default=0),
                }

            url = f"s3://ours?endpointUrl=http://127.0.0.1:{port}&anonymous=true"
            found["S3"] = url, of_s3
            found["S3, cache"] = f"{url}&cache={folder / 'cache-s3'}&cacheFresh=60", of_s3
        yield found


def main() -> None:
    """Start the readers of each case, and print the figures."""
    parser = parser_of(__doc__, CASES, 1)
    parser.add_argument("--processes", type=int, default=32)
    parser.add_argument("--threads", type=int, default=8)
    given, results = parser.parse_args(), Results()
    n_processes = 4 if given.small else given.processes
    warnings.filterwarnings(
        "ignore", "samples of .* lie in a remote store"
    )  # that is asked for here
    print(machine())
    with (
        tempfile.TemporaryDirectory(dir=given.folder) as name,
        stores(Path(name), given.only) as found,
    ):
        n_bytes = sum(
            file.stat().st_size for file in Path(name, "store").rglob("*") if file.is_file()
        )
        for case in given.only:
            store, count = found[case]
            count()
            try:
                start, seen = all_at_once(store, n_processes, given.threads)
            except RuntimeError as error:
                results.leave_out(case, error)
                continue
            counted, n_readers = count(), len(seen)
            seconds = max(end for _, end, _ in seen) - start
            figures = {"until all had a batch": (max(first for first, _, _ in seen) - start, "s")}
            figures["batches per second"] = (
                seconds / sum(n_batches for _, _, n_batches in seen),
                "/s",
            )
            if counted:
                n_requests = counted["requests"]
                figures["requests"] = n_requests, ""
                figures["requests by reader"] = n_requests / n_readers, ""
                figures["requests per second"] = seconds / n_requests, "/s"
                figures["bytes moved by bytes stored"] = counted["bytes"] / n_bytes, ""
            for key, what in (
                ("pointers", "requests for pointers"),
                ("manifest", "requests for the manifest"),
                ("peak", "requests in the busiest 0.1 s"),
            ):
                if key in counted:
                    figures[what] = counted[key], ""
            for what, (figure, unit) in figures.items():
                results.keep(what, f"ours, {case}", [figure], unit)
    for what in list(results.figures):
        results.print(what)
    results.save(given.json)


if __name__ == "__main__":
    main()
