"""Compare the speed of this checkout with that of another commit.

``python tools/compare_speed.py BASE`` writes the files of the commit BASE to a temporary folder and
measures both checkouts in turns, each in a process of its own, for about two minutes. A ratio above
1 means that this checkout is faster. Cases below 0.95 are measured again, with more rounds; a case
that stays below 0.95 is an error to explain: the exit status is 1.

Each checkout uses its own package, plugins, ``benchmarks/`` and ``tests/support``; the installed
libraries are the same. Files lie in memory if ``/dev/shm`` has room.
"""

from __future__ import annotations

import argparse
import functools
import gc
import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent
MIN_RATIO = 0.95
#: Seconds that one measurement takes; the number of calls is fitted to it.
TURN_SECONDS = 0.1
N_ROUNDS, N_MORE_ROUNDS = 9, 25
BATCH = 256

#: What a case calls again and again.
Work = Callable[[], object]


# ------------------------------------------------------------------- cases, which run in a checkout


class Cases:
    """The cases, with the files that they read.

    Args:
        folder: an empty folder for files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._written: dict[str, Any] = {}
        self._cleanup = ExitStack()

    def records(self, name: str) -> Any:
        """A workload of ``benchmarks/record_peers`` as records."""
        from record_peers import ours  # type: ignore[import-not-found]  # of the checkout's benchmarks
        from record_peers.workload import WORKLOADS  # type: ignore[import-not-found]  # likewise

        from data_stack.formats.records import RecordReader

        folder = self.folder / name
        if name not in self._written:
            ours.write(WORKLOADS[name](True), folder)
            self._written[name] = True
        return RecordReader(folder)

    def parquet(self) -> Path:
        """The datasets of ``benchmarks/parquet_peers``."""
        if "parquet" not in self._written:
            from parquet_peers import alone  # type: ignore[import-not-found]  # of the checkout's benchmarks

            alone.write_files(self.folder / "parquet", small=True)
            self._written["parquet"] = True
        return self.folder / "parquet"

    def arrays(self) -> Any:
        """Images and labels in memory."""
        import numpy as np

        from data_stack import SequenceDatasetIterator

        images = np.random.default_rng(0).integers(0, 256, (20_000, 28, 28), dtype=np.uint8)
        return SequenceDatasetIterator([images, np.arange(20_000)])

    def mongodb(self) -> Any:
        """A resource of 128 MiB in a mongod, more than caches hold."""
        from mongodb_server import MongoDBServer

        from data_stack.io.storage_connectors.mongodb import MongoDBStorageConnector

        server = self._cleanup.enter_context(MongoDBServer(folder=self.folder))
        connector = MongoDBStorageConnector(server.uri("speed"), bucket="speed")
        connector.set_resource("large.bin", [os.urandom(1 << 20) for _ in range(128)])
        return self._cleanup.enter_context(connector.get_resource("large.bin"))

    def close(self) -> None:
        """Stop servers."""
        self._cleanup.close()


def _singles(iterator: Any) -> Work:
    import numpy as np

    positions = np.random.default_rng(1).integers(0, len(iterator), 500).tolist()

    def read() -> None:
        for position in positions:
            iterator[position]

    return read


def _batches(iterator: Any, size: int = BATCH) -> Work:
    import numpy as np

    positions = np.random.default_rng(1).integers(0, len(iterator), size)
    return lambda: iterator.read_batch(positions)


def _first_epochs(iterator: Any, kind: Any) -> Work:
    from data_stack.loader import Loader

    def run() -> None:
        with Loader(
            iterator,
            BATCH,
            shuffle=True,
            seed=1,
            workers=None if kind == "inline" else 2,
            worker_kind=kind,
        ) as loader:
            for _ in loader:
                pass

    return run


@contextmanager
def _later_epochs(iterator: Any, kind: Any) -> Iterator[Work]:
    from data_stack.loader import Loader

    with Loader(
        iterator,
        BATCH,
        shuffle=True,
        seed=1,
        workers=None if kind == "inline" else 2,
        worker_kind=kind,
    ) as loader:

        def run() -> None:
            for _ in loader:
                pass

        run()
        yield run


def _program(text: str) -> Work:
    return lambda: subprocess.run(
        [sys.executable, "-c", text], check=True, stdout=subprocess.DEVNULL
    )


def _parquet_epoch(cases: Cases, case: str, way: str) -> Work:
    from parquet_peers import alone

    folder = cases.parquet()
    return lambda: alone.epoch_of(case, way, folder)


def _unchanged(sample: Any) -> Any:
    return sample


def _encoded(cases: Cases) -> Any:
    import numpy as np

    from data_stack import SequenceDatasetIterator
    from data_stack.dataset.encoders import CategoricalEncoder, ContinuousEncoder

    rng = np.random.default_rng(2)
    rows = SequenceDatasetIterator([rng.normal(size=(10_000, 8)), rng.integers(0, 8, 10_000)])
    return rows.encode(
        {0: ContinuousEncoder("standard"), 1: CategoricalEncoder("one_hot")}, fit_on=rows
    )


def _combined(n_parts: int, n_in_part: int = 100) -> Any:
    """Parts of images and labels, one behind the other."""
    import numpy as np

    from data_stack import CombinedDatasetIterator, SequenceDatasetIterator

    pictures = np.random.default_rng(0).integers(0, 256, (n_in_part, 28, 28), dtype=np.uint8)
    parts = [
        SequenceDatasetIterator([pictures.copy(), np.full(n_in_part, number)])
        for number in range(n_parts)
    ]
    return CombinedDatasetIterator(parts)


def _rows(n_rows: int = 20_000) -> Any:
    """Rows of two numbers by name."""
    import numpy as np

    from data_stack import SequenceDatasetIterator

    columns = [np.arange(n_rows), np.arange(float(n_rows))]
    return SequenceDatasetIterator(columns).as_dict("number", "value")


def _doubled(batch: Any) -> Any:
    return {**batch, "value": batch["value"] * 2}


def _is_even(number: Any) -> Any:
    return number % 2 == 0


def _documents() -> Any:
    """Texts of 5 to 60 tokens."""
    import numpy as np

    from data_stack import SequenceDatasetIterator

    rng = np.random.default_rng(4)
    tokens = [rng.integers(0, 1000, size=length) for length in rng.integers(5, 60, 2000)]
    return SequenceDatasetIterator([tokens])


def _folded(cases: Cases) -> Any:
    """The training part of a fold of five."""
    training, _ = next(iter(cases.arrays().folds(5, seed=1)))
    return training


def _csv(cases: Cases) -> Work:
    """Loading a table of 50,000 rows of four columns."""
    import data_stack

    path = cases.folder / "table.csv"
    if not path.exists():
        lines = ["number,value,text,flag"]
        lines += [
            f"{number},{number / 7:.6f},row {number},{number % 2}" for number in range(50_000)
        ]
        path.write_text("\n".join(lines) + "\n")
    return lambda: data_stack.load(str(path))


def _digits() -> Work:
    import data_stack

    return lambda: data_stack.load("digits", split="train")[7]


def _mongodb_reads(cases: Cases) -> Work:
    import random

    resource, dice = cases.mongodb(), random.Random(3)

    def read() -> None:
        for _ in range(20):
            resource.read_at(dice.randrange(127 << 20), 4096)

    return read


_FIRST_BATCH = """
import sys
import numpy as np
from data_stack import SequenceDatasetIterator
from data_stack.loader import Loader
with Loader(SequenceDatasetIterator([np.zeros((5000, 28, 28), np.uint8), np.arange(5000)]), 256, shuffle=True, seed=1) as loader:
    next(iter(loader))
