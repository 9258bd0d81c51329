"""Killed, torn, failed or cut from its power anywhere, a preparation leaves a dataset that is ready
or is prepared further.
"""

from __future__ import annotations

import errno
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import fault_records
import pytest
from fault_dataset import NOT_READY, RIGHT
from fault_stores import DISK_ERRORS, FileStores, StoreKind
from process_harness import Fault, Harness, Outcome
from sizes import FULL, sized, spread
from small_disk import Ext4, why_no_mounts
from writing import files_of

from data_stack.formats.records import RecordReader


class Trial:
    """Prepares one dataset under many faults, and notes whatever is not as promised."""

    counted: ClassVar[dict[tuple[object, ...], int]] = {}

    def __init__(
        self, processes: Harness, stores: StoreKind, sources: str, figures: Counter[str]
    ) -> None:
        self.processes, self.stores, self.sources, self.figures = (
            processes,
            stores,
            sources,
            figures,
        )
        self.violations: list[str] = []
        self._counting = threading.Lock()

    def n_points(self, *, earlier: bool = False, looking: bool = False) -> int:
        """How many calls an undisturbed preparation makes; counted once for each kind of store."""
        what = type(self.stores), earlier, looking
        self.counted[what] = self.counted.get(what) or self._count(earlier, looking)
        return self.counted[what]

    def _count(self, earlier: bool, looking: bool) -> int:
        store = self._new_store(earlier)
        fault = self.stores.fault(store, looking=looking)
        outcome = self._run(
            "prepare", store, 1 + earlier, fault=fault, look_for_left=not self.stores.keeps_open
        )
        assert (outcome.value, outcome.left) == ("prepared", []), outcome
        self.stores.discard(store)
        return outcome.hits

    def at(
        self, point: int, action: str, *, earlier: bool = False, number: int = 0, **what: Any
    ) -> Outcome:
        """One fault in one new store: nothing half ready after it, all healed by the next run,
        nothing left.
        """
        store = self._new_store(earlier)
        fault = self.stores.fault(store, at=point, action=action, error=number, **what)
        survives = action == "error" and not self.stores.keeps_open
        # Who finds the server gone for good, waits for it as long as it may, again and again.
        given = self.stores.hurried(store) if what.get("sticky") else store
        outcome = self._run("prepare", given, 1 + earlier, fault=fault, look_for_left=survives)
        self.after_fault()
        for violation in self._judge(outcome, store, earlier):
            self.violations.append(
                f"{violation} after {action} {number or ''} at {point}: {outcome}"
            )
        self.stores.discard(store)
        return outcome

    def after_fault(self) -> None:
        """What happens between the fault and the look at what it left."""

    def assert_all_as_promised(self) -> None:
        """Fail with what was not, if anything was."""
        assert self.violations == []
        assert self.stores.left_open() == []

    def _judge(self, outcome: Outcome, store: Mapping[str, Any], earlier: bool) -> Iterator[str]:
        looks = {self._run("check", store, version).value for version in {1, 1 + earlier}}
        healed = self._run("heal", store, 1 + earlier)
        with self._counting:
            counted = {
                "points": 1,
                "killed": outcome.was_killed,
                "own errors": outcome.own,
                "not ready": looks == {NOT_READY},
            }
            self.figures.update({what: int(bool(n)) for what, n in counted.items()})
        if outcome.status is None:
            yield "hung"
        if outcome.error is not None and not outcome.own:
            yield "a foreign error"
        if outcome.status not in (0, None) and not outcome.was_killed:
            yield "died"
        if outcome.left:
            yield "descriptors or threads left"
        if not looks <= {NOT_READY, RIGHT}:
            yield f"looks ready and is not ({looks})"
        if outcome.value is not None and RIGHT not in looks:
            yield "said success, and is not ready"
        if healed.value != RIGHT:
            yield f"not healed ({healed})"
        if left := self.stores.left_over(store):
            yield f"left over: {left}"

    def _new_store(self, earlier: bool) -> Mapping[str, Any]:
        store = self.stores.new()
        if earlier:
            assert self._run("prepare", store, 1).value == "prepared"
        return store

    def _run(self, what: str, store: Mapping[str, Any], version: int, **options: Any) -> Outcome:
        return self.processes.run(f"fault_dataset:{what}", store, self.sources, version, **options)


def two_at_a_time(trials: Sequence[Callable[[], Outcome]]) -> list[Outcome]:
    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(lambda attempt: attempt(), trials))


