"""JSON lines larger than memory: finding rows, opening, random batches, memory of processes.

Run: python benchmarks/text_json.py [--gigabytes 10]. It takes about five minutes for a gigabyte, and
writes a file of that size. Targets: rows are found at 500 MB/s or more; a random batch of 256 takes
at most 5 ms from the page cache; each of 16 processes has at most 100 MiB of private memory. Times
are those of the processor, with all processes that a way starts. The limit is pyarrow, which reads
the whole file into memory; the peer is Hugging Face datasets, if it is installed, which first copies
the file into Arrow files.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.json
from harness import MIB, Results, answer_of, in_turn, machine, parser_of
from text_csv import (
    _BATCH_SIZE,
    _N_BATCHES,
    _N_PROCESSES,
    measure_processes,
    processor_seconds,
    random_batches,
    read_batches,
    read_plainly,
)

import data_stack
from data_stack.formats.text_tables.line_scanner import LineScanner

#: Lines that are written at once.
_LINES_OF_BLOCK = 20_000


def write_lines(path: Path, n_bytes: int) -> None:
    """Write lines of text, numbers, a truth value and a list."""
    generator = np.random.default_rng(0)
    lines = []
    for number in range(_LINES_OF_BLOCK):
        words = generator.integers(10_000, 99_999, 30).tolist()
        row = {
            "id": number,
            "text": " ".join(map(str, words)),
            "score": float(generator.random()),
            "is_good": number % 3 == 0,
            "tokens": words[:8],
            "url": f"https://example.com/{number}",
        }
        lines.append(json.dumps(row) + "\n")
    block = "".join(lines).encode()
    with open(path, "wb") as file:
        for _ in range(max(1, n_bytes // len(block))):
            file.write(block)


def find_rows(path: Path) -> None:
    """Find all rows, as an index does."""
    scanner = LineScanner()
    with open(path, "rb") as file:
        while piece := file.read(MIB):
            scanner.feed(piece)


def open_by_datasets(path: Path, cache: str) -> Any:
    """Open the file by Hugging Face datasets, without what an earlier opening kept."""
    import datasets

    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        return datasets.load_dataset("json", data_files=str(path), split="train", cache_dir=folder)


def read_batches_by_datasets(rows: Any, seed: int) -> None:
    """Read some random batches of Hugging Face datasets, as numpy arrays."""
    rows = rows.with_format("numpy")
    for positions in random_batches(len(rows), seed):
        rows[positions.tolist()]


def main() -> None:
    """Run all cases, and print times, ratios and memory."""
    parser = parser_of(__doc__, rounds=3)
    parser.add_argument("--gigabytes", type=float, default=1.0, help="the size of the file")
    given = parser.parse_args()
    results = Results()
    results.kinds["datasets"] = "peer"
    has_datasets = importlib.util.find_spec("datasets") is not None
    n_bytes = int((0.05 if given.small else given.gigabytes) * 1e9)
    print(machine())
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        path = Path(folder) / "rows.jsonl"
        write_lines(path, n_bytes)
        n_gigabytes = path.stat().st_size / 1e9
        # Each opening finds the rows and types anew: indexes are kept nowhere.
        os.environ["DATA_STACK_ROW_INDEXES"] = "/dev/null/none"

        case = "finding the rows of a gigabyte"
        ways: dict[str, Callable[[], float]] = {
            "ours": lambda: processor_seconds(lambda: find_rows(path)) / n_gigabytes,
            "plain reading": lambda: processor_seconds(lambda: read_plainly(path)) / n_gigabytes,
        }
        for way, seconds in in_turn(case, ways, given.rounds, results).items():
            results.keep(case, way, seconds, "s")
        results.print(case, "ours")
        results.at_most("500 MB/s", case, "ours", 2.0)

        case = "opening a gigabyte"
        ways = {
            "ours": lambda: processor_seconds(lambda: data_stack.load(path)) / n_gigabytes,
            "pyarrow": lambda: (
                processor_seconds(lambda: pyarrow.json.read_json(path)) / n_gigabytes
            ),
        }
        if has_datasets:
            ways["datasets"] = lambda: (
                processor_seconds(lambda: open_by_datasets(path, folder)) / n_gigabytes
            )
        for way, seconds in in_turn(case, ways, 1, results).items():
            results.keep(case, way, seconds, "s")
        results.print(case, "ours")

        table = data_stack.load(path)
        case = f"a random batch of {_BATCH_SIZE}"
        ways = {"ours": lambda: processor_seconds(lambda: read_batches(table, 1)) / _N_BATCHES}
        if has_datasets:
            rows = open_by_datasets(path, folder)
            ways["datasets"] = lambda: (
                processor_seconds(lambda: read_batches_by_datasets(rows, 1)) / _N_BATCHES
            )
        for way, seconds in in_turn(case, ways, given.rounds + 1, results).items():
            results.keep(case, way, seconds[1:], "ms")
        results.print(case, "ours")
        results.at_most("5 ms", case, "ours", 0.005)

        # In a program of its own, whose modules another process can import.
        command = [sys.executable, str(Path(__file__)), "--processes", str(path)]
        case = f"private memory of each of {_N_PROCESSES} processes"
        results.keep(case, "ours", answer_of(command), "MiB")
        results.print(case, "ours")
        results.at_most("100 MiB", case, "ours", 100 * MIB)
    results.save(given.json)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--processes"]:
        print(measure_processes(sys.argv[2]))
    else:
        main()