"""


def _stack_cases() -> dict[str, Callable[[Cases], Any]]:
    """Stacks of ``benchmarks/iterators.py`` and their relatives, and loaders over them."""
    stacks: dict[str, Callable[[Cases], Any]] = {
        "combined of 2": lambda _: _combined(2, 5000),
        "combined of 10": lambda _: _combined(10, 2000),
        "combined of 100": lambda _: _combined(100),
        "combined of 1,000": lambda _: _combined(1000),
        "shuffled view of 1,000": lambda _: _combined(1000).shuffle(7)[:50_000],
        "zip": lambda cases: cases.arrays().zip(cases.arrays()),
        "mix": lambda cases: cases.arrays().mix(cases.arrays(), proportions=[0.7, 0.3], seed=1),
        "windows": lambda _: _rows().windows(4),
        "filter": lambda _: _rows().filter(_is_even, column="number"),
        "fold": _folded,
        "repeat": lambda cases: cases.arrays().repeat(3),
        "batched map": lambda _: _rows().map(_doubled, batched=True),
        "renamed": lambda _: _rows().rename({"number": "n", "value": "v"}),
        "selected": lambda _: _rows().select("value"),
        "in memory": lambda cases: cases.arrays().in_memory(),
    }
    made: dict[str, Callable[[Cases], Any]] = {}
    for name, stack in stacks.items():
        made[f"{name}, one sample"] = functools.partial(_of_stack, _singles, stack)
        made[f"{name}, batch"] = functools.partial(_of_stack, _batches, stack)
    made["pack, batch"] = lambda _: _batches(_documents().pack(64, column=0), 32)
    for name in ("combined of 2", "combined of 100", "combined of 1,000", "zip", "mix", "filter"):
        made[f"{name}, loader"] = functools.partial(
            _of_stack, functools.partial(_first_epochs, kind="inline"), stacks[name]
        )
    made["CSV of 50,000 rows, load"] = _csv
    return made


def _of_stack(make: Callable[[Any], Work], stack: Callable[[Cases], Any], cases: Cases) -> Work:
    return make(stack(cases))


CASES: dict[str, Callable[[Cases], Any]] = {
    "W1, one sample": lambda cases: _singles(cases.records("W1")),
    "W4, one sample": lambda cases: _singles(cases.records("W4")),
    "arrays, one sample": lambda cases: _singles(cases.arrays()),
    "arrays, view of a view, one sample": lambda cases: _singles(
        cases.arrays().shuffle(seed=1)[100:]
    ),
    "arrays, map, one sample": lambda cases: _singles(cases.arrays().map(_unchanged)),
    "arrays, map of a map, one sample": lambda cases: _singles(
        cases.arrays().map(_unchanged).map(_unchanged)
    ),
    "W1, batch": lambda cases: _batches(cases.records("W1")),
    "W2, batch": lambda cases: _batches(cases.records("W2")),
    "W3, batch (JPEG)": lambda cases: _batches(cases.records("W3"), 64),
    "W4, batch": lambda cases: _batches(cases.records("W4")),
    "W4, view of a view, batch": lambda cases: _batches(cases.records("W4").shuffle(seed=1)[100:]),
    "arrays, map, batch": lambda cases: _batches(cases.arrays().map(_unchanged)),
    "arrays, encoders, batch": lambda cases: _batches(_encoded(cases)),
    **_stack_cases(),
    "W4, first epoch, inline": lambda cases: _first_epochs(cases.records("W4"), "inline"),
    "W4, first epoch, threads": lambda cases: _first_epochs(cases.records("W4"), "threads"),
    "W4, first epoch, processes": lambda cases: _first_epochs(cases.records("W4"), "processes"),
    "W4, later epoch, inline": lambda cases: _later_epochs(cases.records("W4"), "inline"),
    "W4, later epoch, threads": lambda cases: _later_epochs(cases.records("W4"), "threads"),
    "W4, later epoch, processes": lambda cases: _later_epochs(cases.records("W4"), "processes"),
    "W3, later epoch, auto (JPEG)": lambda cases: _later_epochs(cases.records("W3"), "auto"),
    "Parquet, plain columns, epoch": lambda cases: _parquet_epoch(cases, "plain", "loader, inline"),
    "Parquet, PNG, epoch": lambda cases: _parquet_epoch(cases, "mnist", "loader, inline"),
    "Parquet, PNG, make_reader": lambda cases: _parquet_epoch(cases, "mnist", "make_reader"),
    "Parquet, n-grams, make_reader": lambda cases: _parquet_epoch(cases, "ngram", "make_reader"),
    "MongoDB, 20 reads of 4 KiB": _mongodb_reads,
    "load by name": lambda cases: _digits(),
    "import data_stack": lambda cases: _program("import data_stack"),
    "program to first sample": lambda cases: _program(
        "import data_stack; data_stack.load('digits', split='train')[7]"
    ),
    "program to first batch": lambda cases: _program(_FIRST_BATCH),
}


def serve(folder: Path) -> None:
    """Measure the cases that the lines of stdin name, ``{"case", "calls"}``; answer each by the
    seconds of a call, as JSON.
    """
    # What libraries print must not be taken for an answer.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    with closing(Cases(folder)) as cases, ExitStack() as stack:
        works: dict[str, Work] = {}
        for line in sys.stdin:
            asked = json.loads(line)
            try:
                if asked["case"] not in works:
                    made = CASES[asked["case"]](cases)
                    works[asked["case"]] = (
                        stack.enter_context(made) if hasattr(made, "__enter__") else made
                    )
                    works[asked["case"]]()
                answer: dict[str, Any] = {"seconds": _measure(works[asked["case"]], asked["calls"])}
            except Exception as error:  # the base may lack what a case needs
                answer = {"error": f"{type(error).__name__}: {error}"[:300]}
            print(json.dumps(answer), file=answers)


def _measure(work: Work, n_calls: int) -> float:
    gc.collect()
    start = time.perf_counter()
    for _ in range(n_calls):
        work()
    return (time.perf_counter() - start) / n_calls


# --------------------------------------------------------------------- turns, which the parent runs


class Checkout:
    """A process that measures the cases with the package of one checkout; a context manager.

    Args:
        root: of the checkout.
        folder: an empty folder for its files.
    """

    def __init__(self, root: Path, folder: Path) -> None:
        folder.mkdir(parents=True)
        paths = [
            root,
            root / "benchmarks",
            root / "tests" / "support",
            *sorted((root / "plugins").glob("*/")),
        ]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "DATA_STACK_HOME": str(folder / "home"),
        }
        command = [sys.executable, str(Path(__file__).resolve()), "--serve", str(folder)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        # Not the caller's folder: `python -c` in a checkout would import that checkout.
        self._process = subprocess.Popen(command, cwd=folder, env=environment, **pipes)

    def measure(self, case: str, n_calls: int) -> float:
        """Seconds of one call.

        Raises:
            RuntimeError: the case failed there.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps({"case": case, "calls": n_calls}), file=self._process.stdin, flush=True)
        answer = json.loads(self._process.stdout.readline() or '{"error": "the process ended"}')
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return float(answer["seconds"])

    def __enter__(self) -> Checkout:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._process.communicate()


