"""Damaged records, shards, folders of images and Parquet: the truth, or an error of ours; never a crash, a hang or much memory.

``make test-full`` runs 140,000 mutants, ``make test`` a few. What fails is made again by the command that is printed.
"""

from __future__ import annotations

import collections
import concurrent.futures
import json
import os
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fuzz_child
import pytest
from sizes import FULL

SEED = int(os.environ.get("DATA_STACK_FUZZ_SEED", "1"))
EXECUTIONS = {
    "records": (60, 50_000),
    "files": (100, 90_000),
}
"""How many mutants, in the small and in the full form."""
N_CHUNKS = 10
"""Children of the full form, one after the other on each processor, so that what leaks or hoards memory in one is noticed."""
STUCK_SECONDS = 120.0


def run_child(kind: str, first: int, stop: int, report: Path) -> dict[str, Any]:
    """Counts and failures of a child; its death is one too."""
    command = [sys.executable, fuzz_child.__file__, kind, str(SEED), str(first), str(stop), str(report)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as child:
        at, since = -1, time.monotonic()
        while child.poll() is None:
            try:
                child.wait(0.5)
            except subprocess.TimeoutExpired:
                now = mutant_at(report)
                at, since = now, since if now == at else time.monotonic()
                if time.monotonic() - since > STUCK_SECONDS:
                    child.send_signal(signal.SIGKILL)
        output = child.stdout.read() if child.stdout else ""
    if child.returncode:
        failure = {"kind": kind, "seed": SEED, "number": mutant_at(report), "error": f"exit status {child.returncode}\n{output}"}
        return {"counts": {"crashes": 1}, "failures": [failure]}
    answer: dict[str, Any] = json.loads(report.read_bytes()[8:])
    return answer


def mutant_at(report: Path) -> int:
    """The number of the mutant at work; -1 before the first."""
    head = report.read_bytes()[:8] if report.exists() else b""
    return int(struct.unpack("<q", head)[0]) if len(head) == 8 else -1


def shown(failure: dict[str, Any]) -> str:
    again = f"python {fuzz_child.__file__} {failure['kind']} {failure['seed']} {failure['number']} {failure['number'] + 1} -"
    return f"{again}\n{failure['error'][-3_000:]}"


@pytest.mark.timeout(4 * 3600 if FULL else 150)
@pytest.mark.parametrize("kind", fuzz_child.KINDS)
def test_a_mutant_is_the_truth_or_an_error_of_ours(
    kind: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    n_executions = EXECUTIONS[kind][FULL]
    started = time.monotonic()
    chunk = n_executions // (N_CHUNKS if FULL else 1)
    starts = range(0, n_executions, chunk)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = [pool.submit(run_child, kind, i, min(i + chunk, n_executions), tmp_path / f"{i}") for i in starts]
        answers = [run.result() for run in runs]

    counts: collections.Counter[str] = collections.Counter()
    for answer in answers:
        slowest = max(counts["slowest, ms"], answer["counts"].pop("slowest, ms", 0))
        counts.update(answer["counts"])
        counts["slowest, ms"] = slowest
    failures = [failure for answer in answers for failure in answer["failures"]]
    line = ", ".join(f"{number} {what}" for what, number in sorted(counts.items()))
    record_property("figures", f"{kind}: {line}, {len(failures)} failures ({time.monotonic() - started:.0f} s)")
    assert not failures, f"{len(failures)} of {n_executions} failed:\n" + "\n\n".join(map(shown, failures[:5]))
    assert counts["executions"] == n_executions
