"""Many processes prepare and read one dataset at once, some are killed, clocks differ; all read the
right samples.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from fault_dataset import RIGHT
from fault_stores import StoreKind
from process_harness import Fault, Harness, Process
from sizes import FULL, SEED, sized

#: No process may wait longer for others than this, with all of them on two cores.
HANG_SECONDS = 120.0
FAST_CLOCK = Fault(clock_seconds=120)


def start(
    processes: Harness,
    n: int,
    store: Mapping[str, Any],
    sources: str,
    fault: Fault = Fault(),  # noqa: B008  # a value
) -> list[Process]:
    """Start processes that load one dataset and read all of it."""
    return [
        processes.start("fault_dataset:use", store, sources, fault=fault, FAULTS_PAUSE="0.02")
        for _ in range(n)
    ]


def finish(
    processes: Harness,
    running: list[Process],
    stores: StoreKind,
    store: Mapping[str, Any],
    sources: str,
) -> None:
    """Wait for all, which must have read the right samples, and look what they left."""
    outcomes = [process.wait(HANG_SECONDS * stores.slowness) for process in running]
    assert [outcome for outcome in outcomes if outcome.value != RIGHT] == []
    assert processes.run("fault_dataset:heal", store, sources).value == RIGHT
    assert stores.left_over(store) == []
    stores.discard(store)
    assert stores.left_open() == []


@pytest.mark.parametrize("leases", [False, True] if FULL else [False])
def test_concurrent_processes_read_right_values_though_some_are_killed(
    processes: Harness, stores: StoreKind, sources: str, figures: Counter[str], leases: bool
) -> None:
    chance, n_kills = random.Random(SEED), sized(4, 10, cost=stores.cost)
    for _ in range(sized(1, 6 // stores.slowness)):
        store = {**stores.new(), "leases": leases}
        running = start(processes, sized(3, 16) // stores.slowness, store, sources)
        for _ in range(n_kills):
            time.sleep(chance.uniform(0, 0.06))
            victim = running.pop(chance.randrange(len(running)))
            victim.kill()
            figures["killed"] += victim.wait().was_killed
            running += start(processes, 1, store, sources)
        figures["right reads"] += len(running)

        finish(processes, running, stores, store, sources)


def test_clocks_that_differ_by_two_minutes_do_no_harm(
    processes: Harness, stores: StoreKind, sources: str
) -> None:
    for _ in range(sized(1, 8 // stores.slowness)):
        store, n_each = stores.new(), 2 if stores.slowness == 1 else 1
        running = [
            *start(processes, n_each, store, sources),
            *start(processes, n_each, store, sources, FAST_CLOCK),
        ]
        # Whoever is two minutes ahead sweeps while the others write: nothing of theirs is as old as
        # it seems.
        sweeper = processes.start("fault_dataset:sweep", store, 60.0, fault=FAST_CLOCK)

        assert sweeper.wait().error is None
        finish(processes, running, stores, store, sources)