def compare(ours: Checkout, base: Checkout, case: str, n_rounds: int) -> list[tuple[float, float]]:
    """Seconds of a call of ours and of the base, in turns."""
    for checkout in (base, ours):  # writes files, fills caches
        checkout.measure(case, 1)
    n_calls = max(1, min(10_000, int(TURN_SECONDS / max(base.measure(case, 1), 1e-7))))
    pairs = []
    for number in range(n_rounds):
        order = (ours, base) if number % 2 else (base, ours)
        seconds = {id(checkout): checkout.measure(case, n_calls) for checkout in order}
        pairs.append((seconds[id(ours)], seconds[id(base)]))
    return pairs


def row_of(case: str, pairs: list[tuple[float, float]]) -> tuple[float, str]:
    """The median ratio, and a line of the table: medians of both, ratio with its quartiles."""
    ratios = [base / ours for ours, base in pairs]
    low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    ours_us, base_us = (statistics.median(column) * 1e6 for column in zip(*pairs, strict=True))
    flag = "" if middle >= MIN_RATIO else "  below"
    return (
        middle,
        f"{case:38} {base_us:14,.1f} {ours_us:14,.1f}   {middle:5.2f}  ({low:.2f} to {high:.2f}){flag}",
    )


def extract(commit: str, folder: Path) -> Path:
    """The files of a commit.

    Raises:
        CalledProcessError: there is no such commit.
    """
    archive = subprocess.run(
        ["git", "-C", str(HERE), "archive", commit], check=True, stdout=subprocess.PIPE
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    return folder


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("base", nargs="?", metavar="BASE", help="a commit")
    parser.add_argument(
        "--only",
        nargs="+",
        default=list(CASES),
        metavar="CASE",
        help="words that the names of cases contain",
    )
    parser.add_argument("--rounds", type=int, default=N_ROUNDS)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve is not None:
        serve(given.serve)
        return
    if given.base is None:
        parser.error("name the commit to compare with")
    room = (
        "/dev/shm"
        if os.access("/dev/shm", os.W_OK) and os.statvfs("/dev/shm").f_bavail >> 20 > 512
        else None
    )
    with tempfile.TemporaryDirectory(prefix="data_stack-speed-", dir=room) as name:
        folder = Path(name)
        root = extract(given.base, folder / "checkout")
        with Checkout(HERE, folder / "ours") as ours, Checkout(root, folder / "base") as base:
            sys.exit(_print_table(ours, base, given))


def _print_table(ours: Checkout, base: Checkout, given: argparse.Namespace) -> int:
    print(f"{'µs a call':38} {given.base[:12]:>14} {'ours':>14}   ratio  (quartiles of the turns)")
    slower = 0
    for case in CASES:
        if not any(word in case for word in given.only):
            continue
        try:
            ratio, row = row_of(case, compare(ours, base, case, given.rounds))
            if ratio < MIN_RATIO:
                ratio, row = row_of(
                    case, compare(ours, base, case, max(N_MORE_ROUNDS, given.rounds))
                )
        except RuntimeError as error:
            print(f"{case:38} not measured: {error}", flush=True)
            continue
        slower += ratio < MIN_RATIO
        print(row, flush=True)
    print(f"{slower} cases below {MIN_RATIO}")
    return int(slower > 0)


if __name__ == "__main__":
    main()
