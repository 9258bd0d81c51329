"""CSV and JSON lines larger than memory: finding rows, opening, random batches, private memory.

Run: python benchmarks/text.py [--gigabytes 10] [--formats csv jsonl] [--compressed]. It takes about
eight minutes for a gigabyte, and writes files of that size. With --compressed, it measures files of
gzip and zstd only. Targets: rows are found at 500 MB/s or more; a random batch of 256 takes at most
5 ms from the page cache; each of 16 processes has at most 100 MiB of private memory; the second
opening of a file takes at most 0.1 s. Times are those of the processor. The limit is pyarrow, which reads the whole file
into memory; the peer is Hugging Face datasets, if it is installed, which first copies the file into
Arrow files.
"""

from __future__ import annotations

import functools
import gzip
import importlib.util
import json
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pyarrow.json
import zstandard
from harness import MIB, Results, answer_of, in_turn, machine, parser_of

import data_stack
from data_stack.formats.text_tables.csv_scanner import CSVRowScanner
from data_stack.formats.text_tables.kept_folder import FOLDER_VARIABLE
from data_stack.formats.text_tables.line_scanner import LineScanner

_N_PROCESSES = 16
_BATCH_SIZE = 256
_N_BATCHES = 50

#: A folder that cannot be made, so that each opening finds rows and types anew.
_NO_FOLDER = "/dev/null/none"

#: What a file that was written less than this ago needs is not kept.
_SETTLING_SECONDS = 2.1

#: Rows that are written at once.
_ROWS_OF_CSV_BLOCK = 100_000
_LINES_OF_JSON_BLOCK = 20_000


@dataclass(frozen=True)
class TextFormat:
    """A format of text.

    Attributes:
        make_block: returns the rows of which a file is made again and again.
        header: what the file begins with.
        make_scanner: makes what finds the rows.
        read_whole: reads a file into memory as a table of pyarrow.
        name_in_datasets: the name of the format in Hugging Face datasets.
    """

    make_block: Callable[[], bytes]
    header: bytes
    make_scanner: Callable[[], Any]
    read_whole: Callable[[Path], object]
    name_in_datasets: str


def make_csv_block() -> bytes:
    """Return rows with quotes, pairs of quotes and line breaks within fields."""
    numbers = np.random.default_rng(0).random(_ROWS_OF_CSV_BLOCK)
    rows = []
    for row, number in enumerate(numbers.tolist()):
        rows.append(f'{row},{number:.6f},"a ""quoted"" text,\nof row {row}",plain text,{row % 7}\n')
    return "".join(rows).encode()


def make_json_block() -> bytes:
    """Return lines of text, numbers, a truth value and a list."""
    generator = np.random.default_rng(0)
    lines = []
    for number in range(_LINES_OF_JSON_BLOCK):
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
    return "".join(lines).encode()


def read_whole_csv(path: Path) -> object:
    """Read a CSV file into memory."""
    parse_options = pyarrow.csv.ParseOptions(newlines_in_values=True)
    return pyarrow.csv.read_csv(path, parse_options=parse_options)


FORMATS = {
    "csv": TextFormat(
        make_csv_block,
        header=b"id,x,quoted,plain,label\n",
        make_scanner=functools.partial(CSVRowScanner, ",", has_quotes=True),
        read_whole=read_whole_csv,
        name_in_datasets="csv",
    ),
    "jsonl": TextFormat(
        make_json_block,
        header=b"",
        make_scanner=LineScanner,
        read_whole=pyarrow.json.read_json,
        name_in_datasets="json",
    ),
}


