"""Parquet: ours against Petastorm 0.13.1, and against the limits, on the same files in the same
run.

Run: python benchmarks/parquet.py [--petastorm PYTHON] [--only CASE …] [--rounds N] [--large GIB]
    [--json FILE]

Cases:
  plain      columns of numbers and lists to batches of numpy and torch, shuffled; limit: pyarrow reading the same columns
  mnist      28 x 28 PNGs, decoded; limit: bare cv2.imdecode in two threads
  frames     arrays of 16 x 64 float32, as batches and as rows
  ngram      sequences of three frames
  predicate  1 % of the rows, scattered or together: time, and how much of the files is read
  first      time to the first row
  files      time to open 10,000 files, and to read one row
  converter  a DataFrame of a million rows to batches of torch, with Spark
  quality    how many neighbours of a shuffle are of one row group
  memory     over epochs of a dataset of ``--large`` GiB

Petastorm runs with the interpreter of an environment of its own (``--petastorm``; it needs Java,
and old versions of pyarrow, pandas and pyspark), which also writes the files that both read, unless
they lie in ``--folder`` already. Without it ours writes them, and is held against the limits alone.
Every figure comes from a fresh process, in turn. Figures of ours and of the limits are medians over
the rounds, of the middle one of up to three epochs; those of Petastorm are its best: of the rounds,
of up to three epochs, and of 2 and 10 workers. A dataset is opened anew for each epoch, before its
clock starts (for predicates, and for the time to the first row, after); the system has the files in
memory.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import HERE, MIB, Results, answer_of, in_turn, machine, parser_of

PEER = HERE / "parquet_peers" / "petastorm_peer.py"
N_ROWS = {"plain": 200_000, "mnist": 60_000, "frames": 20_000, "converter": 1_000_000}
OURS = {
    "plain": (
        "loader, auto", "loader, inline", "loader, threads", "loader, torch, auto", "loader, auto, window 1",
        "loader, auto, window 16",
        "make_batch_reader", "BatchedDataLoader", "make_reader",
    ),
    "mnist": (
        "loader, auto", "loader, inline", "loader, threads", "loader, processes", "make_reader, threads", "make_reader, inline",
        "make_reader, processes", "DataLoader", "BatchedDataLoader",
    ),
    "frames": ("loader, auto", "loader, inline", "loader, threads", "make_reader"),
    "ngram": ("loader, auto", "loader, inline", "loader, threads", "make_reader"),
    "predicate": ("scattered, loader", "scattered, make_reader", "range, loader", "range, make_reader"),
    "first": (
        "mnist, loader", "mnist, make_reader", "plain, loader", "plain, loader, torch", "plain, make_batch_reader",
        "frames, loader", "frames, make_reader",
    ),
    "files": ("without a manifest", "with a manifest"),
    "converter": ("auto",),
    "quality": ("window 1", "window 4", "window 16", "full shuffle"),
    "memory": ("loader, inline", "loader, threads", "loader, processes", "loader, inline, window 4", "make_reader, threads"),
}  # fmt: skip
LIMITS = {
    "plain": ("pyarrow, to_batches", "pyarrow, row groups", "pyarrow, whole table"),
    "mnist": ("cv2, 2 threads",),
    "frames": ("pyarrow, row groups",),
}
#: Petastorm's ways by case: the name in its script.
PEERS = {
    "plain": {"make_batch_reader + BatchedDataLoader": "plain"},
    "mnist": {
        "make_reader + DataLoader": "mnist",
        "make_reader + BatchedDataLoader": "mnist_batched",
        "make_reader, threads": "mnist_rows",
        "make_reader, inline": "mnist_rows_dummy",
        "make_reader, processes": "mnist_rows_process",
    },
    "frames": {"make_reader": "frames"},
    "ngram": {"make_reader(NGram)": "ngram"},
    "predicate": {"scattered": "predicate_scattered", "range": "predicate_range"},
    "first": {"plain": "plain", "mnist": "mnist_rows", "frames": "frames"},
    "converter": {"converter": "converter"},
}
THREADS = (2, 10)
_IN_MS = ("first", "files")


def petastorms(petastorm: str, *arguments: str) -> list[str]:
    """A command of its environment: without our packages, and with Java where it can be found."""
    java = shutil.which("java")
    home = (
        [f"JAVA_HOME={Path(java).resolve().parents[1]}"]
        if java and "JAVA_HOME" not in os.environ
        else []
    )
    return [
        "env",
        "-u",
        "PYTHONPATH",
        "-u",
        "PYTHONHOME",
        "PYTHONWARNINGS=ignore",
        *home,
        petastorm,
        str(PEER),
        *arguments,
    ]


def measure(case: str, folder: Path, given: Any, results: Results) -> None:
    """All ways of a case in turn, each in a process of its own."""
    print(f"\n{case}", flush=True)
    extra = ["--epochs", "4" if case == "memory" else "3"]
    ways: dict[str, Callable[[], Any]] = {}
    for way in (*OURS[case], *LIMITS.get(case, ())):
        command = [
            sys.executable,
            "-m",
            "parquet_peers.alone",
            case,
            way,
            "--folder",
            str(folder),
            *extra,
        ]
        ways[way] = lambda command=command: answer_of(command)  # type: ignore[misc]
        results.kinds[way] = "limit" if way in LIMITS.get(case, ()) else "ours"
    for name, peer in PEERS.get(case, {}).items() if given.petastorm else ():
        for n_threads in THREADS:
            way = f"Petastorm, {name}, {n_threads} workers"
            command = petastorms(given.petastorm, "measure", peer, str(folder), str(n_threads))
            ways[way] = lambda command=command: answer_of(command, dict(os.environ))  # type: ignore[misc]
            results.kinds[way] = "peer"
    answers = in_turn(case, ways, 1 if case in ("memory", "quality") else given.rounds, results)
    if case == "quality":
        for kept in answers.values():
            print("  " + "; ".join(f"{name} {value}" for name, value in kept[0].items()))
        results.facts["quality"] = [kept[0] for kept in answers.values()]
        return
    n_rows = max(
        [N_ROWS.get(case, 0), *(answer["rows"] for kept in answers.values() for answer in kept)]
    )
    for way, kept in answers.items():
        if case == "memory":
            keep_memory(way, kept[0], results)
            continue
        figures = [
            each["seconds_to_first"] if case in _IN_MS else each["seconds"] / each["rows"]
            for each in kept
        ]
        is_peers = results.kind(way) == "peer"
        results.keep(
            case, way, [min(figures)] if is_peers else figures, "ms" if case in _IN_MS else "/s"
        )
        lost = [
            n
            for each in kept
            for n in each.get("rows_of_each_epoch", ())
            if n < n_rows and case not in ("ngram", *_IN_MS)
        ]
        if lost:
            results.facts[f"{case}: {way}"] = f"{len(lost)} epochs lost rows"
        if "bytes_read" in kept[-1]:
            results.keep("predicate: bytes read", way, [kept[-1]["bytes_read"]], "MiB")
            results.at_most(
                "predicate, 1 %: read", "predicate: bytes read", way, kept[-1]["bytes_allowed"]
            )
    results.print(case, results.best(case, "limit"), results.best(case, "peer"))


def keep_memory(way: str, answer: dict[str, Any], results: Results) -> None:
    """At most three row groups for each worker, and 100 MiB; and no growth over the epochs but by a
    row group a worker.
    """
    peaks, a_group_a_worker = answer["peaks"], answer["row_group_bytes"] * answer["workers"]
    results.keep("memory", way, [max(peaks) - answer["before"]], "MiB")
    results.keep("memory, first to last epoch", way, [max(1.0, peaks[-1] - peaks[0])], "MiB")
    results.at_most("memory", "memory", way, 3 * a_group_a_worker + 100 * MIB)
    results.at_most("memory, flat", "memory, first to last epoch", way, a_group_a_worker)


def judge(results: Results) -> None:
    """What was wanted."""
    print()

    def best_peer(case: str, name: str) -> str | None:
        return results.best(case, "peer", f"Petastorm, {name}, ")

    for way in ("loader, auto", "loader, torch, auto"):
        peer = best_peer("plain", "make_batch_reader + BatchedDataLoader")
        results.at_least("plain columns, shuffled", "plain", way, "pyarrow, to_batches", 0.8)
        results.at_least("plain columns, shuffled", "plain", way, "pyarrow, row groups", 0.7)
        results.at_least("plain columns, shuffled", "plain", way, peer, 2.5)
    results.at_least("PNGs, decoded", "mnist", "loader, auto", "cv2, 2 threads", 0.8)
    results.at_least(
        "PNGs, decoded",
        "mnist",
        "loader, auto",
        best_peer("mnist", "make_reader + DataLoader"),
        2.5,
    )
    results.at_least(
        "PNGs, decoded",
        "mnist",
        "loader, auto",
        best_peer("mnist", "make_reader + BatchedDataLoader"),
        15,
    )
    for way in ("make_reader, threads", "make_reader, inline", "make_reader, processes"):
        results.at_least("PNGs, row by row", "mnist", way, best_peer("mnist", way), 1)
    for way in ("loader, auto", "make_reader"):
        results.at_least("arrays", "frames", way, best_peer("frames", "make_reader"), 10)
        results.at_least("n-grams of 3", "ngram", way, best_peer("ngram", "make_reader(NGram)"), 10)
    for kind in ("scattered", "range"):
        results.at_least(
            f"predicate, 1 %, {kind}",
            "predicate",
            f"{kind}, loader",
            best_peer("predicate", kind),
            3,
        )
    for way in OURS["first"]:
        results.at_least(
            "time to the first row", "first", way, best_peer("first", way.partition(",")[0]), 2
        )
    results.at_most("10,000 files", "files", "with a manifest", 0.3)
    results.at_least(
        "DataFrame to torch", "converter", "auto", best_peer("converter", "converter"), 2
    )


def write_files(folder: Path, given: Any) -> None:
    """What both read, unless it is there."""
    if all(any((folder / name).glob("*.parquet")) for name in ("plain", "mnist", "frames")):
        return
    folder.mkdir(parents=True, exist_ok=True)
    command = [
        sys.executable,
        "-m",
        "parquet_peers.alone",
        "write-files",
        "",
        "--folder",
        str(folder),
    ]
    if given.petastorm is None:
        print("ours writes the files", flush=True)
        answer_of([*command, "--small"] if given.small else command)
        return
    print("Petastorm writes the files", flush=True)
    subprocess.run(
        petastorms(given.petastorm, "write", str(folder)), check=True, capture_output=True, cwd=HERE
    )


def main() -> None:
    """Run what was asked for."""
    parser = parser_of(__doc__, list(OURS), rounds=3)
    parser.add_argument(
        "--petastorm", metavar="PYTHON", help="interpreter of an environment with Petastorm 0.13.1"
    )
    parser.add_argument(
        "--large", type=float, default=4.0, metavar="GIB", help="of the dataset of the case memory"
    )
    given, results = parser.parse_args(), Results()
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory(prefix="data_stack-benchmark-parquet-") as temporary:
        folder = (given.folder or Path(temporary)).absolute()
        if set(given.only) - {"memory", "converter", "files"}:
            write_files(folder / "files", given)
        for case in given.only:
            if case == "memory":
                n_bytes = (64 if given.small else int(given.large * 1024)) * MIB
                large = [
                    "write-large",
                    "",
                    "--folder",
                    str(folder / "large"),
                    "--bytes",
                    str(n_bytes),
                ]
                answer_of([sys.executable, "-m", "parquet_peers.alone", *large])
            measure(case, folder / ("large" if case == "memory" else "files"), given, results)
    judge(results)
    results.save(given.json)


if __name__ == "__main__":
    main()
