"""Records against a memory map and every peer that is installed, in turn in one process.

Run: python benchmarks/records.py [--only CASE …] [--systems SYSTEM …] [--small] [--json FILE]

Cases are the workloads W1 to W4, ``open`` (10 M records), ``verification`` (a first pass with and
without the verification of each block) and ``mongodb`` (batches of W1 out of MongoDB). All systems
of a workload are written, checked against the truth, kept open together, and take turns in each
round. Files are in the page cache. What is not installed is left out, and said so. Peers are read
the fastest way their documentation shows; the modules in ``record_peers`` say which. JPEGs decoded
on two cores: ``loader.py --only W3``.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from harness import SUPPORT, Results, compare, in_turn, machine, parser_of, timed
from record_peers import MODULES, system
from record_peers.system import BATCH, Reader, System, bytes_on_disk, check_reader, remove, sync
from record_peers.workload import WORKLOADS, Workload

#: What takes longer to write is written once.
SLOW_SECONDS = 5.0
#: A pass in order is measured whole if it takes less.
PASS_SECONDS = 3.0


def paced(step: Callable[[], object], n: int, seconds: float) -> float:
    """Seconds a piece of a step that does ``n``, again and again until the time is up."""
    done, start = 0, time.perf_counter()
    while done == 0 or time.perf_counter() - start < seconds:
        step()
        done += n
    return (time.perf_counter() - start) / done


def one_by_one(reader: Reader) -> Callable[[], None]:
    """Reads 256 single samples at random."""
    one, wheel = (
        reader.one,
        itertools.cycle(np.random.default_rng(5).integers(0, len(reader), 1 << 17).tolist()),
    )

    def step() -> None:
        for index in itertools.islice(wheel, BATCH):
            one(index)

    return step


def batches_at_random(reader: Reader) -> Callable[[], None]:
    """Reads a batch; the last one is in hand while the next one is read, as in any loop.

    (Where nothing is in hand, the C library returns the memory of each batch to the system and asks
    for it again, page by page, which takes longer than to fill it.)
    """
    rng, batch = np.random.default_rng(6), reader.batch
    wheel = itertools.cycle([rng.integers(0, len(reader), BATCH) for _ in range(512)])
    kept: list[Any] = [None]

    def step() -> None:
        kept[0] = batch(next(wheel))

    return step


def in_order(pieces: Callable[[], Iterator[Any]], n_pieces: int) -> Callable[[], None]:
    """Reads so many from the beginning."""

    def step() -> None:
        for _kept in itertools.islice(pieces(), n_pieces):
            pass

    return step


def warm(reader: Reader) -> int:
    """Read all once, or for some seconds: files come into the page cache, ours has its blocks
    checked; how many batches.
    """
    start, number = time.perf_counter(), 0
    for number, _kept in enumerate(reader.batches(), 1):  # noqa: B007  # the last one counts
        if time.perf_counter() - start > PASS_SECONDS:
            break
    return number


def measure_workload(
    work: Workload, systems: Mapping[str, System], folder: Path, given: Any, results: Results
) -> None:
    """Write, check, read one workload with all systems."""
    print(f"\n{work.name}: {work.title}", flush=True)
    gc.collect()
    gc.freeze()  # a million values of the workload are not to be searched again and again
    taking_part = {name: each for name, each in systems.items() if each.supports(work.schema)}
    folders = {
        name: folder / f"{work.name} {name}".replace(" ", "_").replace(",", "")
        for name in taking_part
    }
    write_in_turn(work, taking_part, folders, given, results)
    seconds = 0.02 if given.small else 0.1
    with contextlib.ExitStack() as stack:
        readers: dict[str, Reader] = {}
        n_batches: dict[str, int] = {}
        for name, each in taking_part.items():
            if f"{work.name}, write: {name}" in results.left_out or each.measures == ("write",):
                continue
            try:
                readers[name] = reader = each.open(work.schema, folders[name])
                stack.callback(reader.close)
                check_reader(reader, work)
            except Exception as error:
                results.leave_out(f"{work.name}: {name}", error)
                readers.pop(name, None)
                continue
            n_batches[name] = warm(reader)
            results.keep(f"{work.name}, size", name, [float(bytes_on_disk(folders[name]))], "B")
        n_samples = {name: min(work.n, n * BATCH) for name, n in n_batches.items()}
        for measure in ("one", "batch", "records", "batches"):
            ways: dict[str, Callable[[], float]] = {}
            for name, reader in readers.items():
                if not taking_part[name].measured_in(measure):
                    continue
                if measure in ("one", "batch"):
                    step, n = (one_by_one if measure == "one" else batches_at_random)(reader), BATCH
                elif measure == "records":
                    step, n = in_order(reader.records, n_samples[name]), n_samples[name]
                else:
                    step, n = in_order(reader.batches, n_batches[name]), n_samples[name]
                ways[name] = lambda step=step, n=n: paced(step, n, seconds)  # type: ignore[misc]
            measure_rates(f"{work.name}, {measure}", ways, given.rounds, results)
    # After closing: LMDB opens nothing twice in a process.
    for measure, unit in (("open", "ms"), ("first pass", "/s")):
        ways = {
            name: opening(taking_part[name], work, folders[name], whole=measure == "first pass")
            for name in readers
            if taking_part[name].measured_in(measure)
        }
        measure_rates(f"{work.name}, {measure}", ways, given.rounds, results, unit)
    results.print(f"{work.name}, size")
    for each in folders.values():
        remove(each)
    gc.unfreeze()


def measure_rates(
    case: str,
    ways: Mapping[str, Callable[[], float]],
    rounds: int,
    results: Results,
    unit: str = "/s",
) -> None:
    """All ways in turn, the first round dropped."""
    for name, kept in in_turn(case, ways, rounds + 1, results).items():
        results.keep(case, name, kept[1:], unit)
    results.print(case)


def opening(each: System, work: Workload, folder: Path, *, whole: bool) -> Callable[[], float]:
    """Opens, reads the first sample or all in order, closes; seconds of that, of a pass those of a
    sample.
    """

    def once() -> None:
        reader = each.open(work.schema, folder)
        if whole:
            for _kept in reader.batches():
                pass
        else:
            reader.one(0)
        reader.close()

    return lambda: timed(once) / (work.n if whole else 1)


def write_in_turn(
    work: Workload,
    systems: Mapping[str, System],
    folders: Mapping[str, Path],
    given: Any,
    results: Results,
) -> None:
    """Write the workload with each system in each round; what the last round wrote stays."""
    slow: dict[str, tuple[float, float]] = {}

    def once(name: str) -> tuple[float, float]:
        if name in slow:
            return slow[name]
        remove(folders[name])
        os.sync()  # what others wrote does not go to the disk meanwhile
        start = time.perf_counter()
        systems[name].write(work, folders[name])
        written = time.perf_counter() - start
        sync(folders[name])
        found = written / work.n, (time.perf_counter() - start) / work.n
        if written > SLOW_SECONDS:
            slow[name] = found
        return found

    ways = {name: lambda name=name: once(name) for name in systems}  # type: ignore[misc]
    for name, kept in in_turn(
        f"{work.name}, write", ways, 1 if given.small else 3, results
    ).items():
        results.keep(f"{work.name}, write", name, [written for written, _ in kept])
        results.keep(f"{work.name}, write, fsync", name, [synced for _, synced in kept])
    results.print(f"{work.name}, write")
    results.print(f"{work.name}, write, fsync")


# ---------------------------------------------------------------------- opening, and a remote store


def measure_opening(folder: Path, given: Any, results: Results) -> None:
    """Ten million records: opening, and what of it is reading the manifest."""
    from data_stack.formats.records import RecordReader, RecordWriter
    from data_stack.formats.records.manifest import RecordsManifest

    n, folder = 1_000_000 if given.small else 10_000_000, folder / "opening"
    with RecordWriter(folder, {"id": "i64"}) as writer:
        writer.extend({"id": np.arange(n)})

    def first_sample() -> None:
        with RecordReader(folder) as reader:
            if reader[n - 1]["id"] != n - 1:
                raise ValueError("wrong record")

    ways: dict[str, Callable[[], object]] = {
        "ours, opening": lambda: RecordReader(folder).close(),
        "ours, opening, one sample": first_sample,
        "reading the manifest": lambda: RecordsManifest.from_json(
            (folder / "manifest.json").read_bytes(), "manifest"
        ),
    }
    case = f"open, {n:,} records"
    compare(case, ways, results, rounds=given.rounds * 5)
    results.at_most(
        "opening",
        case,
        "ours, opening",
        (results.median(case, "reading the manifest") or 0.0) + 5e-3,
    )
    remove(folder)


def measure_verification(folder: Path, given: Any, results: Results) -> None:
    """A pass that verifies each block, against one over files whose blocks are verified already.

    The limit is a bare digest of each block, and then the pass over verified files.
    """
    from record_peers.ours import write

    results.kinds["digests, then a pass"] = "limit"
    for name in ("W1", "W2", "W4"):
        work = WORKLOADS[name](given.small)
        where = folder / f"verification {name}"
        write(work, where)
        for how, read in (("in order", read_in_order), ("shuffled loader", load_shuffled)):
            case = f"{name}, a pass, {how}"
            ways = {
                "ours, verified": partial(pass_seconds, where, read, is_verified=False),
                "verified before": partial(pass_seconds, where, read, is_verified=True),
                "digests, then a pass": partial(hashed_pass_seconds, where, read),
            }
            for way, kept in in_turn(case, ways, given.rounds + 1, results).items():
                results.keep(case, way, [seconds / work.n for seconds in kept[1:]])
            results.print(case)
            results.at_least(case, case, "ours, verified", "verified before", 0.8)
            results.at_least(case, case, "ours, verified", "digests, then a pass", 0.9)
        remove(where)


def pass_seconds(folder: Path, read: Callable[[Any], None], *, is_verified: bool) -> float:
    """Seconds of a pass over files that are opened and mapped for it.

    Args:
        folder: the dataset.
        read: reads all records.
        is_verified: whether the reader has verified all blocks before.
    """
    from data_stack.formats.records import RecordReader

    with RecordReader(folder) as reader:
        if is_verified:
            read_in_order(reader)
            # Files that are opened again are mapped again, but not verified again.
            reader.release()
        return timed(lambda: read(reader))


def hashed_pass_seconds(folder: Path, read: Callable[[Any], None]) -> float:
    """Seconds of the digests of all blocks, by one thread, and of a pass over verified files."""
    from data_stack.io.integrity import digests_of_blocks

    maps = [np.memmap(path, mode="r") for path in sorted(folder.glob("*.bag"))]
    for mapped in maps:
        mapped.max()  # all pages are in the map: those of the pass fault once, too
    hashing_seconds = timed(lambda: [digests_of_blocks(mapped) for mapped in maps])
    return hashing_seconds + pass_seconds(folder, read, is_verified=True)


def read_in_order(reader: Any) -> None:
    """Read all records in batches."""
    for start in range(0, len(reader), BATCH):
        reader.read_batch(range(start, min(start + BATCH, len(reader))))


def load_shuffled(reader: Any) -> None:
    """Read all records by a loader."""
    from data_stack.loader import Loader

    for _ in Loader(reader, BATCH, shuffle=True, seed=1):
        pass


def measure_mongodb(folder: Path, given: Any, results: Results) -> None:
    """Batches of 256 out of W1, against one bare ``$in`` query of the chunks that hold them."""
    from record_peers.ours import column_of

    from data_stack.formats.records import RecordReader, RecordWriter
    from data_stack.io.storage_connectors.mongodb import MongoDBStorageConnector

    sys.path.insert(0, str(SUPPORT))
    from mongodb_server import MongoDBServer

    work = WORKLOADS["W1"](given.small)
    bucket, chunk_bytes = "records", 261_120
    with (
        MongoDBServer(cache_gb=1.0, folder=folder) as server,
        server.client() as client,
        MongoDBStorageConnector(server.uri("benchmark"), bucket=bucket) as connector,
    ):
        with RecordWriter(
            connector, {each.name: column_of(each) for each in work.schema.fields}, prefix="w1"
        ) as writer:
            writer.extend(work.columns)
        files, chunks = (
            client["benchmark"][f"{bucket}.files"],
            client["benchmark"][f"{bucket}.chunks"],
        )
        columns = [
            files.find_one({"filename": f"w1/{each.name}.bag"}) for each in work.schema.fields
        ]
        ids = {
            (chunk["files_id"], chunk["n"]): chunk["_id"]
            for chunk in chunks.find({}, {"files_id": 1, "n": 1})
        }
        rng = np.random.default_rng(9)
        indices = [rng.integers(0, work.n, BATCH) for _ in range(64)]

        def touched(each: np.ndarray[Any, Any]) -> list[Any]:
            wanted = set()
            for column in columns:
                size = column["length"] // work.n
                for place in (each * size, (each + 1) * size - 1):
                    wanted |= {
                        (column["_id"], number) for number in (place // chunk_bytes).tolist()
                    }
            return [ids[key] for key in wanted]

        queries, wheel = (
            itertools.cycle([touched(each) for each in indices]),
            itertools.cycle(indices),
        )

        def bare() -> None:
            for chunk in chunks.find(
                {"_id": {"$in": next(queries)}}, {"data": 1, "n": 1, "files_id": 1}
            ):
                len(chunk["data"])

        with RecordReader(connector, prefix="w1") as reader:
            for each in indices[:3]:
                work.check(reader.read_batch(each), each)
            ways = {"ours": lambda: reader.read_batch(next(wheel)), "one bare $in": bare}
            compare(
                "mongodb, a batch of W1",
                ways,
                results,
                rounds=given.rounds * 4,
                at_least={"one bare $in": 1 / 1.5},
            )


def judge(results: Results) -> None:
    """What was wanted of the workloads."""
    print()
    for work, measure, against, factor in (
        ("W1", "batch", "memmap", 0.5), ("W1", "batch", "best peer", 20), ("W1", "batch", "lmdb, joined", 20),
        ("W4", "batch", "memmap", 0.5), ("W4", "batch", "best peer", 10), ("W4", "batch", "lmdb, joined", 10),
        ("W1", "one", "memmap", 0.6), ("W1", "one", "memmap, owned", 0.6),
        ("W1", "one", "best peer", 1.2), ("W1", "one", "granular", 8),
        ("W4", "one", "memmap", 0.6), ("W4", "one", "memmap, owned", 0.6),
        ("W4", "one", "best peer", 1.2), ("W4", "one", "granular", 8),
        ("W2", "batch", "memmap", 0.85), ("W2", "batch", "best peer", 1.2),
        ("W2", "one", "memmap", 0.85), ("W2", "one", "best peer", 0.9),
        *((work, measure, "best peer", 1) for work in WORKLOADS for measure in ("records", "batches")),
        *((work, f"write{end}", "best peer", 0.5) for work in ("W1", "W4") for end in ("", ", fsync")),
        *((work, f"write{end}", "granular", 10) for work in ("W1", "W4") for end in ("", ", fsync")),
        *(("W2", f"write{end}", "best peer", 1) for end in ("", ", fsync")),
        *((work, "size", "granular", 1 / 1.005) for work in WORKLOADS),
    ):  # fmt: skip
        results.at_least(
            f"{work}, {measure}", f"{work}, {measure}", "ours", str(against), float(factor)
        )


def main() -> None:
    """Run what was asked for."""
    parser = parser_of(__doc__, [*WORKLOADS, "open", "verification", "mongodb"], rounds=9)
    parser.add_argument(
        "--systems", nargs="+", choices=list(MODULES), default=list(MODULES), metavar="NAME"
    )
    given, results = parser.parse_args(), Results()
    print(machine())
    with tempfile.TemporaryDirectory(
        dir=given.folder, prefix="data_stack-benchmark-records-"
    ) as name:
        systems = {}
        for each in given.systems:
            try:
                systems[each] = system(each)
                results.kinds[each] = systems[each].kind
            except Exception as error:  # a package may be there and broken, in its own way
                results.leave_out(each, error)
        for case in given.only:
            if case in WORKLOADS:
                measure_workload(WORKLOADS[case](given.small), systems, Path(name), given, results)
                continue
            try:
                measure = {
                    "open": measure_opening,
                    "verification": measure_verification,
                    "mongodb": measure_mongodb,
                }[case]
                measure(Path(name), given, results)
            except ImportError as error:
                results.leave_out(case, error)
    judge(results)
    results.save(given.json)


if __name__ == "__main__":
    main()
