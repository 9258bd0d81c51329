"""Whole training programs, ours and those of every peer that is installed: files on disk to torch
tensors, two workers.

Run: python benchmarks/training.py [--only CASE …] [--programs NAME …] [--rounds N] [--small]
    [--folder DIR] [--json FILE]

Cases:
  images   4,000 JPEGs of 500 × 375: decoded, random resized crop to 224, flip (OpenCV), batches of 128
  tokens   128 M tokens of uint16: windows of 1,024 in random order, batches of 16
  tables   4 M rows × 14 columns of Parquet, shuffled by row groups, batches of 4,096; "tables of 3" and "tables of 200" have as
           many values in 3 and 200 columns; in "tables with nulls" a tenth of the values are null,
           which become NaN

Each program runs in a process of its own, in turns. Figures: samples/s of the second epoch;
seconds from the start of the process to its first batch, with data_stack compiled before, as pip
does with all packages; and the most memory of the process and its workers, pages that they share
counted once: with the shared memory in which batches come, by which that of this machine has grown,
and without it. Run nothing else meanwhile. Modules in ``training_peers`` say how each peer is used.
"""

from __future__ import annotations

import compileall
import importlib
import importlib.util
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import HERE, Results, machine, parser_of
from loader_peers.memory import own_bytes, shared_memory_bytes
from training_peers.data import MAKERS, N_COLUMNS

CASES = tuple(MAKERS)
_LOOK_SECONDS = 0.1
_LIMIT_SECONDS = 600


def run(case: str, name: str, data: Path, folder: Path) -> dict[str, float]:
    """Run one program.

    Returns:
        ``first`` and ``sample`` in seconds; ``memory`` in bytes, and ``own``, which is that without
        shared memory.

    Raises:
        RuntimeError: it failed, or took too long.
    """
    started, first, lines = time.perf_counter(), 0.0, b""
    peak = 0
    own_peak = 0
    shared_bytes_before = shared_memory_bytes()
    command = [sys.executable, "-m", "training_peers.alone", case, name, str(data), str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=HERE,
            env=environment,
            start_new_session=True,
        )
        assert process.stdout is not None
        try:
            while process.poll() is None or select.select([process.stdout], [], [], 0)[0]:
                if select.select([process.stdout], [], [], _LOOK_SECONDS)[0]:
                    if not (read := os.read(process.stdout.fileno(), 1 << 16)):
                        process.wait(10)
                        break
                    lines += read
                    if not first and b'{"first"' in lines:
                        first = time.perf_counter() - started
                # A batch may be made or freed while the processes are looked at, one by one.
                shared_then = shared_memory_bytes()
                own = own_bytes(process.pid)
                shared_now = shared_memory_bytes()
                own_peak = max(own_peak, own)
                shared = max(0, min(shared_then, shared_now) - shared_bytes_before)
                peak = max(peak, own + shared)
                if time.perf_counter() - started > _LIMIT_SECONDS:
                    raise RuntimeError(f"not done within {_LIMIT_SECONDS} s")
        finally:
            if process.poll() is None:
                os.killpg(process.pid, 9)
                process.wait()
            process.stdout.close()
        found = [json.loads(line) for line in lines.splitlines() if line.startswith(b'{"seconds"')]
        if not found or not first:
            log.seek(0)
            raise RuntimeError(
                log.read().decode(errors="replace").strip()[-300:]
                or f"it ended with {process.returncode}"
            )
    return {
        "first": first,
        "sample": found[0]["seconds"] / found[0]["samples"],
        "memory": float(peak),
        "own": float(own_peak),
    }


def measure(case: str, folder: Path, given: Any, results: Results) -> None:
    """All programs of a case, in turns."""
    programs = importlib.import_module(f"training_peers.{case.split()[0]}").PROGRAMS
    data = folder / case
    if not data.exists():
        MAKERS[case](data, given.small)
    chosen = [name for name in programs if not given.programs or name in given.programs]
    for name in list(chosen):
        own, prepare = folder / f"{case}, {name}", programs[name].prepare
        try:
            if prepare is not None and not own.exists():
                prepare(data, own)
        except Exception as error:  # a package may be missing, or broken in its own way
            results.leave_out(f"{case}: {name}", error)
            shutil.rmtree(own, ignore_errors=True)
            chosen.remove(name)
    figures: dict[str, list[dict[str, float]]] = {name: [] for name in chosen}
    for number in range(given.rounds):
        turn = number % max(1, len(chosen))
        for name in chosen[turn:] + chosen[:turn]:
            if f"{case}: {name}" in results.left_out:
                continue
            try:
                figures[name].append(run(case, name, data, folder / f"{case}, {name}"))
            except RuntimeError as error:
                results.leave_out(f"{case}: {name}", error)
    for figure, title, unit in (
        ("sample", "samples of the second epoch", "/s"),
        ("memory", "memory of all processes", "MiB"),
        ("own", "memory without shared memory", "MiB"),
        ("first", "start of the program to its first batch", "s"),
    ):
        full = f"{case}: {title}"
        for name, kept in figures.items():
            if kept:
                results.keep(full, name, [each[figure] for each in kept], unit)
                results.kinds[name] = programs[name].kind
        results.print(full, results.best(full, "limit"), results.best(full, "peer"))


def judge(results: Results) -> None:
    """Compare with the targets of docs and issue."""
    speed, memory, first = (
        f"images: {title}"
        for title in (
            "samples of the second epoch",
            "memory of all processes",
            "start of the program to its first batch",
        )
    )
    for ours, factor in (
        ("ours, records, threads", 1.15),
        ("ours, folder, threads", 1.15),
        ("ours, folder, auto", 1.15),
    ):
        results.at_least("images", speed, ours, "best peer", factor)
    for ours in ("ours, folder, threads", "ours, folder, auto"):
        results.at_least("images", speed, ours, "torch", 1.05)
    results.at_least("images", speed, "ours, records, processes", "torch", 1.0)
    results.at_least(
        "images", speed, "ours, records, auto", results.best(speed, "ours", "ours, records"), 0.95
    )
    for ours in ("ours, tars, threads", "ours, tars, auto"):
        results.at_least("images, tars", speed, ours, "webdataset", 1.0)
    for ours in ("ours, records, threads", "ours, records, processes", "ours, records, auto"):
        results.at_least("images, memory", memory, ours, "torch", 1.0)
    results.at_least("images, first batch", first, "ours, records, auto", "torch", 1.0)
    tokens = "tokens: samples of the second epoch"
    results.at_least("tokens", tokens, "ours, windows", "ours, records", 0.5)
    for case in N_COLUMNS:
        results.at_least(
            case, f"{case}: samples of the second epoch", "ours", "pyarrow, permuted by hand", 0.7
        )


def main() -> None:
    """Measure the chosen cases."""
    parser = parser_of(__doc__, CASES, rounds=3)
    parser.add_argument(
        "--programs", nargs="+", default=(), metavar="NAME", help="only these programs"
    )
    given = parser.parse_args()
    results = Results()
    print(machine())
    found = importlib.util.find_spec("data_stack")
    for package in (found and found.submodule_search_locations) or ():
        compileall.compile_dir(package, quiet=2)
    with tempfile.TemporaryDirectory() as temporary:
        folder = (given.folder or Path(temporary)).resolve()
        for case in given.only:
            measure(case, folder, given, results)
    print()
    judge(results)
    results.save(given.json)


if __name__ == "__main__":
    main()
