"""Many processes prepare and read one dataset at once, some are killed, clocks differ; all read the right samples."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from typing import Any

import pytest
from fault_dataset import RIGHT
from fault_processes import Fault, FaultProcesses, Process
from fault_size import Figures
from fault_stores import StoreKind
from sizes import FULL, sized

#: No process may wait longer for others than this, with all of them on two cores.
HANG_SECONDS = 30.0
FAST_CLOCK = Fault(clock_seconds=120)


class Crowd:
    """Processes that load one dataset and read all of it; what they say is collected."""

    def __init__(
        self,
        processes: FaultProcesses,
        store: Mapping[str, Any],
        sources: str,
        figures: Figures,
        hang_seconds: float = HANG_SECONDS,
    ) -> None:
        self._processes, self._store, self._sources, self._counts = processes, store, sources, figures.counts
        self._running: list[Process] = []
        self._hang_seconds = hang_seconds
        self.wrong: list[str] = []

    def grow(self, n: int, fault: Fault = Fault()) -> None:  # noqa: B008  # a value
        for _ in range(n):
            self._running.append(
                self._processes.start("fault_dataset:use", self._store, self._sources, fault=fault, FAULTS_PAUSE="0.02")
            )

    def kill(self, chance: random.Random) -> None:
        """Kill one of them, and put another in its place."""
        victim = self._running.pop(chance.randrange(len(self._running)))
        victim.kill()
        self._counts["killed"] += victim.wait().was_killed
        self.grow(1)

    def finish(self) -> None:
        """Wait for all; those that are not right are in ``wrong``."""
        for process in self._running:
            outcome = process.wait(self._hang_seconds + process.seconds_so_far)
            self._counts["right reads"] += outcome.value == RIGHT
            if outcome.hung:
                self._counts["HUNG"] += 1
            elif outcome.value is not None and outcome.value != RIGHT:
                self._counts["WRONG READS"] += 1
            if outcome.value != RIGHT:
                self.wrong.append(str(outcome))
        self._running.clear()


@pytest.mark.parametrize("leases", [False, True] if FULL else [False], ids=["no leases", "leases"][: 2 if FULL else 1])
def test_of_many_that_prepare_and_read_at_once_none_reads_wrong_though_some_are_killed(
    processes: FaultProcesses, stores: StoreKind, sources: str, figures: Figures, leases: bool
) -> None:
    chance = random.Random(4)
    kills_left = sized(6, 50, cost=stores.cost)
    while kills_left > 0:
        store = {**stores.new(), "leases": leases}
        crowd = Crowd(processes, store, sources, figures, HANG_SECONDS * stores.slowness)
        crowd.grow(sized(4, 16) // stores.slowness)
        for _ in range(min(10, kills_left)):
            time.sleep(chance.uniform(0, 0.06))
            crowd.kill(chance)
            kills_left -= 1
        crowd.finish()
        figures.counts["rounds"] += 1

        assert crowd.wrong == []
        assert processes.run("fault_dataset:heal", store, sources).value == RIGHT
        assert stores.left_over(store) == []
        stores.discard(store)

    assert stores.left_open() == []


def test_clocks_that_differ_by_two_minutes_do_no_harm(
    processes: FaultProcesses, stores: StoreKind, sources: str, figures: Figures
) -> None:
    for _ in range(sized(1, 10)):
        store = stores.new()
        crowd = Crowd(processes, store, sources, figures, HANG_SECONDS * stores.slowness)
        n_each = 2 if stores.slowness == 1 else 1
        crowd.grow(n_each)
        crowd.grow(n_each, FAST_CLOCK)
        # Whoever is two minutes ahead sweeps while the others write: nothing of theirs is as old as it seems.
        sweeper = processes.start("fault_dataset:sweep", store, 60.0, fault=FAST_CLOCK)
        crowd.finish()

        assert sweeper.wait().error is None
        assert crowd.wrong == []
        assert processes.run("fault_dataset:heal", store, sources).value == RIGHT
        stores.discard(store)
