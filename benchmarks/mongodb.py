"""MongoDBStorageConnector against the bare client and the naive way (GridFSBucket, GridOut), on a
mongod of its own.

Run: python benchmarks/mongodb.py [--only CASE …]

Bare queries and GridOut read the very documents that the connector wrote, over clients of default
options. Random reads never read a block twice, so that no cache of a client helps; mongod has all
in its own cache or in the page cache of the system, as it would on a warm server. Bytes are those
that mongod says it sent (``network.bytesOut``), memory is the peak of a fresh process above what it
had after its imports.
"""

from __future__ import annotations

import io
import itertools
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gridfs
import pymongo
from harness import MIB, SUPPORT, Results, grown_mib, in_turn, machine, parser_of, timed
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from data_stack.io.storage_connectors.mongodb import MongoDBStorageConnector

sys.path.insert(0, str(SUPPORT))
from mongodb_server import MongoDBServer

DATABASE, BUCKET, NAME = "benchmark", "data_stack", "bench/large.bin"
CHUNK_BYTES = 261_120
SAMPLE_BYTES = 4096
#: Rounds in which caches fill, connections open and code is compiled.
N_COLD = 2


@dataclass(frozen=True)
class Case:
    """Ways to do the same work, timed in turn.

    Attributes:
        name: as ``--only`` takes it.
        title: what is done.
        n: pieces of work that one call of each way does.
        ways: by name; the first one is ours.
        at_least: how many times as fast as these ours is to be.
        prepare: called before each way, not timed.
    """

    name: str
    title: str
    n: Mapping[str, int]
    ways: Mapping[str, Callable[[int], object]]
    at_least: Mapping[str, float]
    prepare: Callable[[], object] = lambda: None


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
        answer = self._client.admin.command(
            "serverStatus", metrics=0, wiredTiger=0, locks=0, opLatencies=0
        )
        return int(answer["network"]["bytesOut"])

    def of(self, work: Callable[[], float]) -> tuple[int, float]:
        """Bytes sent while ``work`` runs, and what it returns."""
        before = self._ask()
        result = work()
        return max(0, self._ask() - before - self._own), result


