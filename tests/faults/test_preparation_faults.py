"""Killed, torn, failed or cut from its power anywhere, a preparation leaves a dataset that is ready or is prepared further."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from fault_dataset import NOT_READY, RIGHT
from fault_processes import FaultProcesses, Outcome
from fault_size import Figures, spread
from fault_stores import DISK_ERRORS, FileStores, StoreKind
from sizes import FULL, sized
from small_disk import Ext4, why_no_mounts


class Trial:
    """Prepares one dataset under many faults, and notes whatever is not as promised."""

    def __init__(self, processes: FaultProcesses, stores: StoreKind, sources: str, figures: Figures) -> None:
        self.processes, self.stores, self.sources, self.figures = processes, stores, sources, figures
        self.violations: list[str] = []
        self._counting = threading.Lock()

    def n_points(self, *, earlier: int | None = None, looking: bool = False) -> int:
        """How many calls an undisturbed preparation makes."""
        store = self.stores.new()
        if earlier is not None:
            self._undisturbed("prepare", store, earlier)
        fault = self.stores.fault(store, looking=looking)
        version = 1 if earlier is None else 2
        outcome = self.processes.run(
            "fault_dataset:prepare", store, self.sources, version, fault=fault, look_for_left=not self.stores.keeps_open
        )
        assert outcome.value == "prepared", outcome
        assert outcome.left == [], outcome
        self.stores.discard(store)
        return outcome.hits

    def at(self, point: int, action: str, *, earlier: int | None = None, number: int = 0, **what: Any) -> Outcome:
        """One fault in one new store: nothing half ready after it, all healed by the next run, nothing left."""
        store = self.stores.new()
        version = 1
        if earlier is not None:
            self._undisturbed("prepare", store, earlier)
            version = 2
        fault = self.stores.fault(store, at=point, action=action, error=number, **what)
        survives = action == "error" and not self.stores.keeps_open
        # Who finds the server gone for good, waits for it as long as it may, again and again.
        given = self.stores.hurried(store) if what.get("sticky") else store
        outcome = self.processes.run("fault_dataset:prepare", given, self.sources, version, fault=fault, look_for_left=survives)
        self.after(outcome, store, version)
        place = f"{action} {number or ''} at {point}"
        self.judge(place, outcome, store, version, earlier)
        self.stores.discard(store)
        return outcome

    def after(self, outcome: Outcome, store: Mapping[str, Any], version: int) -> None:
        """What happens between the fault and the look at what it left."""

    def judge(self, place: str, outcome: Outcome, store: Mapping[str, Any], version: int, earlier: int | None) -> None:
        self._count("points")
        self._count("killed", outcome.was_killed)
        if outcome.hung:
            self._violated("hung", place, outcome)
        elif outcome.error is not None:
            self._count("own errors" if outcome.own else "FOREIGN ERRORS")
            if not outcome.own:
                self._violated("a foreign error", place, outcome)
        elif not outcome.was_killed and outcome.status != 0:
            self._violated("died", place, outcome)
        if outcome.status == 0 and outcome.left:
            self._count("LEFT OPEN")
            self._violated("descriptors or threads left", place, outcome)
        looks = [self.processes.run("fault_dataset:check", store, self.sources, v) for v in {version, earlier or version}]
        for look in looks:
            if look.value not in (NOT_READY, RIGHT):
                self._count("LOOKS READY AND IS NOT")
                self._violated("looks ready and is not", place, look)
        self._count("not ready", all(look.value == NOT_READY for look in looks))
        if outcome.value is not None and not any(look.value == RIGHT for look in looks):
            self._count("SAID SUCCESS")
            self._violated("said success, and is not ready", place, looks[0])
        healed = self.processes.run("fault_dataset:heal", store, self.sources, version)
        if healed.value != RIGHT:
            self._count("NOT HEALED")
            self._violated("not healed", place, healed)
        if left := self.stores.left_over(store):
            self._count("LEFT OVER")
            self._violated(f"left over: {left}", place, healed)

    def _count(self, what: str, n: int = 1) -> None:
        with self._counting:
            self.figures.counts[what] += n

    def assert_all_as_promised(self) -> None:
        """Fail with what was not, if anything was."""
        assert self.violations == []
        assert self.stores.left_open() == []

    def _undisturbed(self, what: str, store: Mapping[str, Any], version: int) -> None:
        outcome = self.processes.run(f"fault_dataset:{what}", store, self.sources, version)
        assert outcome.value == "prepared", outcome

    def _violated(self, what: str, place: str, outcome: Outcome) -> None:
        self.violations.append(f"{what} after {place}: {outcome}")


def two_at_a_time(trials: Sequence[Callable[[], Outcome]]) -> list[Outcome]:
    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(lambda attempt: attempt(), trials))


@pytest.fixture
def trial(processes: FaultProcesses, stores: StoreKind, sources: str, figures: Figures) -> Trial:
    return Trial(processes, stores, sources, figures)


@pytest.mark.parametrize(("action", "small", "full"), [("kill", 4, 200), ("killafter", 1, 200), ("torn", 1, 200)])
def test_killed_at_any_point_of_a_preparation_the_next_run_finishes_it(trial: Trial, action: str, small: int, full: int) -> None:
    n_points = trial.n_points()

    points = spread(n_points, sized(small, full, cost=trial.stores.cost))
    two_at_a_time([partial(trial.at, point, action) for point in points])

    trial.assert_all_as_promised()
    # A few points more or less, as threads and heartbeats come and go; the last is met by chance.
    assert trial.figures.counts["killed"] >= max(1, 0.8 * trial.figures.counts["points"] - 1)


def test_killed_at_any_point_of_replacing_an_earlier_version_one_of_both_is_whole(trial: Trial) -> None:
    points = spread(trial.n_points(earlier=1), sized(2, 200, cost=trial.stores.cost))
    two_at_a_time([partial(trial.at, point, "kill", earlier=1) for point in points])

    trial.assert_all_as_promised()


def test_an_error_at_any_point_is_ours_or_overcome_and_the_next_run_heals(trial: Trial) -> None:
    n_points = trial.n_points(looking=True)
    trials = []

    for i, name in enumerate(trial.stores.errors[: sized(1, 99)]):
        # A call that is interrupted for ever does not exist; Python repeats it for ever. In the small form a server is gone
        # for good with the first error only, which takes its time, and an object store not at all.
        n_for_good = 29 if FULL else int(trial.stores.errors is DISK_ERRORS or (i == 0 and trial.stores.cost < 10))
        for sticky, n_tried in ((False, 100 if FULL else 1), (True, 0 if name == "EINTR" else n_for_good)):
            for point in spread(n_points, n_tried + 2)[1:-1]:
                trials.append(partial(trial.at, point, "error", number=getattr(errno, name), sticky=sticky, looking=True))

    trial.figures.counts["overcome"] += sum(outcome.value is not None for outcome in two_at_a_time(trials))
    trial.assert_all_as_promised()


class DiskStores(FileStores):
    """Stores on a disk that is made new for each."""

    def __init__(self, disk: Ext4) -> None:
        super().__init__(disk.path)
        self._disk = disk

    def discard(self, description: Mapping[str, Any]) -> None:
        self._disk.make_new()


class PowerTrial(Trial):
    """A trial on a disk whose power is cut."""

    def __init__(self, processes: FaultProcesses, disk: Ext4, sources: str, figures: Figures) -> None:
        super().__init__(processes, DiskStores(disk), sources, figures)
        self._disk = disk

    def at_each(self, points: Sequence[int], action: str, **what: Any) -> list[Outcome]:
        """:meth:`at` for several points, two at a time."""
        with ThreadPoolExecutor(2) as threads:
            return list(threads.map(lambda point: self.at(point, action, **what), points))

    def after(self, outcome: Outcome, store: Mapping[str, Any], version: int) -> None:
        self._disk.plug_in_again()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Ext4]:
    if reason := why_no_mounts():
        pytest.skip(f"no power can be cut: {reason}")
    disk = Ext4(tmp_path)
    yield disk
    disk.close()


@pytest.mark.parametrize("action", ["power", "powerlogafter", *(["powerafter", "powerlog"] if FULL else [])])
def test_with_the_power_cut_at_any_point_what_was_said_to_be_ready_is_there(
    processes: FaultProcesses, disk: Ext4, sources: str, figures: Figures, action: str
) -> None:
    trial = PowerTrial(processes, disk, sources, figures)
    n_points = trial.n_points()

    for point in spread(n_points, sized(1, 200)):
        trial.at(point, action)

    trial.assert_all_as_promised()
