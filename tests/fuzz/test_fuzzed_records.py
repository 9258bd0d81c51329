"""Damaged records, shards, folders of images and Parquet: the truth, or an error of ours; never a crash, a hang or much memory.

``make test-full`` runs 140,000 mutants, ``make test`` a few.
"""

from __future__ import annotations

import collections
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from process_harness import Harness
from sizes import FULL, SEED

N_CHUNKS = 10 if FULL else 1
"""Processes, one after the other on each processor, so that what leaks or hoards memory in one is noticed."""


@pytest.mark.timeout(4 * 3600 if FULL else 150)
@pytest.mark.parametrize(("kind", "n_mutants"), [("records", 50_000 if FULL else 60), ("files", 90_000 if FULL else 100)])
def test_a_mutant_is_the_truth_or_an_error_of_ours(
    kind: str, n_mutants: int, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    chunk = n_mutants // N_CHUNKS
    with Harness(tmp_path) as processes, ThreadPoolExecutor(os.cpu_count()) as threads:

        def run(first: int) -> tuple[dict[str, int], list[str]]:
            outcome = processes.run("fuzz_child:run", kind, SEED, first, first + chunk, timeout_seconds=3600 if FULL else 140)
            if outcome.value is None:  # the last number in the output is that of the mutant
                return {}, [f"{kind} {SEED}: status {outcome.status}\n{outcome.output[-3_000:]}{outcome.message}"]
            return outcome.value["counts"], outcome.value["failures"]

        answers = list(threads.map(run, range(0, n_mutants, chunk)))

    counts: collections.Counter[str] = collections.Counter()
    for each, _ in answers:
        slowest = max(counts["slowest, ms"], each.get("slowest, ms", 0))
        counts.update({**each, "slowest, ms": 0})
        counts["slowest, ms"] = slowest
    failures = [failure for _, found in answers for failure in found]
    record_property("figures", f"{kind}: {dict(counts)}, {len(failures)} failures")
    assert not failures, f"{len(failures)} of {n_mutants} failed:\n" + "\n\n".join(failures[:5])
    assert counts["executions"] == n_mutants