def run(case: Case, rounds: int, traffic: Traffic, results: Results) -> None:
    """Time all ways of a case in turn, and count what mongod sends."""
    numbers = {way: itertools.count() for way in case.ways}

    def once(way: str) -> tuple[int, float]:
        case.prepare()
        return traffic.of(lambda: timed(lambda: case.ways[way](next(numbers[way]))))

    ways = {way: lambda way=way: once(way) for way in case.ways}  # type: ignore[misc]
    for way, kept in in_turn(case.title, ways, rounds + N_COLD, results).items():
        results.keep(case.title, way, [seconds / case.n[way] for _, seconds in kept[N_COLD:]], "ms")
        results.keep(
            f"{case.title}: moved",
            way,
            [n_bytes / case.n[way] for n_bytes, _ in kept[N_COLD:]],
            "MiB",
        )
    ours = next(iter(case.ways))
    results.print(case.title, ours)
    results.print(f"{case.title}: moved", ours)
    for other, factor in case.at_least.items():
        results.at_least(case.title, case.title, ours, other, factor)


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
        return [
            number * CHUNK_BYTES + dice.randrange(CHUNK_BYTES - SAMPLE_BYTES) for number in numbers
        ]

    n_random, n_naive, n_batch = min(200, n_chunks), min(20, n_chunks), min(64, n_chunks)

    def ours_random(round_: int) -> None:
        with connector.get_resource(NAME) as resource:
            resource.read_at(size - 1, 1)
            for offset in offsets(n_random, round_):
                resource.read_at(offset, SAMPLE_BYTES)

    def bare_random(round_: int) -> None:
        for offset in offsets(n_random, round_):
            first, last = offset // CHUNK_BYTES, (offset + SAMPLE_BYTES - 1) // CHUNK_BYTES
            found = chunks.find(
                {"files_id": file_id, "n": {"$gte": first, "$lte": last}}, {"data": 1, "n": 1}
            ).sort("n")
            b"".join(chunk["data"] for chunk in found)[offset - first * CHUNK_BYTES :][
                :SAMPLE_BYTES
            ]

    def naive_random(round_: int, n: int = n_naive) -> None:
        with bucket.open_download_stream(file_id) as file:
            for offset in offsets(n, round_):
                file.seek(offset)
                file.read(SAMPLE_BYTES)

    n_batches = 5

    def ours_batch(round_: int) -> None:
        for number in range(n_batches):
            with connector.get_resource(NAME) as resource:
                resource.read_ranges(
                    [
                        (offset, SAMPLE_BYTES)
                        for offset in offsets(n_batch, round_ * n_batches + number)
                    ]
                )

    def bare_batch(round_: int) -> None:
        for number in range(n_batches):
            database[f"{BUCKET}.files"].find_one(
                {"_id": file_id}
            )  # which file it is, we ask as well
            wanted = {
                offset // CHUNK_BYTES: offset
                for offset in offsets(n_batch, round_ * n_batches + number)
            }
            for chunk in chunks.find(
                {"files_id": file_id, "n": {"$in": sorted(wanted)}}, {"data": 1, "n": 1}
            ):
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

    return [
        Case(
            "random",
            f"4 KiB at random out of {n_mib} MiB",
            {"ours": n_random, "bare bounded query": n_random, "GridOut.seek, read": n_naive},
            {
                "ours": ours_random,
                "bare bounded query": bare_random,
                "GridOut.seek, read": naive_random,
            },
            {"bare bounded query": 1 / 1.3, "GridOut.seek, read": 10},
        ),
        Case(
            "batch",
            f"{n_batch} × 4 KiB at random",
            {"ours": n_batches, "bare $in": n_batches, "GridOut.seek, read": 1},
            {
                "ours": ours_batch,
                "bare $in": bare_batch,
                "GridOut.seek, read": lambda round_: naive_random(round_, n_batch),
            },
            {"bare $in": 1 / 1.3},
        ),
        Case(
            "sequential",
            f"{n_mib} MiB in pieces of 1 MiB",
            dict.fromkeys(("ours", "bare cursor", "GridOut.read"), 1),
            {
                "ours": ours_sequential,
                "bare cursor": bare_sequential,
                "GridOut.read": naive_sequential,
            },
            {"bare cursor": 0.75},
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
        # Only one copy at a time, and what mongod wrote of the last one is on the disk before the
        # next one begins.
        for name in ("written", "naive"):
            for collection in ("resources", "chunks", "files", "uploads"):
                database[f"{name}.{collection}"].delete_many({})
        for name in ("written.chunks", "naive.chunks"):
            database.drop_collection(name)
        database.client.admin.command("fsync")
        # Indexes are made again here: a connector makes them once, and GridFSBucket wherever it
        # finds no file.
        for name in ("written", "naive"):
            database[f"{name}.chunks"].create_index([("files_id", 1), ("n", 1)], unique=True)

    return Case(
        "write",
        f"writing {n_mib} MiB",
        dict.fromkeys(("ours", "GridFSBucket, w=1", "GridFSBucket, majority and j"), 1),
        {
            "ours": ours,
            "GridFSBucket, w=1": bare,
            "GridFSBucket, majority and j": lambda round_: bare(round_, durable),
        },
        {"GridFSBucket, w=1": 0.9},
        prepare=clear,
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
            "putting 10 KB",
            dict.fromkeys(
                ("ours", "insert_one, majority and j", "insert_one, w=1", "GridFSBucket"), n
            ),
            {
                "ours": ours_put,
                "insert_one, majority and j": bare_put,
                "insert_one, w=1": lambda round_: bare_put(round_, database["bare"]),
                "GridFSBucket": naive_put,
            },
            {"insert_one, majority and j": 1 / 1.5},
        ),
        Case(
            "get",
            "getting 10 KB",
            dict.fromkeys(("ours", "find_one", "GridFSBucket"), n),
            {"ours": ours_get, "find_one": bare_get, "GridFSBucket": naive_get},
            {"find_one": 1 / 1.5},
        ),
    ]


def drain(file: Any) -> None:
    """Read to the end in pieces of 1 MiB."""
    while file.read(MIB):
        pass


# ---------------------------------------------------------------- memory, in processes of their own

SETUP = """
import random
import h5py, numpy
from data_stack.io.storage_connectors.mongodb import MongoDBStorageConnector
def pieces(n):
    noise = random.Random(1).randbytes(2 << 20)
    for i in range(n):
        yield i.to_bytes(16, "big") + noise[i * 7919 % (1 << 20):][:(1 << 20) - 16]
connector = MongoDBStorageConnector({uri!r}, bucket="memory")
"""
WORK = {
    "write": "connector.set_resource('bench/memory.bin', pieces({n_mib}))",
    "read": "with connector.get_resource('bench/memory.bin') as resource:\n    while resource.read(1 << 20): pass",
    "verify": "connector.verify_resource('bench/memory.bin')",
}
SAMPLE = """
with connector.get_resource('bench/samples.h5') as resource, h5py.File(resource, 'r') as file:
    assert file[{name!r}][777].nbytes == 4096
"""


def memory(uri: str, n_mib: int, results: Results) -> None:
    """Peak memory of writing, reading and verifying ``n_mib`` MiB."""
    for action, work in WORK.items():
        results.keep(
            "memory",
            action,
            [grown_mib(SETUP.format(uri=uri), work.format(n_mib=n_mib)) * MIB],
            "MiB",
        )
        results.at_most(f"memory of {n_mib} MiB", "memory", action, 64 * MIB)


def hdf5(uri: str, folder: Path, n_mib: int, traffic: Traffic, results: Results) -> None:
    """What a sample of 4 KiB out of an HDF5 file of ``n_mib`` MiB moves and allocates."""
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
        connector.set_resource("bench/samples.h5", source)
    path.unlink()
    for name in ("contiguous", "chunked"):
        work = SAMPLE.format(name=name)
        sent, grown = traffic.of(lambda work=work: grown_mib(SETUP.format(uri=uri), work))  # type: ignore[misc]
        results.keep("hdf5: moved", name, [sent], "MiB")
        results.keep("hdf5: memory", name, [grown * MIB], "MiB")
        results.at_most(f"a sample out of {n_mib} MiB of HDF5", "hdf5: moved", name, 2 * MIB)
        results.at_most(f"a sample out of {n_mib} MiB of HDF5", "hdf5: memory", name, 20 * MIB)


def main() -> None:
    """Run what was asked for."""
    given, results = (
        parser_of(
            __doc__,
            ["random", "batch", "sequential", "write", "put", "get", "memory", "hdf5"],
            rounds=7,
        ).parse_args(),
        Results(),
    )
    wanted, n_mib = set(given.only), 32 if given.small else 256
    with (
        MongoDBServer(folder=given.folder, cache_gb=1.0) as server,
        tempfile.TemporaryDirectory(dir=given.folder) as folder,
        server.client() as client,
        MongoDBStorageConnector(server.uri(DATABASE), bucket=BUCKET) as connector,
    ):
        uri, database, traffic = server.uri(DATABASE), client[DATABASE], Traffic(client)
        print(f"{machine()}; MongoDB {client.server_info()['version']}")
        cases = []
        if wanted & {"random", "batch", "sequential"}:
            connector.set_resource(NAME, pieces(n_mib))
            cases += reading_cases(database, connector, n_mib)
        if wanted & {"put", "get"}:
            cases += small_cases(database, connector)
        if "write" in wanted:
            source = Path(folder, "source.bin")
            with open(source, "wb") as file:
                file.writelines(pieces(n_mib))
            cases.append(writing_case(database, uri, source, n_mib))
        for case in cases:
            if case.name in wanted:
                run(case, given.rounds, traffic, results)
        if "memory" in wanted:
            memory(uri, n_mib * 4, results)
        if "hdf5" in wanted:
            hdf5(uri, Path(folder), n_mib * 8, traffic, results)
    results.save(given.json)


if __name__ == "__main__":
    main()
