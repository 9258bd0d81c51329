"""Damages datasets and reads them, one after the other, in a process that may crash.

Mutant ``i`` depends on the kind, the seed and ``i`` alone, so that one that failed can be made
again: ``fuzz_child.run(kind, seed, i, i + 1)``.
"""

from __future__ import annotations

import collections
import faulthandler
import functools
import os
import random
import resource
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from fuzz_arrow import DamagedArrowFiles
from fuzz_datasets import FuzzDataset, fuzz_datasets, write_files
from fuzz_files import DamagedFiles
from fuzz_mutations import mutant_of
from fuzz_readings import Attempt, Violation, read_records

_MEMORY_BYTES = 4 << 30
_GROWTH_BYTES = 1500 << 20
_MAX_FAILURES = 20
_HUNG_SECONDS = 60.0


def _execute_records(
    datasets: list[FuzzDataset], folder: Path, chance: random.Random
) -> list[Attempt]:
    """Damage a record dataset, and read it."""
    mutant = mutant_of(
        chance.choices(datasets, [dataset.weight for dataset in datasets])[0], chance
    )
    write_files(folder / "records", mutant.files)
    return read_records(
        folder / "records", mutant.promise, mutant.is_damaged, mutant.dataset.truth, chance
    )


def run(kind: str, seed: int, first: int, stop: int) -> dict[str, Any]:
    """Counts and failures of the mutants ``first`` to ``stop``; the number of the one at work is
    written to standard output.
    """
    warnings.simplefilter("ignore")
    np.seterr(all="ignore")
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + _MEMORY_BYTES,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    counts: collections.Counter[str] = collections.Counter()
    failures: list[str] = []
    with tempfile.TemporaryDirectory(
        dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    ) as folder:
        execute: Any
        if kind == "records":
            execute = functools.partial(_execute_records, fuzz_datasets(), Path(folder))
        elif kind == "arrow":
            execute = DamagedArrowFiles(Path(folder)).execute
        else:
            execute = DamagedFiles(Path(folder)).execute
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for number in range(first, stop):
            print(number, flush=True)
            faulthandler.dump_traceback_later(_HUNG_SECONDS, exit=True, file=2)
            started = time.process_time()
            try:
                attempts = execute(random.Random(f"{kind} {seed} {number}"))
                n_values = sum(attempt.error is None for attempt in attempts)
                counts.update(
                    {
                        "readings with a value": n_values,
                        "readings refused": len(attempts) - n_values,
                    }
                )
                before, peak = peak, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                if (peak - before) * 1024 > _GROWTH_BYTES:
                    raise Violation(f"{(peak - before) >> 10} MiB more memory for one mutant")
            except Exception:
                failures.append(
                    f"run({kind!r}, {seed}, {number}, {number + 1})\n{traceback.format_exc()[-3_000:]}"
                )
            counts["executions"] += 1
            counts["slowest, ms"] = max(
                counts["slowest, ms"], round(1000 * (time.process_time() - started))
            )
            if len(failures) >= _MAX_FAILURES:
                break
        faulthandler.cancel_dump_traceback_later()
    return {"counts": counts, "failures": failures}
