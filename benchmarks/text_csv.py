"""CSV larger than memory: finding rows, opening, random batches, memory of processes.

Run: python benchmarks/text_csv.py [--gigabytes 10]. It takes about three minutes for a gigabyte, and
writes a file of that size. Targets: rows are found at 500 MB/s or more; a random batch of 256 takes
at most 5 ms from the page cache; each of 16 processes has at most 100 MiB of private memory. Times
are those of the processor. The limit is pyarrow, which reads the whole file into memory.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
from harness import MIB, Results, answer_of, in_turn, machine, parser_of

import data_stack
from data_stack.formats.text_tables.csv_scanner import CSVRowScanner

#: Rows that are written at once.
_ROWS_OF_BLOCK = 100_000

_N_PROCESSES = 16
_BATCH_SIZE = 256
_N_BATCHES = 50


def write_csv(path: Path, n_bytes: int) -> None:
    """Write a file with quotes, pairs of quotes and line breaks within fields."""
    numbers = np.random.default_rng(0).random(_ROWS_OF_BLOCK)
    rows = []
    for row, number in enumerate(numbers.tolist()):
        rows.append(f'{row},{number:.6f},"a ""quoted"" text,\nof row {row}",plain text,{row % 7}\n')
    block = "".join(rows).encode()
    with open(path, "wb") as file:
        file.write(b"id,x,quoted,plain,label\n")
        for _ in range(max(1, n_bytes // len(block))):
            file.write(block)


def processor_seconds(work: Callable[[], object]) -> float:
    """Return the time of the processor that some work takes, in all threads."""
    start = time.process_time()
    work()
    return time.process_time() - start


def find_rows(path: Path) -> None:
    """Find all rows, as an index does."""
    scanner = CSVRowScanner(",", has_quotes=True)
    with open(path, "rb") as file:
        while piece := file.read(MIB):
            scanner.feed(piece)


def read_plainly(path: Path) -> None:
    """Read a file, and do nothing with it."""
    with open(path, "rb") as file:
        while file.read(MIB):
            pass


def read_whole(path: Path) -> None:
    """Read a file into memory as a table of pyarrow."""
    parse_options = pyarrow.csv.ParseOptions(newlines_in_values=True)
    pyarrow.csv.read_csv(path, parse_options=parse_options)


def random_batches(n_rows: int, seed: int) -> list[Any]:
    """Return the positions of some batches."""
    generator = np.random.default_rng(seed)
    return [generator.integers(0, n_rows, _BATCH_SIZE) for _ in range(_N_BATCHES)]


def read_batches(table: Any, seed: int) -> None:
    """Read some random batches."""
    for positions in random_batches(len(table), seed):
        table.read_batch(positions)


def private_bytes() -> int:
    """Return the memory that this process shares with no other."""
    text = Path("/proc/self/smaps_rollup").read_text()
    return 1024 * sum(int(number) for number in re.findall(r"Private_\w+:\s+(\d+) kB", text))


def report_memory(table: Any, seed: int, answers: Any, all_are_done: Any) -> None:
    """Read batches in a process, and send the private memory while all processes live."""
    read_batches(table, seed)
    all_are_done.wait()
    answers.put(private_bytes())
    all_are_done.wait()


def measure_processes(path: str) -> list[int]:
    """Return the private memory of each of several processes that read one table."""
    context = multiprocessing.get_context("spawn")
    answers: Any = context.Queue()
    all_are_done = context.Barrier(_N_PROCESSES)
    table = data_stack.load(path)
    processes = []
    for seed in range(_N_PROCESSES):
        process = context.Process(target=report_memory, args=(table, seed, answers, all_are_done))
        process.start()
        processes.append(process)
    sizes = [answers.get() for _ in processes]
    for process in processes:
        process.join()
    return sizes


def main() -> None:
    """Run all cases, and print times, ratios and memory."""
    parser = parser_of(__doc__, rounds=3)
    parser.add_argument("--gigabytes", type=float, default=1.0, help="the size of the file")
    given = parser.parse_args()
    results = Results()
    n_bytes = int((0.05 if given.small else given.gigabytes) * 1e9)
    print(machine())
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        path = Path(folder) / "rows.csv"
        write_csv(path, n_bytes)
        n_gigabytes = path.stat().st_size / 1e9
        # Each opening finds the rows and types anew: indexes are kept nowhere.
        os.environ["DATA_STACK_ROW_INDEXES"] = "/dev/null/none"

        case = "finding the rows of a gigabyte"
        ways = {
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
            "pyarrow": lambda: processor_seconds(lambda: read_whole(path)) / n_gigabytes,
        }
        for way, seconds in in_turn(case, ways, given.rounds, results).items():
            results.keep(case, way, seconds, "s")
        results.print(case, "ours")

        table = data_stack.load(path)
        case = f"a random batch of {_BATCH_SIZE}"
        seconds_of_rounds = []
        for seed in range(given.rounds + 1):
            seconds_of_rounds.append(processor_seconds(lambda: read_batches(table, seed)))  # noqa: B023  # called at once
        results.keep(case, "ours", [each / _N_BATCHES for each in seconds_of_rounds[1:]], "ms")
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