def write_file(path: Path, text_format: TextFormat, n_bytes: int) -> None:
    """Write a file of about ``n_bytes``."""
    block = text_format.make_block()
    with open(path, "wb") as file:
        file.write(text_format.header)
        for _ in range(max(1, n_bytes // len(block))):
            file.write(block)


def write_gzip(path: Path, packed_path: Path) -> None:
    """Compress a file by gzip."""
    with open(path, "rb") as file, gzip.open(packed_path, "wb", compresslevel=6) as packed_file:
        shutil.copyfileobj(file, packed_file, MIB)


def write_zstd(path: Path, packed_path: Path) -> None:
    """Compress a file by zstd, as one frame."""
    with open(path, "rb") as file, open(packed_path, "wb") as packed_file:
        zstandard.ZstdCompressor(level=3).copy_stream(file, packed_file)


COMPRESSIONS = {"gz": write_gzip, "zst": write_zstd}


# ---------------------------------------------------------------------- what is measured


def processor_seconds(work: Callable[[], object]) -> float:
    """Return the time of the processor that some work takes, in all threads."""
    start = time.process_time()
    work()
    return time.process_time() - start


def find_rows(path: Path, text_format: TextFormat) -> None:
    """Find all rows, as an index does."""
    scanner = text_format.make_scanner()
    with open(path, "rb") as file:
        while piece := file.read(MIB):
            scanner.feed(piece)


def read_plainly(path: Path) -> None:
    """Read a file, and do nothing with it."""
    with open(path, "rb") as file:
        while file.read(MIB):
            pass


def open_keeping_in(folder: str, path: Path) -> None:
    """Open a file with what is kept in a folder, or is kept there now."""
    os.environ[FOLDER_VARIABLE] = folder
    data_stack.load(path)


def open_by_datasets(path: Path, text_format: TextFormat, folder: str) -> Any:
    """Open a file by Hugging Face datasets, without what an earlier opening kept."""
    import datasets

    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory(dir=folder) as cache:
        return datasets.load_dataset(
            text_format.name_in_datasets, data_files=str(path), split="train", cache_dir=cache
        )


def read_batches(rows: Any) -> None:
    """Read some random batches of ours."""
    for positions in random_batches(len(rows)):
        rows.read_batch(positions)


def read_batches_by_datasets(rows: Any) -> None:
    """Read the same batches of Hugging Face datasets, as numpy arrays."""
    rows = rows.with_format("numpy")
    for positions in random_batches(len(rows)):
        rows[positions.tolist()]


def random_batches(n_rows: int, seed: int = 0) -> list[Any]:
    """Return the positions of some batches."""
    generator = np.random.default_rng(seed)
    return [generator.integers(0, n_rows, _BATCH_SIZE) for _ in range(_N_BATCHES)]


def private_bytes() -> int:
    """Return the memory that this process shares with no other."""
    text = Path("/proc/self/smaps_rollup").read_text()
    return 1024 * sum(int(number) for number in re.findall(r"Private_\w+:\s+(\d+) kB", text))


def report_memory(rows: Any, answers: Any, all_are_done: Any) -> None:
    """Read batches in a process, and send the private memory while all processes live."""
    read_batches(rows)
    all_are_done.wait()
    answers.put(private_bytes())
    all_are_done.wait()


def measure_processes(path: str) -> list[int]:
    """Return the private memory of each of several processes that read one file."""
    context = multiprocessing.get_context("spawn")
    answers: Any = context.Queue()
    all_are_done = context.Barrier(_N_PROCESSES)
    rows = data_stack.load(path)
    processes = []
    for _ in range(_N_PROCESSES):
        process = context.Process(target=report_memory, args=(rows, answers, all_are_done))
        process.start()
        processes.append(process)
    sizes = [answers.get() for _ in processes]
    for process in processes:
        process.join()
    return sizes


# ---------------------------------------------------------------------- cases


def measure_format(name: str, path: Path, n_rounds: int, results: Results) -> None:
    """Measure all cases of a file, and print them."""
    text_format = FORMATS[name]
    has_datasets = importlib.util.find_spec("datasets") is not None
    n_gigabytes = path.stat().st_size / 1e9
    folder = str(path.parent)

    case = f"finding the rows of a gigabyte of {name}"
    works: dict[str, Callable[[], object]] = {
        "ours": functools.partial(find_rows, path, text_format),
        "plain reading": functools.partial(read_plainly, path),
    }
    measure(case, works, n_rounds, n_gigabytes, "s", results)
    results.at_most("500 MB/s", case, "ours", 2.0)

    case = f"opening a gigabyte of {name}"
    works = {
        "ours": functools.partial(data_stack.load, path),
        "pyarrow": functools.partial(text_format.read_whole, path),
    }
    if has_datasets:
        works["datasets"] = functools.partial(open_by_datasets, path, text_format, folder)
    measure(case, works, 1, n_gigabytes, "s", results)

    case = f"a random batch of {_BATCH_SIZE} of {name}"
    works = {"ours": functools.partial(read_batches, data_stack.load(path))}
    if has_datasets:
        rows = open_by_datasets(path, text_format, folder)
        works["datasets"] = functools.partial(read_batches_by_datasets, rows)
    measure(case, works, n_rounds, _N_BATCHES, "ms", results)
    results.at_most("5 ms", case, "ours", 0.005)

    measure_memory(name, path, results)


def measure_compressed(name: str, path: Path, n_rounds: int, results: Results) -> None:
    """Measure opening and batches of the compressed files of a text, and print them."""
    n_gigabytes = path.stat().st_size / 1e9
    kept_folder = str(path.parent / "kept")
    for suffix, compress in COMPRESSIONS.items():
        packed_path = path.with_name(f"{path.name}.{suffix}")
        compress(path, packed_path)
        time.sleep(_SETTLING_SECONDS)
        open_keeping_in(kept_folder, packed_path)

        case = f"opening a gigabyte of {name}.{suffix}"
        works: dict[str, Callable[[], object]] = {
            "ours": functools.partial(open_keeping_in, kept_folder, packed_path),
            "ours, keeping nothing": functools.partial(open_keeping_in, _NO_FOLDER, packed_path),
        }
        measure(case, works, n_rounds, n_gigabytes, "s", results)
        results.at_most("0.1 s", case, "ours", 0.1 / n_gigabytes)

        os.environ[FOLDER_VARIABLE] = kept_folder
        case = f"a random batch of {_BATCH_SIZE} of {name}.{suffix}"
        works = {
            "ours": functools.partial(read_batches, data_stack.load(packed_path)),
            "ours, plain text": functools.partial(read_batches, data_stack.load(path)),
        }
        measure(case, works, n_rounds, _N_BATCHES, "ms", results)
        results.at_most("5 ms", case, "ours", 0.005)

        measure_memory(f"{name}.{suffix}", packed_path, results)


def measure_memory(name: str, path: Path, results: Results) -> None:
    """Measure the memory of processes that read a file, and print it.

    They are processes of another program, whose modules they can import.
    """
    case = f"private memory of each of {_N_PROCESSES} processes with {name}"
    command = [sys.executable, str(Path(__file__)), "--processes", str(path)]
    results.keep(case, "ours", answer_of(command), "MiB")
    results.print(case, "ours")
    results.at_most("100 MiB", case, "ours", 100 * MIB)


def measure(
    case: str,
    works: dict[str, Callable[[], object]],
    n_rounds: int,
    n_parts: float,
    unit: str,
    results: Results,
) -> None:
    """Measure the time of the processor for a part of the works, in turn, and print it.

    Args:
        case: the name of the case.
        works: the work of each way.
        n_rounds: how often each is done.
        n_parts: of how many parts a work consists.
        unit: the unit to print.
        results: keeps the times.
    """
    ways: dict[str, Callable[[], float]] = {}
    for way, work in works.items():
        ways[way] = functools.partial(_seconds_of_part, work, n_parts)
    for way, seconds in in_turn(case, ways, n_rounds, results).items():
        results.keep(case, way, seconds, unit)
    results.print(case, "ours")


def _seconds_of_part(work: Callable[[], object], n_parts: float) -> float:
    return processor_seconds(work) / n_parts


def main() -> None:
    """Run all cases, and print times, ratios and memory."""
    parser = parser_of(__doc__, rounds=3)
    parser.add_argument("--gigabytes", type=float, default=1.0, help="the size of each file")
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=[*FORMATS])
    parser.add_argument("--compressed", action="store_true", help="only files of gzip and zstd")
    given = parser.parse_args()
    results = Results()
    results.kinds["datasets"] = "peer"
    results.kinds["pyarrow"] = "limit"
    n_bytes = int((0.05 if given.small else given.gigabytes) * 1e9)
    # Each opening of a plain text finds the rows and types anew.
    os.environ[FOLDER_VARIABLE] = _NO_FOLDER
    print(machine())
    for name in given.formats:
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            path = Path(folder) / f"rows.{name}"
            write_file(path, FORMATS[name], n_bytes)
            if given.compressed:
                measure_compressed(name, path, given.rounds, results)
            else:
                measure_format(name, path, given.rounds, results)
    results.save(given.json)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--processes"]:
        print(measure_processes(sys.argv[2]))
    else:
        main()
