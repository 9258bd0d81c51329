"""Uses file, MongoDB and S3 stores from many processes under random faults, and compares what they
hold with a ledger.

    make soak MINUTES=60        python tools/soak.py --minutes 60 --seed 7

Processes prepare, load, copy and remove datasets, write and read resources, and collect garbage.
Meanwhile some are killed (SIGKILL), the disk of the file store is filled (as root), mongod is
frozen, or killed and started again, and the S3 server is frozen or cut off. The ledger is kept
outside of these processes: what was acknowledged must be readable and right, what was not is whole
or absent. Each minute the faults pause: all is read, unfinished preparations are repeated or
removed, garbage is collected, and nothing may be left over. The processes that are never killed
must not grow.

The seed decides the operations and their order; which process takes one, and when a fault hits,
depends on the machine. The ledger is a file of JSON lines, which stays if something was found. Exit
status 1 if anything was found.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import logging
import multiprocessing
import os
import random
import re
import secrets
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

_TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(_TESTS / "support"), str(_TESTS / "faults" / "kit")]

import fault_dataset
import numpy as np
from fault_stores import FileStores, MongoDBStores, S3Stores, StoreKind
from faulty_tcp_proxy import FaultyTCPProxy
from mongodb_server import MongoDBServer, folder_in_memory
from process_census import children
from process_harness import frozen
from s3_server import ACCESS_KEY, SECRET_KEY, S3Server
from small_disk import tmpfs, why_no_mounts

from data_stack import DatasetCard, DatasetFactory, Resources
from data_stack.exception import DatasetNotFoundError, DataStackError, ResourceNotFoundError
from data_stack.io.storage_connectors import StorageConnector
from data_stack.loader import Loader
from data_stack.stores.copies import copy_datasets
from data_stack.stores.removal import remove_dataset

STORES, VERSIONS = ("file", "mongodb", "s3"), (1, 2, 3)
DATASETS, RESOURCES = ("set0", "set1", "set2"), ("loose/0.bin", "loose/1.bin")
#: How often each operation is drawn.
WEIGHTS = {
    "prepare": 5,
    "load": 3,
    "train": 1,
    "look": 6,
    "copy": 3,
    "remove": 2,
    "write": 5,
    "read": 6,
    "gc": 1,
}
FAULTS = {
    "mongod frozen": "mongodb",
    "mongod killed": "mongodb",
    "S3 frozen": "s3",
    "S3 cut off": "s3",
    "full disk": "file",
}
DISK_BYTES = 64 << 20
HANG_SECONDS = 150.0  # longer than any lease or timeout
# a request of a killed process may wait in a frozen server; a lease that was not returned ends
SETTLE_SECONDS = 12.0
GRACE_SECONDS = 60.0  # while others read
#: How much more there may be at the last look than at half time: memory in bytes; each lasting
#: process may have started its fork server, which is one child and its descriptors.
MAX_GROWTH = {"memory": 24 << 20, "descriptors": 4, "threads": 3, "children": 1, "processes": 5}


@dataclass(frozen=True)
class Operation:
    """What a process is to do: ``version`` of a dataset, or the number of a resource's contents;
    ``target`` of a copy.
    """

    number: int
    kind: str
    store: str
    name: str
    version: int
    target: str = ""

    @property
    def only_reads(self) -> bool:
        return self.kind in ("look", "read")


def plan(seed: int) -> Iterator[Operation]:
    """The operations of a seed, in their order, without end."""
    chance, number = random.Random(seed), 0
    while number := number + 1:
        kind, (store, target) = (
            chance.choices(list(WEIGHTS), list(WEIGHTS.values()))[0],
            chance.sample(STORES, 2),
        )
        is_dataset = kind not in ("write", "read")
        name, version = (
            chance.choice(DATASETS if is_dataset else RESOURCES),
            chance.choice(VERSIONS),
        )
        yield Operation(number, kind, store, name, version if is_dataset else number, target)


# ---------------------------------------------------------------------- in the processes


def look(connector: StorageConnector, factories: Mapping[int, DatasetFactory]) -> int | None:
    """The version that is ready; None if none is. All of it is read and compared, and nothing is
    written.
    """
    for version, factory in factories.items():
        if (manifest := factory.manifest()) is not None:
            prepared = Resources(connector, manifest.name, manifest.prepared)
            for split in fault_dataset.SPLITS:
                found, expected = (
                    factory.open(split, prepared),
                    fault_dataset.expected_samples(split, version),
                )
                for column, values in enumerate((expected, expected.sum(axis=1))):
                    if not np.array_equal(found.read_column(column), values):
                        raise AssertionError(f"wrong samples: {version} {split}, column {column}")
            return version
    return None


def execute(
    operation: Operation, stores: Mapping[str, Mapping[str, Any]], sources: str
) -> int | None:
    """Do it; returns what is stored now, as far as this operation knows."""
    name, version, factories = operation.name, operation.version, dict[int, DatasetFactory]()
    with fault_dataset.opened(stores[operation.store]) as connector:
        for each in VERSIONS:  # of which a new one replaces the old one
            card = DatasetCard(name=name, version=str(each), keeps_versions=False)
            numbers = type(fault_dataset.factory_for(connector, sources, each))
            factories[each] = type("SoakFactory", (numbers,), {"card": card})(connector)
        match operation.kind:
            case "prepare":
                factories[version].prepare(progress=False, again=operation.number % 5 == 0)
            case "load":
                if wrong := fault_dataset.wrong_samples(factories[version], version):
                    raise AssertionError(f"wrong samples: {wrong}")
            case "train":
                iterator, _ = factories[version].get_dataset_iterator()
                with Loader(iterator, 64, workers=2, worker_kind="processes", epochs=1) as loader:
                    total = sum(int(batch[1].sum()) for batch in loader)
                if total != int(
                    fault_dataset.expected_samples(fault_dataset.SPLITS[0], version).sum()
                ):
                    raise AssertionError(f"wrong batches of version {version}")
            case "look":
                return look(connector, factories)
            case "copy":
                with fault_dataset.opened(stores[operation.target]) as target:
                    copy_datasets(connector, target, [name], progress=False)
            case "remove":
                with contextlib.suppress(DatasetNotFoundError):
                    remove_dataset(name, connector, all_versions=True)
                return None
            case "write":
                connector.set_resource(name, fault_dataset.version_of(version))
            case "read":
                with (
                    contextlib.suppress(ResourceNotFoundError),
                    connector.get_resource(name) as resource,
                ):
                    return fault_dataset.check_version(resource.read())
                return None
            case "gc":
                connector.collect_garbage(GRACE_SECONDS)
    return version


def work(connection: Connection, stores: Mapping[str, Mapping[str, Any]], sources: str) -> None:
    """Do what is asked until nobody asks."""
    # a preparation says what it does again, and a client what the server did to it
    logging.disable()
    with contextlib.suppress(EOFError, OSError):
        while True:
            operation = connection.recv()
            try:
                answer: dict[str, Any] = {"value": execute(operation, stores, sources)}
            except Exception as error:  # noqa: BLE001  # the ledger judges it
                own = isinstance(error, DataStackError)
                answer = {"error": type(error).__name__, "own": own, "text": traceback.format_exc()}
            connection.send(answer)


class Worker:
    """A process that does operations; ``lasting`` ones are never killed."""

    def __init__(self, lasting: bool, *arguments: Any) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["fault_warm", "soak"])
        self.lasting, self.due = lasting, 0.0
        self.operation: Operation | None = None
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=work, args=(theirs, *arguments))
        self.process.start()
        theirs.close()

    def begin(self, operation: Operation) -> None:
        self.operation, self.due = operation, time.monotonic() + HANG_SECONDS
        self.connection.send(operation)

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.process.close()
        self.connection.close()

    def sizes(self) -> dict[str, int]:
        pid = self.process.pid or 0
        threads, descriptors = (len(os.listdir(f"/proc/{pid}/{each}")) for each in ("task", "fd"))
        # What it shares with the process it comes from counts in full: it is no growth when it
        # copies that page by page.
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
        kib = sum(
            int(line.split()[1]) for line in status if line.startswith(("RssAnon:", "RssShmem:"))
        )
        return {
            "memory": kib << 10,
            "descriptors": descriptors,
            "threads": threads,
            "children": len(children(pid)),
        }


# ---------------------------------------------------------------------- the faults


class Faults:
    """Servers and a disk that fail at random in a thread of their own, except while :attr:`calm` is
    held.
    """

    def __init__(
        self,
        seed: int,
        mongod: MongoDBServer,
        s3: S3Server,
        proxy: FaultyTCPProxy,
        disk: Path | None,
    ) -> None:
        self._chance, self._mongod, self._s3, self._proxy, self._disk = (
            random.Random(seed),
            mongod,
            s3,
            proxy,
            disk,
        )
        self.calm, self._ended, self.counts = (
            threading.Lock(),
            threading.Event(),
            collections.Counter[str](),
        )
        self._hits: dict[str, tuple[str, float]] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def hit(self, operation: Operation, since: float) -> bool:
        """Whether a fault hit a store of this operation since then; a full disk excuses no
        reader.
        """
        hits = [self._hits.get(store, ("", 0.0)) for store in (operation.store, operation.target)]
        return any(
            until + 1 >= since and (name != "full disk" or not operation.only_reads)
            for name, until in hits
        )

    def close(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self._chance.expovariate(1 / 4)):
            name, seconds = (
                self._chance.choice([*FAULTS][: None if self._disk else -1]),
                self._chance.uniform(0.1, 4),
            )
            with self.calm:
                self.counts[name] += 1
                self._hits[FAULTS[name]] = name, float("inf")
                self._do(name, seconds)
                self._hits[FAULTS[name]] = name, time.monotonic()

    def _do(self, name: str, seconds: float) -> None:
        if name == "mongod killed":
            self._mongod.kill9()
            time.sleep(seconds / 4)
            self._mongod.restart()
        elif name == "S3 cut off":
            for _ in range(int(seconds * 25)):
                self._proxy.cut_all()
                time.sleep(0.02)
        elif name == "full disk" and self._disk is not None:
            filler = self._disk / "filler"
            with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
                while file.write(bytes(1 << 20)):
                    pass
            time.sleep(seconds)
            filler.unlink()
        else:
            with frozen(self._mongod.pid if name == "mongod frozen" else self._s3.pid):
                time.sleep(seconds)


# ---------------------------------------------------------------------- the ledger


@dataclass
class Running:
    """An operation at a name: what it may find, and whether another one writes there or did not end
    well just before.
    """

    began: float
    possible: set[int | None]
    disturbed: bool
    only_reads: bool


@dataclass
class Entry:
    """What may be stored under a name."""

    allowed: set[int | None] = field(default_factory=lambda: {None})
    running: dict[int, Running] = field(default_factory=dict)
    unsettled_until: float = 0.0


class Ledger:
    """Knows what must be readable; ``file`` receives each operation's begin and end, as JSON
    lines.
    """

    def __init__(self, file: Path, faults: Faults) -> None:
        self._file, self._faults = file.open("w", buffering=1, encoding="utf-8"), faults
        self.entries = collections.defaultdict[tuple[str, str], Entry](Entry)
        self.counts, self.n_kills, self.found = collections.Counter[str](), 0, list[str]()

    def note(self, **facts: Any) -> None:
        self._file.write(json.dumps({"at": round(time.monotonic(), 3), **facts}) + "\n")

    def report(self, problem: str, **facts: Any) -> None:
        self.found.append(problem)
        self.note(FOUND=problem, **facts)

    def begin(self, operation: Operation) -> None:
        self.note(begin=asdict(operation))
        for entry, outcomes in self._touched(operation):
            others, now = entry.running.values(), time.monotonic()
            disturbed = now < entry.unsettled_until or not all(each.only_reads for each in others)
            for each in others:
                each.possible |= outcomes
                each.disturbed |= bool(outcomes)
            entry.allowed |= outcomes
            entry.running[operation.number] = Running(
                now, set(entry.allowed), disturbed, not outcomes
            )

    def end(self, operation: Operation, answer: Mapping[str, Any] | None) -> None:
        """``answer`` of the process; None if it was killed."""
        self.note(end=operation.number, answer=answer)
        self.counts["killed" if answer is None else answer.get("error", "done")] += 1
        touched = self._touched(operation)
        runs = [entry.running.pop(operation.number) for entry, _ in touched]
        is_done = answer is not None and "value" in answer
        if answer is not None and not is_done:
            excused = any(run.disturbed for run in runs) or self._faults.hit(
                operation, runs[0].began
            )
            if not answer["own"] or not (
                excused or (operation.kind == "copy" and None in runs[0].possible)
            ):
                self.report(
                    f"error without a cause: {operation}: {answer['error']}", text=answer["text"]
                )
        if answer is not None and is_done and operation.only_reads:
            self.judge(operation, answer["value"], runs[0].possible)
        for (entry, outcomes), run in zip(touched, runs, strict=True):
            if outcomes and not is_done:
                entry.unsettled_until = time.monotonic() + SETTLE_SECONDS
            elif outcomes and answer is not None and not run.disturbed:
                entry.allowed = (
                    runs[0].possible - {None} if operation.kind == "copy" else {answer["value"]}
                )

    def judge(self, operation: Operation, value: int | None, possible: set[int | None]) -> None:
        if value not in possible:
            self.report(
                f"{'lost' if value is None else 'wrong'}: {operation} found {value}, possible: {possible}"
            )

    def _touched(self, operation: Operation) -> list[tuple[Entry, set[int | None]]]:
        """The names that an operation reads or writes, and what it may leave there."""
        entry, version = self.entries[operation.store, operation.name], operation.version
        if operation.kind == "copy":
            return [
                (entry, set()),
                (self.entries[operation.target, operation.name], entry.allowed | {None}),
            ]
        # The manifest is removed before anything of a dataset is replaced; a resource is replaced
        # at once.
        outcomes: dict[str, set[int | None]] = {
            "look": set(),
            "read": set(),
            "gc": set(),
            "remove": {None},
            "write": {version},
        }
        return [(entry, outcomes.get(operation.kind, {version, None}))]


# ---------------------------------------------------------------------- the program


class Soak:
    """The operations of a plan by some processes, half of them lasting."""

    def __init__(
        self,
        seed: int,
        n_processes: int,
        kinds: Mapping[str, StoreKind],
        ledger: Ledger,
        faults: Faults,
    ) -> None:
        self._plan, self._chance, self._kinds, self._ledger, self._faults = (
            plan(seed),
            random.Random(seed),
            kinds,
            ledger,
            faults,
        )
        self._stores = {name: kind.new() for name, kind in kinds.items()}
        self._with = (
            self._stores,
            str(fault_dataset.write_sources(Path(tempfile.mkdtemp(dir=os.environ["TMPDIR"])))),
        )
        self._workers = [Worker(number % 2 == 0, *self._with) for number in range(n_processes)]
        self.looks: list[list[dict[str, int]]] = []

    def run(self, seconds: float) -> None:
        """Let them work and be killed for so long."""
        end, next_kill = time.monotonic() + seconds, time.monotonic()
        while (now := time.monotonic()) < end or any(worker.operation for worker in self._workers):
            for worker in self._workers:
                if worker.operation is None and now < end:
                    operation = next(self._plan)
                    self._ledger.begin(operation)
                    worker.begin(operation)
                elif worker.operation and now > worker.due:
                    self._ledger.report(f"hung: {worker.operation}")
                    self._replace(worker)
            if next_kill < now < end:
                next_kill = now + self._chance.expovariate(1 / 1.5)
                self._replace(
                    self._chance.choice([each for each in self._workers if not each.lasting])
                )
                self._ledger.n_kills += 1
            self._receive()

    def check(self) -> None:
        """Without faults: read all, end what is unfinished, sweep, and look at what is left."""
        with self._faults.calm:
            time.sleep(SETTLE_SECONDS)
            for (store, name), entry in sorted(self._ledger.entries.items()):
                operation = Operation(0, "look" if name in DATASETS else "read", store, name, 1)
                value = self._ask(operation)
                self._ledger.judge(operation, value, entry.allowed)
                entry.allowed, entry.unsettled_until = {value}, 0.0
                if (
                    name in DATASETS
                ):  # prepared again: another version may be unfinished beside the one that is ready
                    self._ask(
                        Operation(
                            5, "remove" if value is None else "prepare", store, name, value or 1
                        )
                    )
            for store, description in self._stores.items():
                with fault_dataset.opened(description) as connector:
                    left = self._collect_garbage(store, connector)
                    left = [
                        each for each in left if not each.startswith("lease")
                    ]  # ended; the server removes it in minutes
                    left = _not_of_the_living(left, [each.process.pid for each in self._workers])
                    entries = self._ledger.entries.items()
                    present = {
                        name
                        for (where, name), entry in entries
                        if where == store and None not in entry.allowed
                    }
                    left += [
                        each
                        for each in connector.list_resources()
                        if not {each, each.split("/")[0]} & present
                    ]
                if left:
                    self._ledger.report(f"left over in {store}: {left[:5]}, {len(left)} in all")
        mark = f"DATA_STACK_SOAK={os.environ['DATA_STACK_SOAK']}".encode()
        besides = {"files": len(os.listdir(os.environ["TMPDIR"])), "processes": _count_marked(mark)}
        self.looks.append(
            [*(worker.sizes() for worker in self._workers if worker.lasting), besides]
        )
        self._ledger.note(look=self.looks[-1])

    def _collect_garbage(self, store: str, connector: StorageConnector) -> list[str]:
        """Collect the garbage of a store, and return what is garbage still.

        The lease of a killed process may end between the collection and the look at what is left,
        so a second collection may remove it.
        """
        left: list[str] = []
        for _ in range(2):
            connector.collect_garbage(0)
            left = [
                *map(str, connector.collect_garbage(0, dry_run=True)),
                *self._kinds[store].left_over(self._stores[store]),
            ]
            if not left:
                break
        return left

    def report_growth(self) -> None:
        """What grew in the second half; nothing before the fourth look."""
        for number, last in enumerate(self.looks[-1] if len(self.looks) > 3 else []):
            for what, first in self.looks[len(self.looks) // 2][number].items():
                if last[what] > first + MAX_GROWTH.get(what, 0):
                    self._ledger.report(
                        f"{what} of process {number} grew from {first} to {last[what]}"
                    )

    def close(self) -> None:
        for worker in self._workers:
            worker.end()

    def _receive(self) -> None:
        busy = {each.connection: each for each in self._workers if each.operation}
        for connection in wait([*busy], 0.05):
            worker = next(each for each in self._workers if each.connection is connection)
            try:
                answer = worker.connection.recv()
            except (EOFError, OSError):
                self._ledger.report(f"a process died by itself: {worker.operation}")
                self._replace(worker)
                continue
            operation, worker.operation = worker.operation, None
            if operation:
                self._ledger.end(operation, answer)

    def _replace(self, worker: Worker) -> None:
        worker.end()
        if worker.operation:
            self._ledger.end(worker.operation, None)
        self._workers[self._workers.index(worker)] = Worker(worker.lasting, *self._with)

    def _ask(self, operation: Operation) -> int | None:
        try:
            return execute(operation, *self._with)
        except Exception as error:  # noqa: BLE001  # whatever it is, without a fault it is wrong
            self._ledger.report(f"{operation}: {type(error).__name__}", text=traceback.format_exc())
            return None


def _not_of_the_living(left: list[str], pids: list[int | None]) -> list[str]:
    """What is left but for what these processes could not clean up when a server was gone: it goes
    when they end.
    """
    theirs = [each for each in left if any(f"-{pid}-" in each for pid in pids)]
    marks = {*theirs, *re.findall(r"ObjectId\('(\w+)'\)", " ".join(theirs))}
    return [each for each in left if not any(mark in each for mark in marks)]


def _count_marked(mark: bytes) -> int:
    """Processes that were started with a mark in their environment."""
    count = 0
    for file in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            count += mark in file.read_bytes()
    return count


def soak(seed: int, minutes: float, n_processes: int, folder: Path, kept: Path) -> list[str]:
    """Run it in an empty folder, print the figures, and return what was found."""
    secret = {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    os.environ |= {
        "DATA_STACK_SOAK": secrets.token_hex(8),
        "TMPDIR": str(folder / "tmp"),
        "PYTHONPATH": path,
        **secret,
    }
    (folder / "tmp").mkdir()
    if why := why_no_mounts():
        print(f"no full disks: {why}")
    end = time.monotonic() + 60 * minutes
    with contextlib.ExitStack() as stack:
        disk = None if why else stack.enter_context(tmpfs(folder / "disk", DISK_BYTES))
        mongod = stack.enter_context(MongoDBServer(folder=folder_in_memory()))
        s3 = stack.enter_context(S3Server())
        proxy = stack.enter_context(FaultyTCPProxy("127.0.0.1", s3.port))
        s3.endpoint_url = f"http://127.0.0.1:{proxy.port}"
        kinds = {
            "file": FileStores(disk or folder / "files"),
            "mongodb": MongoDBStores(mongod.uri()),
            "s3": S3Stores(s3),
        }
        with contextlib.closing(Faults(seed, mongod, s3, proxy, disk)) as faults:
            ledger = Ledger(kept, faults)
            with faults.calm:  # until the stores are there
                run = stack.enter_context(
                    contextlib.closing(Soak(seed, n_processes, kinds, ledger, faults))
                )
            while (left := end - time.monotonic()) > 0:
                run.run(min(60.0, left))
                run.check()
                print(f"{ledger.counts.total()} operations, {len(ledger.found)} found", flush=True)
        run.report_growth()
        print(
            f"operations: {ledger.counts.total()}, {dict(ledger.counts)}; kills: {ledger.n_kills}; faults: {dict(faults.counts)}"
        )
        print(
            "\n".join(str(look) for look in [*run.looks[:: len(run.looks) // 6 + 1], run.looks[-1]])
        )
    return ledger.found


def main() -> int:
    """The exit status: 1 if anything was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument(
        "--seed",
        type=int,
        default=secrets.randbelow(10**6),
        help="repeats a plan; default: drawn and printed",
    )
    parser.add_argument("--processes", type=int, default=6)
    options = parser.parse_args()
    print(
        f"repeat with: python tools/soak.py --minutes {options.minutes:g} --seed {options.seed}",
        flush=True,
    )
    kept = Path(tempfile.gettempdir(), f"data_stack-soak-{options.seed}.jsonl")
    with tempfile.TemporaryDirectory(prefix="data_stack-soak-") as folder:
        found = soak(options.seed, options.minutes, options.processes, Path(folder), kept)
    if not found:
        kept.unlink()
    print("\n- ".join([f"found: {len(found)}", *found]) + f"\nledger: {kept}" * bool(found))
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
