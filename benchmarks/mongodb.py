"""MongoDBStorageConnector against the bare client and the naive way (GridFSBucket, GridOut), on a mongod of its own.

Run: python benchmarks/mongodb.py [--mb 256] [--rounds 7] [--only CASE …] [--folder DIR] [--replica-set]

Ours, bare and naive run in turn in one process, the order rotated each round, the first two rounds dropped; ratios are of
the medians. Bare queries and GridOut read the very documents that the connector wrote, over clients of default options.
Random reads never meet a block twice, so that nobody's cache helps; mongod has all in its own cache or in the page cache
of the system, as it would on a warm server. Bytes are those that mongod says it sent (``network.bytesOut``), memory is
the peak of a fresh process above what it had after its imports. Targets: issue 4.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import itertools
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gridfs
import pymongo
import xxhash
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from data_stack.io.storage_connectors.mongodb import MongoDBStorageConnector

SUPPORT = Path(__file__).parents[1] / "tests" / "support"
sys.path.insert(0, str(SUPPORT))
from mongodb_server import MongoDBServer  # noqa: E402

MIB = 1 << 20
DATABASE, BUCKET, NAME = "benchmark", "data_stack", "bench/large.bin"
CHUNK_BYTES = 261_120
SAMPLE_BYTES = 4096
#: Rounds in which caches fill, connections open and code is compiled.
N_COLD = 2


@dataclass(frozen=True)
class Case:
    """One row: ways to do the same work, timed in turn.

    Attributes:
        name: as ``--only`` takes it.
        target: what the issue asks for.
        n: pieces of work that one call of each way does.
        unit: what a piece is.
        ways: by name; the first one is ours, all others are compared with it.
        prepare: called before each way, not timed.
        mib: MiB that a piece of work moves, where its speed is of interest.
    """

    name: str
    target: str
    n: Mapping[str, int]
    unit: str
    ways: Mapping[str, Callable[[int], object]]
    prepare: Callable[[], object] = lambda: None
    mib: float | None = None


def pieces(n_mib: int, seed: int = 1) -> Iterable[bytes]:
    """Bytes that do not compress, cheap to make, every MiB another one."""
    noise = random.Random(seed).randbytes(2 * MIB)
    for number in range(n_mib):
        offset = number * 7919 % MIB
        yield (seed * 1_000_003 + number).to_bytes(16, "big") + noise[offset : offset + MIB - 16]


class Traffic:
    """Bytes that mongod sends, less those that asking for them takes."""

    def __init__(self, client: pymongo.MongoClient[Any]) -> None:
        self._client = client
        self._ask()
        self._own = -self._ask() + self._ask()

    def _ask(self) -> int:
        answer = self._client.admin.command("serverStatus", metrics=0, wiredTiger=0, locks=0, opLatencies=0)
        return int(answer["network"]["bytesOut"])

    def of(self, work: Callable[[], float]) -> tuple[int, float]:
        """Bytes sent while ``work`` runs, and what it returns."""
        before = self._ask()
        result = work()
        return max(0, self._ask() - before - self._own), result


def run(case: Case, rounds: int, traffic: Traffic) -> None:
    """Time all ways of a case in turn and print its row."""
    names = list(case.ways)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    sent: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds + N_COLD):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            case.prepare()
            n_bytes, duration = traffic.of(lambda name=name, number=number: timed(case.ways[name], number))
            seconds[name].append(duration / case.n[name])
            sent[name].append(n_bytes / case.n[name])
    print(f"\n{case.name}  (target: {case.target})")
    ours = names[0]
    for name in names:
        kept = seconds[name][N_COLD:]
        median, best = statistics.median(kept), min(kept)
        figures = f"median {readable(median, case.mib)}, best {readable(best, case.mib)} {'' if case.mib else case.unit}"
        row = f"  {name:28} {figures:58} {statistics.median(sent[name]) / 1024:>12,.1f} KiB moved"
        if name != ours:
            ratio = statistics.median(seconds[ours][N_COLD:]) / median
            best_ratio = min(seconds[ours][N_COLD:]) / best
            more = statistics.median(sent[name]) / max(1.0, statistics.median(sent[ours]))
            row += f"   {ours}: {ratio:.2f} × its time (best {best_ratio:.2f}), {1 / ratio:.2f} × its speed"
            row += f"; it moves {more:.2f} ×"
        print(row, flush=True)


def timed(way: Callable[[int], object], number: int) -> float:
    """Seconds that a way takes."""
    start = time.perf_counter()
    way(number)
    return time.perf_counter() - start


def readable(seconds: float, mib: float | None) -> str:
    if mib is not None:
        return f"{seconds:.3f} s = {mib / seconds:,.0f} MiB/s"
    return f"{seconds * 1e3:.3f} ms" if seconds < 1 else f"{seconds:.2f} s"


# ---------------------------------------------------------------------- the cases


def reading_cases(database: Any, connector: MongoDBStorageConnector, n_mib: int) -> list[Case]:
    """Random reads, a batch of them, a sequential read: of one resource of ``n_mib`` MiB."""
    size = n_mib * MIB
    chunks = database[f"{BUCKET}.chunks"]
    file_id = database[f"{BUCKET}.files"].find_one({"filename": NAME})["_id"]
    bucket = gridfs.GridFSBucket(database, BUCKET)
    n_chunks = size // CHUNK_BYTES

    def offsets(n: int, seed: int) -> list[int]:
        """Places in ``n`` different chunks, none across a boundary."""
        dice = random.Random(seed)
        numbers = dice.sample(range(n_chunks), n)
        return [number * CHUNK_BYTES + dice.randrange(CHUNK_BYTES - SAMPLE_BYTES) for number in numbers]

    n_random, n_naive, n_batch = min(200, n_chunks), min(20, n_chunks), min(64, n_chunks)

    def ours_random(round_: int) -> None:
        with connector.get_resource(NAME) as resource:
            resource.read_at(size - 1, 1)
            for offset in offsets(n_random, round_):
                resource.read_at(offset, SAMPLE_BYTES)

    def bare_random(round_: int) -> None:
        for offset in offsets(n_random, round_):
            first, last = offset // CHUNK_BYTES, (offset + SAMPLE_BYTES - 1) // CHUNK_BYTES
            found = chunks.find({"files_id": file_id, "n": {"$gte": first, "$lte": last}}, {"data": 1, "n": 1}).sort("n")
            b"".join(chunk["data"] for chunk in found)[offset - first * CHUNK_BYTES :][:SAMPLE_BYTES]

    def naive_random(round_: int, n: int = n_naive) -> None:
        with bucket.open_download_stream(file_id) as file:
            for offset in offsets(n, round_):
                file.seek(offset)
                file.read(SAMPLE_BYTES)

    n_batches = 5

    def ours_batch(round_: int) -> None:
        for number in range(n_batches):
            with connector.get_resource(NAME) as resource:
                resource.read_ranges([(offset, SAMPLE_BYTES) for offset in offsets(n_batch, round_ * n_batches + number)])

    def bare_batch(round_: int) -> None:
        for number in range(n_batches):
            database[f"{BUCKET}.files"].find_one({"_id": file_id})  # which file it is, we ask as well
            wanted = {offset // CHUNK_BYTES: offset for offset in offsets(n_batch, round_ * n_batches + number)}
            for chunk in chunks.find({"files_id": file_id, "n": {"$in": sorted(wanted)}}, {"data": 1, "n": 1}):
                offset = wanted[chunk["n"]] - chunk["n"] * CHUNK_BYTES
                chunk["data"][offset : offset + SAMPLE_BYTES]

    def ours_sequential(_: int) -> None:
        with connector.get_resource(NAME) as resource:
            drain(resource)

    def bare_sequential(_: int) -> None:
        for chunk in chunks.find({"files_id": file_id}, {"data": 1}).sort("n"):
            len(chunk["data"])

    def naive_sequential(_: int) -> None:
        with bucket.open_download_stream(file_id) as file:
            drain(file)

    def bare_hashed(digest: Callable[[bytes], Any]) -> Callable[[int], None]:
        def read(_: int) -> None:
            for chunk in chunks.find({"files_id": file_id}, {"data": 1}).sort("n"):
                digest(chunk["data"]).digest()

        return read

    return [
        Case(
            "random",
            f"4 KiB at random out of {n_mib} MiB: ≤ 1.3 × bare, ≥ 10 × faster and ≥ 20 × fewer bytes than GridOut",
            {"ours": n_random, "bare bounded query": n_random, "GridOut.seek, read": n_naive},
            "a read",
            {"ours": ours_random, "bare bounded query": bare_random, "GridOut.seek, read": naive_random},
        ),
        Case(
            "batch",
            f"{n_batch} × 4 KiB at random: ≤ 1.3 × bare $in",
            {"ours": n_batches, "bare $in": n_batches, "GridOut.seek, read": 1},
            "a batch",
            {"ours": ours_batch, "bare $in": bare_batch, "GridOut.seek, read": lambda round_: naive_random(round_, n_batch)},
        ),
        Case(
            "sequential",
            f"{n_mib} MiB in pieces of 1 MiB: ≥ 0.75 × the speed of a bare cursor, digests checked",
            dict.fromkeys(("ours", "bare cursor", "GridOut.read"), 1),
            "all",
            {"ours": ours_sequential, "bare cursor": bare_sequential, "GridOut.read": naive_sequential},
            mib=n_mib,
        ),
        Case(
            "digest",
            "which block digest? a bare cursor that hashes each chunk in the same thread; the first row hashes nothing",
            dict.fromkeys(("no digest", "XXH3", "sha256", "blake2b"), 1),
            "all",
            {
                "no digest": bare_sequential,
                "XXH3": bare_hashed(xxhash.xxh3_64),
                "sha256": bare_hashed(hashlib.sha256),
                "blake2b": bare_hashed(hashlib.blake2b),
            },
            mib=n_mib,
        ),
    ]


def writing_case(database: Any, uri: str, source: Path, n_mib: int) -> Case:
    """Write a file whole; each time another content, for equal content is stored once."""
    connector = MongoDBStorageConnector(uri, bucket="written")
    durable = database.with_options(write_concern=WriteConcern(w="majority", j=True))

    def stamp(round_: int) -> None:
        with open(source, "r+b") as file:
            file.write(os.urandom(16) + round_.to_bytes(8, "big"))

    def ours(round_: int) -> None:
        stamp(round_)
        with open(source, "rb") as file:
            connector.set_resource(f"bench/{round_}.bin", file)

    def bare(round_: int, where: Any = database) -> None:
        stamp(round_)
        with open(source, "rb") as file:
            gridfs.GridFSBucket(where, "naive").upload_from_stream(f"bench/{round_}.bin", file)

    def clear() -> None:
        # Only one copy at a time, and what mongod wrote of the last one is on the disk before the next one begins.
        for name in ("written", "naive"):
            for collection in ("resources", "chunks", "files", "uploads"):
                database[f"{name}.{collection}"].delete_many({})
        for name in ("written.chunks", "naive.chunks"):
            database.drop_collection(name)
        database.client.admin.command("fsync")
        # Indexes are made again here: a connector makes them once, and GridFSBucket wherever it finds no file.
        for name in ("written", "naive"):
            database[f"{name}.chunks"].create_index([("files_id", 1), ("n", 1)], unique=True)

    return Case(
        "write",
        f"{n_mib} MiB: ≥ 0.9 × the speed of GridFSBucket.upload_from_stream (which does not wait for the journal)",
        dict.fromkeys(("ours", "GridFSBucket", "GridFSBucket, majority and j"), 1),
        "all",
        {"ours": ours, "GridFSBucket": bare, "GridFSBucket, majority and j": lambda round_: bare(round_, durable)},
        prepare=clear,
        mib=n_mib,
    )


def small_cases(database: Any, connector: MongoDBStorageConnector) -> list[Case]:
    """Put and get resources of 10 KB."""
    n, serial = 200, itertools.count()
    content = random.Random(2).randbytes(10_000)
    connector.set_resource("small/get", content)
    document = database[f"{BUCKET}.resources"].find_one({"_id": "small/get"})
    durable = database.get_collection("bare", write_concern=WriteConcern(w="majority", j=True))
    database["bare"].insert_one(document)
    majority = database.get_collection("bare", read_concern=ReadConcern("majority"))
    bucket = gridfs.GridFSBucket(database, "naive_small")
    bucket.upload_from_stream("small/get", content)

    def fresh() -> bytes:
        return next(serial).to_bytes(8, "big") + content[8:]

    def ours_put(_: int) -> None:
        for _ in range(n):
            connector.set_resource(f"small/{next(serial)}", fresh())

    def bare_put(_: int, collection: Any = durable) -> None:
        for _ in range(n):
            collection.insert_one({**document, "_id": f"small/{next(serial)}"})

    def naive_put(_: int) -> None:
        for _ in range(n):
            bucket.upload_from_stream(f"small/{next(serial)}", io.BytesIO(fresh()))

    def ours_get(_: int) -> None:
        for _ in range(n):
            with connector.get_resource("small/get") as resource:
                resource.read()

    def bare_get(_: int) -> None:
        for _ in range(n):
            majority.find_one({"_id": "small/get"})

    def naive_get(_: int) -> None:
        for _ in range(n):
            with bucket.open_download_stream_by_name("small/get") as file:
                file.read()

    return [
        Case(
            "put",
            "10 KB: ≤ 1.5 × insert_one of the same document",
            dict.fromkeys(("ours", "insert_one, majority and j", "insert_one, w=1", "GridFSBucket"), n),
            "a put",
            {
                "ours": ours_put,
                "insert_one, majority and j": bare_put,
                "insert_one, w=1": lambda round_: bare_put(round_, database["bare"]),
                "GridFSBucket": naive_put,
            },
        ),
        Case(
            "get",
            "10 KB: ≤ 1.5 × find_one of the same document",
            dict.fromkeys(("ours", "find_one", "GridFSBucket"), n),
            "a get",
            {"ours": ours_get, "find_one": bare_get, "GridFSBucket": naive_get},
        ),
    ]


def drain(file: Any) -> None:
    """Read to the end in pieces of 1 MiB."""
    while file.read(MIB):
        pass


# ---------------------------------------------------------------------- memory, in processes of their own

CHILD = """
import random, re, sys
import h5py, numpy
from data_stack.io.storage_connectors.mongodb import MongoDBStorageConnector
def kept(key): return int(re.search(key + r":\\s+(\\d+)", open("/proc/self/status").read()).group(1)) / 1024
def pieces(n):
    noise = random.Random(1).randbytes(2 << 20)
    for i in range(n):
        yield i.to_bytes(16, "big") + noise[i * 7919 % (1 << 20):][:(1 << 20) - 16]
