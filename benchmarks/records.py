"""Records against the limits (a memory map, os.pread) and every peer that is installed, in turn in one process.

Run: python benchmarks/records.py [--only CASE …] [--systems SYSTEM …] [--measures MEASURE …] [--small] [--json FILE]

Cases are the workloads W1 to W4 and ``open`` (10 M records), ``mongodb`` (batches of W1 out of MongoDB) and ``jpeg`` (which
decoder?). All systems of a workload are written, checked against the truth, kept open together, and take turns in each round,
the order rotated; figures are medians over the rounds, ratios those of medians of this one run. Files are in the page cache. What
is not installed is left out, and said so. Peers are read the fastest way their documentation shows; the modules in
``record_peers`` say which. Targets: issue 5.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import gc
import importlib.metadata
import itertools
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from record_peers import MODULES, system
from record_peers.system import BATCH, Batch, Reader, Sample, System, bytes_on_disk, remove, sync
from record_peers.workload import WORKLOADS, Schema, Workload, jpeg_of, picture

#: What is measured of a workload, and in which unit its rate is printed.
MEASURES = {
    "write": "records/s",
    "write, fsync": "records/s, with an fsync of every file behind it",
    "open": "ms to the first sample",
    "one": "records/s, one at a time, random",
    "batch": "records/s in batches of 256, random",
    "records": "records/s, one at a time, in order",
    "batches": "records/s in batches of 256, in order",
    "first pass": "records/s in batches of 256, in order, right after opening (ours checks every block then)",
    "both cores": "records/s in batches of 256, random, on two cores",
    "size": "bytes on disk",
}
READING = ("open", "one", "batch", "records", "batches", "first pass", "both cores", "size")
N_WORKERS = 2
#: What takes longer to write is written once.
SLOW_SECONDS = 5.0
#: A pass in order is measured whole if it takes less.
PASS_SECONDS = 3.0


@dataclass
class Results:
    """Seconds a piece (bytes for ``size``) by case, measure and system, one for each round."""

    rounds: dict[tuple[str, str, str], list[float]] = field(default_factory=lambda: collections.defaultdict(list))
    kinds: dict[str, str] = field(default_factory=dict)
    targets: list[dict[str, Any]] = field(default_factory=list)

    def median(self, case: str, measure: str, name: str) -> float | None:
        """Median over the rounds; None if it was not measured."""
        kept = self.rounds.get((case, measure, name))
        return statistics.median(kept) if kept else None

    def systems(self, case: str, measure: str) -> list[str]:
        """Which systems were measured, the fastest first."""
        found = [key[2] for key in self.rounds if key[:2] == (case, measure)]
        return sorted(found, key=lambda name: self.median(case, measure, name) or 0.0)

    def best_peer(self, case: str, measure: str) -> str | None:
        """The fastest (or smallest) of the peers."""
        peers = [name for name in self.systems(case, measure) if self.kinds.get(name) == "peer"]
        return peers[0] if peers else None


# ---------------------------------------------------------------------- timing in turn


def in_turn(
    ways: Mapping[str, Callable[[int], int]],
    rounds: int,
    seconds: float,
    *,
    probe: int = 1,
    whole: int | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds a piece of each way in each round; ways take turns. A way that fails is left out, and said so.

    Args:
        ways: each is told how many pieces to do, and returns how many it did.
        rounds: how often each has its turn.
        seconds: how long a turn takes, about.
        probe: the fewest pieces to ask for: some systems read ahead what a shorter turn would not use.
        whole: pieces of one pass: a turn is made of whole passes, unless one takes longer than ``PASS_SECONDS``.
        clock: what is measured.
    """
    n_pieces: dict[str, int] = {}
    for name, way in ways.items():  # how many pieces take that long; caches fill meanwhile
        try:
            n_pieces[name] = _pieces_in(way, seconds, probe, whole)
        except Exception as error:
            print(f"  {name} is left out: {type(error).__name__}: {str(error)[-300:]}", flush=True)
    names, found = list(n_pieces), collections.defaultdict(list)
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            duration, done = timed(ways[name], n_pieces[name], clock)
            found[name].append(duration / done)
    return found