@pytest.fixture
def trial(processes: Harness, stores: StoreKind, sources: str, figures: Counter[str]) -> Trial:
    return Trial(processes, stores, sources, figures)


@pytest.mark.parametrize(("action", "small"), [("kill", 4), ("killafter", 1), ("torn", 1)])
def test_a_preparation_killed_anywhere_is_finished_by_the_next_run(
    trial: Trial, action: str, small: int
) -> None:
    points = spread(
        trial.n_points(), sized(small, 24 // trial.stores.slowness, cost=trial.stores.cost)
    )
    two_at_a_time([partial(trial.at, point, action) for point in points])

    trial.assert_all_as_promised()
    # A few points more or less, as threads and heartbeats come and go; the last is met by chance.
    assert trial.figures["killed"] >= max(1, 0.8 * trial.figures["points"] - 1)


def test_a_replacement_killed_anywhere_leaves_one_version_whole(
    trial: Trial,
) -> None:
    points = spread(
        trial.n_points(earlier=True), sized(2, 24 // trial.stores.slowness, cost=trial.stores.cost)
    )
    two_at_a_time([partial(trial.at, point, "kill", earlier=True) for point in points])

    trial.assert_all_as_promised()


def test_an_error_anywhere_is_ours_or_overcome_and_then_healed(trial: Trial) -> None:
    n_points, slowness = trial.n_points(looking=True), trial.stores.slowness
    trials = []

    for i, name in enumerate(trial.stores.errors[: sized(1, 99)]):
        # A call that is interrupted for ever does not exist; Python repeats it for ever. In the
        # small form a server is gone for good with the first error only, which takes its time, and
        # an object store not at all.
        n_for_good = (
            4 // slowness
            if FULL
            else int(trial.stores.errors is DISK_ERRORS or (i == 0 and trial.stores.cost < 10))
        )
        for sticky, n_tried in (
            (False, 8 // slowness if FULL else 1),
            (True, 0 if name == "EINTR" else n_for_good),
        ):
            for point in spread(n_points, n_tried + 2)[1:-1]:
                trials.append(
                    partial(
                        trial.at,
                        point,
                        "error",
                        number=getattr(errno, name),
                        sticky=sticky,
                        looking=True,
                    )
                )

    trial.figures["overcome"] += sum(outcome.value is not None for outcome in two_at_a_time(trials))
    trial.assert_all_as_promised()


# ---------------------------------------------------------------------- power cuts


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Ext4]:
    if reason := why_no_mounts():
        pytest.skip(f"no power can be cut: {reason}")
    disk = Ext4(tmp_path)
    yield disk
    disk.close()


class DiskStores(FileStores):
    """Stores on a disk that is made new for each."""

    def __init__(self, disk: Ext4) -> None:
        super().__init__(disk.path)
        self._disk = disk

    def discard(self, description: Mapping[str, Any]) -> None:
        self._disk.make_new()


POWER = ["power", "powerlogafter", *(["powerafter", "powerlog"] if FULL else [])]


@pytest.mark.parametrize("action", POWER)
def test_what_was_reported_ready_survives_a_power_cut_anywhere(
    processes: Harness, disk: Ext4, sources: str, figures: Counter[str], action: str
) -> None:
    trial = Trial(processes, DiskStores(disk), sources, figures)
    trial.after_fault = disk.plug_in_again  # type: ignore[method-assign]

    for point in spread(trial.n_points(), sized(1, 24)):
        trial.at(point, action)

    trial.assert_all_as_promised()


@pytest.mark.parametrize("action", POWER)
@pytest.mark.parametrize("kind", ["columns", "sequences"] if FULL else ["columns"])
def test_a_record_dataset_is_resumed_after_a_power_cut_anywhere(
    processes: Harness, disk: Ext4, tmp_path: Path, figures: Counter[str], kind: str, action: str
) -> None:
    whole, said, dataset = tmp_path / "whole", str(tmp_path / "said"), disk.path / "dataset"
    n_points = processes.run(
        "fault_records:write", str(whole), kind, said, fault=Fault(str(whole))
    ).hits

    for point in spread(n_points, sized(1, 24)):
        disk.make_new()
        fault = Fault(str(disk.path), at=point, action=action)
        processes.run("fault_records:write", str(dataset), kind, said, fault=fault)
        disk.plug_in_again()

        fault_records.write(str(dataset), kind, said)

        assert files_of(dataset, "writing.lock") == files_of(whole, "writing.lock")
        with RecordReader(dataset) as reader:
            reader.verify()
        figures["gone on with"] += 1