def begin():
    # VmHWM of now, not of the imports.
    open("/proc/self/clear_refs", "w").write("5")
    return kept("VmRSS")
with MongoDBStorageConnector(sys.argv[1], bucket="memory") as connector:
    before = begin()
    WORK
    print(kept("VmHWM") - before)
"""
WORK = {
    "write": "connector.set_resource('bench/memory.bin', pieces({n_mib}))",
    "read": "with connector.get_resource('bench/memory.bin') as resource:\n        while resource.read(1 << 20): pass",
    "verify": "connector.verify_resource('bench/memory.bin')",
    "contiguous": "with connector.get_resource('bench/samples.h5') as resource, h5py.File(resource, 'r') as file:\n"
    "        assert file['contiguous'][77_777].nbytes == 4096",
    "chunked": "with connector.get_resource('bench/samples.h5') as resource, h5py.File(resource, 'r') as file:\n"
    "        assert file['chunked'][77_777].nbytes == 4096",
}


def grown_mib(uri: str, work: str) -> float:
    """Peak memory of ``work`` in a fresh process, above what it had after its imports."""
    program = CHILD.replace("WORK", work)
    done = subprocess.run([sys.executable, "-c", program, uri], check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout)


def memory(uri: str, n_mib: int) -> None:
    """Print the peak memory of writing, reading and verifying ``n_mib`` MiB."""
    print(f"\nmemory  (target: < 64 MiB above the start for {n_mib} MiB)")
    for action in ("write", "read", "verify"):
        print(f"  {action:28} {grown_mib(uri, WORK[action].format(n_mib=n_mib)):.1f} MiB", flush=True)


def hdf5(database: Any, uri: str, folder: Path, n_mib: int, traffic: Traffic) -> None:
    """Print what a sample of 4 KiB out of an HDF5 file of ``n_mib`` MiB moves and allocates."""
    import h5py
    import numpy as np

    path = folder / "samples.h5"
    n_samples = n_mib * MIB // 2 // SAMPLE_BYTES
    with h5py.File(path, "w") as file:
        for name, chunks in (("contiguous", None), ("chunked", (16, 1024))):
            samples = file.create_dataset(name, (n_samples, 1024), "f4", chunks=chunks)
            start = 0
            for piece in pieces(n_samples * SAMPLE_BYTES // MIB):
                rows = np.frombuffer(piece, "f4").reshape(-1, 1024)
                samples[start : start + len(rows)] = rows
                start += len(rows)
    with MongoDBStorageConnector(uri, bucket="memory") as connector, open(path, "rb") as source:
        start_seconds = time.perf_counter()
        connector.set_resource("bench/samples.h5", source)
        seconds = time.perf_counter() - start_seconds
    path.unlink()
    print(f"\nhdf5  (target: a sample of 4 KiB out of {n_mib} MiB moves < 2 MiB, allocates < 20 MiB; stored in {seconds:.1f} s)")
    for name in ("contiguous", "chunked"):
        sent, grown = traffic.of(lambda name=name: grown_mib(uri, WORK[name]))
        print(f"  {name:28} moves {sent / 1024:,.0f} KiB, allocates {grown:.1f} MiB", flush=True)


def digests() -> None:
    """Print nanoseconds a byte of digests on blocks of 255 KiB."""
    block = random.Random(3).randbytes(CHUNK_BYTES)
    print(f"\nblock digests, {CHUNK_BYTES:,} bytes, best of 5 × 200")
    for name, digest in (("XXH3", xxhash.xxh3_64), ("sha256", hashlib.sha256), ("blake2b", hashlib.blake2b)):
        best = min(timeit.repeat(lambda digest=digest: digest(block).digest(), number=200, repeat=5)) / 200
        speed = CHUNK_BYTES / best / 2**30
        print(f"  {name:28} {best / CHUNK_BYTES * 1e9:.3f} ns/byte, {best * 1e6:.0f} us a block, {speed:.2f} GiB/s")


def cpu() -> str:
    found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return found.group(1) if found else "unknown processor"


def main() -> None:
    """Run what was asked for."""
    all_cases = ["random", "batch", "sequential", "digest", "write", "put", "get", "memory", "hdf5"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=256, help="MiB of the large resource")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", nargs="+", choices=all_cases, default=all_cases)
    parser.add_argument("--folder", type=Path, default=None, help="where mongod keeps its data")
    parser.add_argument("--replica-set", action="store_true", help="a replica set of one node instead of a standalone server")
    parser.add_argument("--memory-mb", type=int, default=1024)
    parser.add_argument("--hdf5-mb", type=int, default=2048)
    options = parser.parse_args()
    wanted = set(options.only)
    with (
        MongoDBServer(folder=options.folder, cache_gb=1.0, replica_set=options.replica_set) as server,
        tempfile.TemporaryDirectory(dir=options.folder) as folder,
        server.client() as client,
        MongoDBStorageConnector(server.uri(DATABASE), bucket=BUCKET) as connector,
    ):
        uri, database, traffic = server.uri(DATABASE), client[DATABASE], Traffic(client)
        print(
            f"{cpu()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {sys.version.split()[0]}, pymongo "
            f"{pymongo.version}, MongoDB {client.server_info()['version']}, "
            f"{'replica set of one' if options.replica_set else 'standalone'}, {options.rounds} rounds"
        )
        if wanted & {"random", "batch", "sequential", "digest"}:
            connector.set_resource(NAME, pieces(options.mb))
            for case in reading_cases(database, connector, options.mb):
                if case.name in wanted:
                    run(case, options.rounds, traffic)
        if "digest" in wanted:
            digests()
        if "write" in wanted:
            source = Path(folder, "source.bin")
            with open(source, "wb") as file:
                file.writelines(pieces(options.mb))
            run(writing_case(database, uri, source, options.mb), options.rounds, traffic)
            source.unlink()
        if wanted & {"put", "get"}:
            for case in small_cases(database, connector):
                if case.name in wanted:
                    run(case, options.rounds, traffic)
        if "memory" in wanted:
            memory(uri, options.memory_mb)
        if "hdf5" in wanted:
            hdf5(database, uri, Path(folder), options.hdf5_mb, traffic)


if __name__ == "__main__":
    main()