def _pieces_in(way: Callable[[int], int], seconds: float, probe: int, whole: int | None) -> int:
    n = probe if whole is None else min(probe, whole)
    way(n)
    while True:
        duration, done = timed(way, n)
        if duration >= seconds / 3 or whole is not None:
            break
        n = max(n + 1, min(n * 10, int(n * seconds / max(duration, 1e-7))))
    wanted = max(probe, int(done * seconds / max(duration, 1e-7)))
    if whole is None:
        return wanted
    return -(-wanted // whole) * whole if duration / done * whole < PASS_SECONDS else n


def timed(way: Callable[[int], int], n: int, clock: Callable[[], float] = time.perf_counter) -> tuple[float, int]:
    """Seconds of one call, and what it returns."""
    start = clock()
    done = way(n)
    return clock() - start, done


def at_random(reader: Reader) -> Callable[[int], int]:
    """Reads single samples."""
    order = np.random.default_rng(5).integers(0, len(reader), 200_000).tolist()
    one, wheel = reader.one, itertools.cycle(order)

    def read(n: int) -> int:
        for index in itertools.islice(wheel, n):
            kept = one(index)
        del kept
        return n

    return read


def batches_at_random(reader: Reader) -> Callable[[int], int]:
    """Reads batches, the last of which is in hand while the next one is read, as in any loop.

    (Where nothing is in hand, the C library returns the memory of each batch to the system and asks for it again, page by page,
    which takes longer than to fill it.)
    """
    rng = np.random.default_rng(6)
    batch, wheel = reader.batch, itertools.cycle([rng.integers(0, len(reader), BATCH) for _ in range(512)])

    def read(n: int) -> int:
        for indices in itertools.islice(wheel, n):
            kept = batch(indices)
        del kept
        return n

    return read


def in_order(samples: Callable[[], Iterator[Any]], n_pieces: int) -> Callable[[int], int]:
    """Reads from the beginning, and from there again as often as it takes; ``n_pieces`` are all."""

    def read(n: int) -> int:
        for _ in range(n // n_pieces):
            for _kept in samples():
                pass
        if n % n_pieces:
            for _kept in itertools.islice(samples(), n % n_pieces):
                pass
        return n

    return read


# ---------------------------------------------------------------------- what comes out must be true


def check(name: str, reader: Reader, work: Workload, *, random: bool) -> None:
    """Compare samples and batches with the truth, single ones, random ones, runs.

    Raises:
        ValueError: something differs.
    """
    rng = np.random.default_rng(7)
    if len(reader) != work.n:
        raise ValueError(f"{name}: {len(reader)} samples instead of {work.n}")
    if random:
        for index in [0, work.n - 1, *rng.integers(0, work.n, 20).tolist()]:
            _check_sample(name, reader.one(index), work, index)
        for _ in range(3):
            indices = rng.integers(0, work.n, BATCH)
            _check_batch(name, reader.batch(indices), work, indices)
    for index, sample in enumerate(itertools.islice(reader.records(), 1500)):
        _check_sample(name, sample, work, index)
    start = 0
    for batch in itertools.islice(reader.batches(), 5):
        end = min(start + BATCH, work.n)
        _check_batch(name, batch, work, np.arange(start, end))
        start = end


def _check_sample(name: str, sample: Sample, work: Workload, index: int) -> None:
    for each in work.schema.fields:
        _equal(name, each.kind, sample[each.name], work.truth[each.name][index], f"{each.name} of sample {index}")


def _check_batch(name: str, batch: Batch, work: Workload, indices: np.ndarray[Any, Any]) -> None:
    for each in work.schema.fields:
        values, truth = batch[each.name], work.truth[each.name]
        if each.kind == "blob":
            if list(values) != [truth[index] for index in indices.tolist()]:
                raise ValueError(f"{name}: blobs of a batch differ")
            continue
        if values.dtype != truth.dtype or values.shape != (len(indices), *truth.shape[1:]):
            raise ValueError(f"{name}: {each.name} is {values.dtype}, {values.shape} in a batch of {truth.dtype}")
        _equal(name, each.kind, values, truth[indices], f"{each.name} of a batch")


def _equal(name: str, kind: str, value: Any, truth: Any, what: str) -> None:
    if kind == "jpeg":  # decoders differ in the last bits
        difference = np.abs(np.asarray(value, np.int16) - np.asarray(truth, np.int16))
        equal = value.shape == truth.shape and value.dtype == np.uint8 and difference.max() <= 24 and difference.mean() < 1
    else:
        equal = isinstance(value, bytes) and value == truth if kind == "blob" else np.array_equal(value, truth)
    if not equal:
        raise ValueError(f"{name}: {what} is not what was written")


# ---------------------------------------------------------------------- workloads


def measure_workload(work: Workload, systems: Mapping[str, System], options: Options, results: Results) -> None:
    """Write, check, read one workload with all systems."""
    print(f"\n{work.name}: {work.title}", flush=True)
    gc.collect()
    gc.freeze()  # a million values of the workload are not to be searched again and again
    taking_part = {name: each for name, each in systems.items() if each.supports(work.schema)}
    folders = {name: options.folder / f"{work.name} {name}".replace(" ", "_").replace(",", "") for name in taking_part}
    failed = write_in_turn(work, taking_part, folders, options, results)
    with contextlib.ExitStack() as stack:
        readers: dict[str, Reader] = {}
        for name, each in taking_part.items():
            if name in failed or not measured_in(each, *READING):
                continue
            try:
                reader = each.open(work.schema, folders[name])
                stack.callback(reader.close)
                check(name, reader, work, random=each.random)
            except Exception as error:
                print(f"  {name} is left out: {type(error).__name__}: {str(error)[:300]}", flush=True)
                continue
            readers[name] = reader
            warm(reader)
            if measured_in(each, "size"):
                results.rounds[work.name, "size", name] = [float(bytes_on_disk(folders[name]))]
        at_will = {name: reader for name, reader in readers.items() if taking_part[name].random}
        n_batches = -(-work.n // BATCH)
        ways: dict[str, tuple[float, dict[str, Any], dict[str, Callable[[int], int]]]] = {
            "one": (1, {}, {name: at_random(reader) for name, reader in at_will.items()}),
            "batch": (BATCH, {}, {name: batches_at_random(reader) for name, reader in at_will.items()}),
            "records": (
                1,
                {"probe": 8192, "whole": work.n},
                {name: in_order(reader.records, work.n) for name, reader in readers.items()},
            ),
            "batches": (
                work.n / n_batches,
                {"probe": 8192 // BATCH, "whole": n_batches},
                {name: in_order(reader.batches, n_batches) for name, reader in readers.items()},
            ),
        }
        for measure, (n_in_piece, how, every_way) in ways.items():
            timed_ways = {name: way for name, way in every_way.items() if measured_in(taking_part[name], measure)}
            if measure in options.measures and timed_ways:
                for name, rounds in in_turn(timed_ways, options.rounds, options.seconds, clock=options.clock, **how).items():
                    results.rounds[work.name, measure, name] = [seconds / n_in_piece for seconds in rounds]
                print_measure(work.name, measure, results)
    # After closing: LMDB opens nothing twice in a process.
    measured_after = {"open": (0.02, 1, opener), "first pass": (options.seconds, work.n, first_pass)}
    for measure, (seconds, n_in_piece, make) in measured_after.items():
        again = {
            name: make(taking_part[name], work.schema, folders[name])
            for name in readers
            if measured_in(taking_part[name], measure)
        }
        if measure in options.measures and again:
            for name, rounds in in_turn(again, options.rounds, seconds).items():
                results.rounds[work.name, measure, name] = [each / n_in_piece for each in rounds]
            print_measure(work.name, measure, results)
    if "both cores" in options.measures and work.name == "W3":
        measure_both_cores(work, {name: taking_part[name] for name in readers}, folders, options, results)
    print_measure(work.name, "size", results)
    for folder in folders.values():
        remove(folder)
    gc.unfreeze()


def warm(reader: Reader) -> None:
    """Read all once (or for 3 s): files come into the page cache, and ours has all blocks checked."""
    start = time.perf_counter()
    for _kept in reader.batches():
        if time.perf_counter() - start > PASS_SECONDS:
            break


def first_pass(each: System, schema: Schema, folder: Path) -> Callable[[int], int]:
    """Opens, reads all batches in order, closes."""

    def run(n: int) -> int:
        for _ in range(n):
            reader = each.open(schema, folder)
            for _kept in reader.batches():
                pass
            reader.close()
        return n

    return run


def measured_in(each: System, *measures: str) -> bool:
    """Whether a system is measured in one of these."""
    return not each.measures or bool(set(measures) & set(each.measures))


def write_in_turn(
    work: Workload, systems: Mapping[str, System], folders: Mapping[str, Path], options: Options, results: Results
) -> set[str]:
    """Write the workload with each system in each round; what the last round wrote stays. Returns those that failed."""
    names, failed, slow = list(systems), set(), set()
    wanted = bool({"write", "write, fsync"} & set(options.measures))
    for number in range(options.write_rounds if wanted else 1):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            if name in failed or name in slow:
                continue
            remove(folders[name])
            os.sync()  # what others wrote does not go to the disk meanwhile
            try:
                start = time.perf_counter()
                systems[name].write(work, folders[name])
                written = time.perf_counter() - start
                sync(folders[name])
                synced = time.perf_counter() - start
                if synced > SLOW_SECONDS:
                    slow.add(name)
            except Exception as error:
                print(f"  {name} is left out: it cannot write: {type(error).__name__}: {str(error)[:300]}", flush=True)
                failed.add(name)
                continue
            if wanted and measured_in(systems[name], "write"):
                results.rounds[work.name, "write", name].append(written / work.n)
                results.rounds[work.name, "write, fsync", name].append(synced / work.n)
    if wanted:
        print_measure(work.name, "write", results)
        print_measure(work.name, "write, fsync", results)
    return failed


def opener(each: System, schema: Schema, folder: Path) -> Callable[[int], int]:
    """Opens, reads the first sample, closes."""

    def run(n: int) -> int:
        for _ in range(n):
            reader = each.open(schema, folder)
            if each.random:
                reader.one(0)
            else:
                next(iter(reader.records()))
            reader.close()
        return n

    return run


# ---------------------------------------------------------------------- decoding on both cores


class Opened:
    """A data set for torch's DataLoader, which opens its system anew in each worker and reads whole batches."""

    def __init__(self, name: str, each: System, schema: Schema, folder: Path) -> None:
        self._name, self._schema, self._folder = name, schema, folder
        self._reader = each.open(schema, folder) if each.opens_before_fork else None

    def __len__(self) -> int:
        return self._schema.n

    def __getitems__(self, indices: list[int]) -> Any:
        import torch

        if self._reader is None:
            torch.set_num_threads(1)
            self._reader = system(self._name).open(self._schema, self._folder)
        batch = self._reader.batch(np.asarray(indices))
        return {key: torch.from_numpy(np.ascontiguousarray(values)) for key, values in batch.items()}


def as_it_is(batch: Any) -> Any:
    """Collates nothing: it is a batch already."""
    return batch


class Loading:
    """Batches of one system out of a DataLoader with two workers that stay."""

    def __init__(self, name: str, each: System, schema: Schema, folder: Path) -> None:
        from torch.utils.data import DataLoader, RandomSampler

        opened: Any = Opened(name, each, schema, folder)
        self._loader = DataLoader(
            opened,
            BATCH,
            sampler=RandomSampler(opened, replacement=True, num_samples=40 * BATCH),
            num_workers=N_WORKERS,
            collate_fn=as_it_is,
            persistent_workers=True,
            multiprocessing_context=each.workers,
        )
        self._batches = iter(self._loader)
        next(self._batches)

    def __call__(self, n: int) -> int:
        """Read ``n`` batches; those that workers have ready at the start are as many as at the end."""
        for _ in range(n):
            if next(self._batches, None) is None:
                self._batches = iter(self._loader)
                next(self._batches)
        return n


def measure_both_cores(
    work: Workload, systems: Mapping[str, System], folders: Mapping[str, Path], options: Options, results: Results
) -> None:
    """Random batches of decoded pictures: ours and the bare decoder with threads, peers in workers of torch's DataLoader."""
    jpegs, rng = work.columns["image"], np.random.default_rng(8)
    orders = itertools.cycle([rng.integers(0, work.n, BATCH).tolist() for _ in range(64)])
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(N_WORKERS) as pool:
        ways: dict[str, Callable[[int], int]] = {}
        for name, each in systems.items():
            if each.kind == "ours":
                reader = each.open(work.schema, folders[name])
                stack.callback(reader.close)
                ways[name] = batches_at_random(reader)
        for decoder, decode in bare_decoders().items():

            def bare(n: int, decode: Callable[[bytes, Any], None] = decode) -> int:
                for indices in itertools.islice(orders, n):
                    pictures = np.empty((BATCH, 96, 96, 3), np.uint8)
                    half = [slice(start, BATCH, N_WORKERS) for start in range(N_WORKERS)]

                    def some(part: slice, indices: list[int] = indices, pictures: Any = pictures) -> None:
                        for place, index in zip(range(BATCH)[part], indices[part], strict=True):
                            decode(jpegs[index], pictures[place])

                    list(pool.map(some, half))
                return n

            ways[f"bare {decoder}, 2 threads"] = bare
        if importlib_found("torch"):
            for name, each in systems.items():
                if each.kind != "ours" and each.workers is not None:
                    try:
                        ways[f"{name}, 2 workers"] = Loading(name, each, work.schema, folders[name])
                        results.kinds[f"{name}, 2 workers"] = each.kind
                    except Exception as error:
                        print(f"  {name} is left out: {type(error).__name__}: {str(error)[:300]}", flush=True)
        # Workers read ahead two batches each, so a turn must be many batches long.
        for name, rounds in in_turn(ways, options.rounds, max(options.seconds * 5, 1.0)).items():
            results.rounds[work.name, "both cores", name] = [seconds / BATCH for seconds in rounds]
        del ways
    print_measure(work.name, "both cores", results)


def bare_decoders() -> dict[str, Callable[[bytes, Any], None]]:
    """Decoders of JPEG by name, into an array; the first one is the fastest well-kept one."""
    found: dict[str, Callable[[bytes, Any], None]] = {}
    with contextlib.suppress(ImportError):
        import simplejpeg

        def by_simplejpeg(jpeg: bytes, out: Any) -> None:
            simplejpeg.decode_jpeg(jpeg, buffer=out)

        found["simplejpeg"] = by_simplejpeg
    with contextlib.suppress(ImportError):
        import cv2

        cv2.setNumThreads(1)

        def by_opencv(jpeg: bytes, out: Any) -> None:
            cv2.cvtColor(cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB, dst=out)

        found["OpenCV"] = by_opencv
    with contextlib.suppress(ImportError):
        from record_peers.system import decoded

        def by_pillow(jpeg: bytes, out: Any) -> None:
            out[...] = decoded(jpeg)

        found["Pillow"] = by_pillow
    return found


def measure_decoders(options: Options, results: Results) -> None:
    """Which decoder: microseconds a picture of three sizes, one thread and two."""
    print("\njpeg: microseconds a picture, one thread; two threads", flush=True)
    for size in (96, 224, 512):
        jpegs = [jpeg_of(picture(number, size)) for number in range(64)]
        ways: dict[str, Callable[[int], int]] = {}
        with ThreadPoolExecutor(2) as pool:
            for name, decode in bare_decoders().items():

                def run(
                    n: int,
                    threads: int,
                    decode: Callable[[bytes, Any], None] = decode,
                    jpegs: list[bytes] = jpegs,
                    size: int = size,
                ) -> int:
                    def some(first: int) -> None:
                        out = np.empty((size, size, 3), np.uint8)
                        for number in range(first, n * 16, threads):
                            decode(jpegs[number % 64], out)

                    list(pool.map(some, range(threads)))
                    return n

                for threads in (1, 2):
                    ways[f"{name}, {threads}"] = lambda n, run=run, threads=threads: run(n, threads)
            for name, rounds in in_turn(ways, options.rounds, options.seconds).items():
                results.rounds["jpeg", str(size), name] = [seconds / 16 for seconds in rounds]
        for name in bare_decoders():
            one, two = (results.median("jpeg", str(size), f"{name}, {threads}") or 0.0 for threads in (1, 2))
            print(f"  {size:4} x {size:<4} {len(jpegs[0]):7,} B  {name:12} {one * 1e6:9.1f}  {two * 1e6:9.1f}", flush=True)


# ---------------------------------------------------------------------- opening, and a remote store


def measure_opening(options: Options, results: Results) -> None:
    """Ten million records: opening, and what of it is reading the manifest."""
    from data_stack.formats.records import RecordReader, RecordWriter
    from data_stack.formats.records.manifest import RecordsManifest

    n = 1_000_000 if options.small else 10_000_000
    folder = options.folder / "opening"
    start = time.perf_counter()
    with RecordWriter(folder, {"id": "i64"}) as writer:
        writer.extend({"id": np.arange(n)})
    print(f"\nopen: {n:,} records of 8 bytes, written in {time.perf_counter() - start:.2f} s", flush=True)
    manifest = folder / "manifest.json"

    def opening(times: int) -> int:
        for _ in range(times):
            RecordReader(folder).close()
        return times

    def first_sample(times: int) -> int:
        for number in range(times):
            with RecordReader(folder) as reader:
                if reader[n - 1 - number]["id"] != n - 1 - number:
                    raise ValueError("wrong record")
        return times

    def reading_manifest(times: int) -> int:
        for _ in range(times):
            RecordsManifest.from_json(manifest.read_bytes(), "manifest")
        return times

    ways = {"opening": opening, "opening, one sample": first_sample, "reading the manifest": reading_manifest}
    for name, rounds in in_turn(ways, options.rounds, options.seconds).items():
        results.rounds["open", "seconds", name] = rounds
        print(f"  {name:28} {statistics.median(rounds) * 1e3:9.3f} ms", flush=True)
    before = resident_bytes()
    with RecordReader(folder) as reader:
        reader[n // 2]
        grown = resident_bytes() - before
    index_bytes = (folder / "id.idx").stat().st_size
    print(f"  memory grows by {grown / 2**20:.1f} MiB; the index has {index_bytes / 2**20:.1f} MiB", flush=True)
    remove(folder)


def resident_bytes() -> int:
    """Memory of this process that is in RAM, mapped files included."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure_mongodb(options: Options, results: Results) -> None:
    """Batches of 256 out of W1, against one bare ``$in`` query of the chunks that hold them."""
    from record_peers.ours import column_of

    from data_stack.formats.records import RecordReader, RecordWriter
    from data_stack.io.storage_connectors.mongodb import MongoDBStorageConnector

    sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))
    from mongodb_server import MongoDBServer

    work = WORKLOADS["W1"](options.small)
    bucket, chunk_bytes = "records", 261_120
    with (
        MongoDBServer(cache_gb=1.0, folder=options.folder) as server,
        server.client() as client,
        MongoDBStorageConnector(server.uri("benchmark"), bucket=bucket) as connector,
    ):
        start = time.perf_counter()
        with RecordWriter(connector, {each.name: column_of(each) for each in work.schema.fields}, prefix="w1") as writer:
            writer.extend(work.columns)
        print(f"\nmongodb: W1, {work.n:,} records, written in {time.perf_counter() - start:.2f} s", flush=True)
        database = client["benchmark"]
        chunks = database[f"{bucket}.chunks"]
        file_ids = {
            each.name: database[f"{bucket}.files"].find_one({"filename": f"w1/{each.name}.bag"})["_id"]
            for each in work.schema.fields
        }
        ids = {(chunk["files_id"], chunk["n"]): chunk["_id"] for chunk in chunks.find({}, {"files_id": 1, "n": 1})}
        with RecordReader(connector, prefix="w1") as reader:
            sizes = {name: size // work.n for name, size in bag_sizes(database, bucket, file_ids).items()}
            rng = np.random.default_rng(9)
            indices = [rng.integers(0, work.n, BATCH) for _ in range(64)]
            for each in indices[:3]:
                _check_batch("mongodb", reader.read_batch(each), work, each)

            def touched(each: np.ndarray[Any, Any]) -> list[Any]:
                wanted = set()
                for name, size in sizes.items():
                    for place in (each * size, (each + 1) * size - 1):
                        wanted |= {(file_ids[name], number) for number in (place // chunk_bytes).tolist()}
                return [ids[key] for key in wanted]

            queries = itertools.cycle([touched(each) for each in indices])
            wheel = itertools.cycle(indices)

            def ours(n: int) -> int:
                for each in itertools.islice(wheel, n):
                    kept = reader.read_batch(each)
                del kept
                return n

            def bare(n: int) -> int:
                for query in itertools.islice(queries, n):
                    for chunk in chunks.find({"_id": {"$in": query}}, {"data": 1, "n": 1, "files_id": 1}):
                        len(chunk["data"])
                return n

            n_chunks = statistics.mean(len(touched(each)) for each in indices)
            ways = {"ours": ours, "one bare $in": bare}
            for name, rounds in in_turn(ways, max(options.rounds, 5), max(options.seconds * 3, 0.5)).items():
                results.rounds["mongodb", "batch", name] = rounds
                print(
                    f"  {name:28} {statistics.median(rounds) * 1e3:9.2f} ms a batch of 256, out of {n_chunks:.0f} chunks",
                    flush=True,
                )


def bag_sizes(database: Any, bucket: str, file_ids: Mapping[str, Any]) -> dict[str, int]:
    """Lengths of files by their column."""
    files = database[f"{bucket}.files"]
    return {name: int(files.find_one({"_id": file_id})["length"]) for name, file_id in file_ids.items()}


# ---------------------------------------------------------------------- what comes out of it


def print_measure(case: str, measure: str, results: Results) -> None:
    """One line a system, the fastest first."""
    names = results.systems(case, measure)
    if not names:
        return
    print(f"  {measure}: {MEASURES[measure]}")
    ours = results.median(case, measure, "ours")
    for name in names:
        kept = results.rounds[case, measure, name]
        middle = statistics.median(kept)
        if measure == "size":
            figure, spread = f"{middle:,.0f}", ""
        elif measure == "open":
            figure, spread = f"{middle * 1e3:.3f}", f"{1e3 * min(kept):.3f} to {1e3 * max(kept):.3f}"
        else:
            figure, spread = f"{1 / middle:,.0f}", f"{1 / max(kept):,.0f} to {1 / min(kept):,.0f}"
        kind = {"limit": "limit", "ours": "*"}.get(results.kinds.get(name, ""), "")
        ratio = f"ours: {ours / middle if measure == 'size' else middle / ours:8.3f} x" if ours and name != "ours" else ""
        print(f"    {name:28} {figure:>16}  {ratio:20} {kind:6} {spread}")
    sys.stdout.flush()


@dataclass(frozen=True)
class Target:
    """A line of the issue's table: ours is at least ``factor`` times as fast as another (``at_most``: takes at most as much)."""

    what: str
    case: str
    measure: str
    against: str
    factor: float
    ours: str = "ours"
    at_most: bool = False


def targets() -> list[Target]:
    """The issue's table."""
    return [
        Target("W1 read_batch(256 random)", "W1", "batch", "memmap", 0.5),
        Target("W1 read_batch(256 random)", "W1", "batch", "best peer", 20),
        Target("W1 read_batch(256 random)", "W1", "batch", "lmdb, joined", 20),
        Target("W4 read_batch(256 random)", "W4", "batch", "memmap", 0.5),
        Target("W4 read_batch(256 random)", "W4", "batch", "best peer", 10),
        Target("W4 read_batch(256 random)", "W4", "batch", "lmdb, joined", 10),
        *(
            Target(f"{work} one sample, random", work, "one", against, factor)
            for work in ("W1", "W4")
            for against, factor in (("best peer", 1.2), ("granular", 8))
        ),
        Target("W2 read_batch(256 random)", "W2", "batch", "memmap", 0.85),
        Target("W2 read_batch(256 random)", "W2", "batch", "best peer", 1.2),
        Target("W2 one sample, random", "W2", "one", "memmap", 0.85),
        Target("W2 one sample, random", "W2", "one", "best peer", 0.9),
        Target("W3 decoded, random batches, both cores", "W3", "both cores", "best peer", 1.5),
        Target("W3 decoded, random batches, both cores", "W3", "both cores", "bare simplejpeg, 2 threads", 0.9),
        *(
            Target(f"{work} sequential, {measure}", work, measure, "best peer", 1)
            for work in WORKLOADS
            for measure in ("records", "batches")
        ),
        *(
            Target(f"{work} {measure}", work, measure, against, factor)
            for work in ("W1", "W4")
            for measure in ("write", "write, fsync")
            for against, factor in (("best peer", 0.5), ("granular", 10))
        ),
        *(Target(f"W2 {measure}", "W2", measure, "best peer", 1) for measure in ("write", "write, fsync")),
        Target("one batch of 256 of W1 out of MongoDB", "mongodb", "batch", "one bare $in", 1.5, at_most=True),
        *(Target(f"{work} size on disk", work, "size", "granular", 1.005, at_most=True) for work in WORKLOADS),
    ]


def print_targets(results: Results) -> None:
    """Every line of the table that was measured, and whether it is met."""
    print(f"\n{'target':42} {'against':34} {'ratio':>9}  {'wanted':>10}")
    for target in targets():
        other = results.best_peer(target.case, target.measure) if target.against == "best peer" else target.against
        ours, theirs = (results.median(target.case, target.measure, name) for name in (target.ours, other or ""))
        if ours is None or theirs is None:
            continue
        ratio = ours / theirs if target.at_most else theirs / ours
        met = ratio <= target.factor if target.at_most else ratio >= target.factor
        named = f"best peer, {other}" if target.against == "best peer" else str(other)
        wanted = f"{'<=' if target.at_most else '>='} {target.factor:g} x"
        print(f"{target.what:42} {named:34} {ratio:7.3f} x  {wanted:>10}  {'met' if met else 'NOT MET'}")
        results.targets.append({"what": target.what, "against": named, "ratio": ratio, "wanted": wanted, "met": met})
    opening, manifest = (results.median("open", "seconds", name) for name in ("opening", "reading the manifest"))
    if opening is not None and manifest is not None:
        rest = opening - manifest
        met = rest < 5e-3
        what, verdict = "opening 10 M records", "met" if met else "NOT MET"
        print(f"{what:42} {'reading the manifest':34} {rest * 1e3:6.3f} ms  < 5 ms more  {verdict}")
        results.targets.append(
            {"what": "opening 10 M records", "against": "reading the manifest", "seconds": rest, "wanted": "< 5 ms", "met": met}
        )


def as_json(results: Results, options: Options, machine: str) -> dict[str, Any]:
    """All medians, bests and targets."""
    cases: dict[str, Any] = {}
    for (case, measure, name), kept in results.rounds.items():
        entry = {"median": statistics.median(kept), "best": min(kept), "worst": max(kept), "rounds": len(kept)}
        cases.setdefault(case, {}).setdefault(measure, {})[name] = entry
    return {
        "machine": machine,
        "small": options.small,
        "unit": "seconds a record (open: seconds; size: bytes; mongodb: seconds a batch)",
        "cases": cases,
        "targets": results.targets,
    }


@dataclass(frozen=True)
class Options:
    """What the command line asked for."""

    only: Sequence[str]
    systems: Sequence[str]
    measures: Sequence[str]
    small: bool
    rounds: int
    write_rounds: int
    seconds: float
    folder: Path
    clock: Callable[[], float]


def importlib_found(package: str) -> bool:
    """Whether a distribution is installed."""
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def available(names: Sequence[str]) -> dict[str, System]:
    """Systems that can be imported; the others are named."""
    found = {}
    for name in names:
        try:
            found[name] = system(name)
        except Exception as error:  # a package may be there and broken, in its own way
            print(f"{name} is left out: {type(error).__name__}: {str(error)[:200]}", flush=True)
    return found


def machine() -> str:
    """What it runs on."""
    found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return (
        f"{found.group(1) if found else 'unknown processor'}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, "
        f"Python {sys.version.split()[0]}, numpy {np.__version__}"
    )


def main() -> None:
    """Run what was asked for."""
    cases = [*WORKLOADS, "open", "mongodb", "jpeg"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=cases, default=cases)
    parser.add_argument("--systems", nargs="+", choices=list(MODULES), default=list(MODULES))
    parser.add_argument("--measures", nargs="+", choices=list(MEASURES), default=list(MEASURES))
    parser.add_argument("--small", action="store_true", help="a tenth of the records, short rounds: does it run at all?")
    parser.add_argument("--rounds", type=int, default=None, help="of reading; 9, or 3 with --small")
    parser.add_argument("--write-rounds", type=int, default=None, help="5, or 2 with --small")
    parser.add_argument("--seconds", type=float, default=None, help="of one turn of one system; 0.1, or 0.02 with --small")
    parser.add_argument(
        "--cpu", action="store_true", help="processor time of what reads in this process, for a machine that is shared"
    )
    parser.add_argument("--folder", type=Path, default=None, help="on which disk the files lie")
    parser.add_argument("--json", type=Path, default=None, help="where the figures are written")
    given = parser.parse_args()
    rounds, write_rounds, seconds = (3, 2, 0.02) if given.small else (9, 5, 0.1)
    with tempfile.TemporaryDirectory(dir=given.folder, prefix="data_stack-benchmark-records-") as folder:
        options = Options(
            given.only,
            given.systems,
            given.measures,
            given.small,
            given.rounds or rounds,
            given.write_rounds or write_rounds,
            given.seconds or seconds,
            Path(folder),
            time.process_time if given.cpu else time.perf_counter,
        )
        described = machine() + (", processor time of reads" if given.cpu else "")
        print(described)
        systems = available(options.systems)
        versions = sorted({package for each in systems.values() for package in each.packages})
        print(", ".join(f"{package} {importlib.metadata.version(package)}" for package in versions))
        results = Results(kinds={name: each.kind for name, each in systems.items()})
        for case in options.only:
            if case in WORKLOADS:
                measure_workload(WORKLOADS[case](options.small), systems, options, results)
        extra = {"open": measure_opening, "mongodb": measure_mongodb, "jpeg": measure_decoders}
        for case in options.only:
            if case in extra:
                try:
                    extra[case](options, results)
                except ImportError as error:
                    print(f"\n{case} is left out: {error}", flush=True)
        print_targets(results)
        if given.json is not None:
            given.json.write_text(json.dumps(as_json(results, options, described), indent=1))


if __name__ == "__main__":
    main()
