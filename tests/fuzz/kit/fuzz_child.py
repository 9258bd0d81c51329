"""Damages datasets and reads them, one after the other, in a process that may crash.

    python tests/fuzz/kit/fuzz_child.py KIND SEED FIRST STOP REPORT

Mutant ``i`` depends on KIND, SEED and ``i`` alone, so that one that failed can be made again: ``… KIND SEED i i+1 -`` shows it.
REPORT is a file: 8 bytes with the number of the mutant at work, then JSON with counts and the failures.
"""

from __future__ import annotations

import collections
import json
import os
import random
import resource
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from fuzz_datasets import fuzz_datasets
from fuzz_files import DamagedFiles, write_files
from fuzz_mutations import mutant_of
from fuzz_readings import Attempt, Violation, read_records

KINDS = ("records", "files")
_MEMORY_BYTES = 4 << 30
_GROWTH_BYTES = 1500 << 20
_MAX_FAILURES = 20

_HUNG_SECONDS = 60.0

Counts = collections.Counter[str]


class Hung(BaseException):
    """A mutant hangs; not an Exception, so that no codec catches it."""


def _hung(*_: object) -> None:
    raise Hung(f"more than {_HUNG_SECONDS} s")


class _Records:
    """Record datasets of every layout, damaged and read."""

    def __init__(self, folder: Path) -> None:
        self._datasets, self._folder = fuzz_datasets(), folder / "records"
        self._weights = [dataset.weight for dataset in self._datasets]

    def execute(self, chance: random.Random) -> list[Attempt]:
        mutant = mutant_of(chance.choices(self._datasets, self._weights)[0], chance)
        write_files(self._folder, mutant.files)
        try:
            return read_records(self._folder, mutant.promise, mutant.is_damaged, mutant.dataset.truth, chance)
        except BaseException as error:
            if hasattr(error, "add_note"):  # Python 3.11
                error.add_note(
                    f"{mutant.dataset.name}: {'; '.join(mutant.done)} ({mutant.promise}, damaged: {mutant.is_damaged})"
                )
            raise


class _Budget:
    """Memory and time of one execution."""

    def __init__(self) -> None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + _MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        self._held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def check(self) -> None:
        """Raise Violation if the peak has grown by far since the last time."""
        held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        grown, self._held = held - self._held, held
        if grown * 1024 > _GROWTH_BYTES:
            raise Violation(f"{grown >> 10} MiB more memory for one mutant")


def main(kind: str, seed: int, first: int, stop: int, report: str) -> None:
    """Run the mutants ``first`` to ``stop``."""
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, _hung)
    np.seterr(all="ignore")
    in_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    handle = -1 if report == "-" else os.open(report, os.O_RDWR | os.O_CREAT)
    counts: Counts = collections.Counter()
    failures: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="data_stack-fuzz-", dir=in_memory) as folder:
        damaged = _Records(Path(folder)) if kind == "records" else DamagedFiles(Path(folder))
        budget = _Budget()
        for number in range(first, stop):
            if handle >= 0:
                os.pwrite(handle, struct.pack("<Q", number), 0)
            started = time.process_time()
            signal.setitimer(signal.ITIMER_REAL, _HUNG_SECONDS)
            try:
                attempts = damaged.execute(random.Random(f"{kind} {seed} {number}"))
                n_values = sum(attempt.error is None for attempt in attempts)
                counts.update({"readings with a value": n_values, "readings refused": len(attempts) - n_values})
                budget.check()
            except (Exception, Hung) as error:
                text = "".join(traceback.format_exception(error))
                failures.append({"kind": kind, "seed": seed, "number": number, "error": text})
                if report == "-":
                    print(text, flush=True)
            counts["executions"] += 1
            counts["slowest, ms"] = max(counts["slowest, ms"], round(1000 * (time.process_time() - started)))
            if len(failures) >= _MAX_FAILURES and report != "-":
                break
    answer = json.dumps({"counts": counts, "failures": failures})
    if handle >= 0:
        os.pwrite(handle, answer.encode(), 8)
    else:
        print(json.dumps(counts, indent=1))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
