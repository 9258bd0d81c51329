"""A full disk, a store that cannot be written or read: an error of ours that says so, and nothing lost."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from fault_dataset import RIGHT
from fault_stores import StoreKind
from process_harness import Harness
from sizes import sized, spread
from small_disk import tmpfs, why_no_mounts

#: Whom to be so that permissions mean something; None for who we are.
NOBODY = 65534 if os.geteuid() == 0 else None


def test_a_disk_that_is_full_at_any_stage_is_our_error_and_the_next_run_heals(
    processes: Harness, stores: StoreKind, sources: str, figures: Counter[str]
) -> None:
    for limit in spread(700_000, max(2, sized(2, 100, cost=stores.cost))):
        store = stores.new()

        outcome = processes.run(
            "fault_dataset:prepare_with_small_files", store, sources, limit, look_for_left=not stores.keeps_open
        )

        assert outcome.value == "prepared" or outcome.error == "StorageFullError", outcome
        assert outcome.left == []
        figures["prepared" if outcome.value else "StorageFullError"] += 1
        healed = processes.run("fault_dataset:heal", store, sources)
        assert healed.value == RIGHT, healed
        assert stores.left_over(store) == []
        stores.discard(store)
    assert figures["StorageFullError"] > 0


def test_a_cache_on_a_full_disk_serves_the_remote(processes: Harness, sources: str, tmp_path: Path) -> None:
    if reason := why_no_mounts():
        pytest.skip(f"no small disk can be mounted: {reason}")
    remote = tmp_path / "remote"
    assert processes.run("fault_dataset:prepare", {"url": str(remote)}, sources).value == "prepared"
    for size in spread(1_200_000, sized(2, 40)):
        with tmpfs(tmp_path / "disk", size) as disk:
            store = {"url": f"file://{remote}?cache={disk}/local"}

            outcomes = [processes.run("fault_dataset:use", store, sources, look_for_left=True) for _ in range(2)]

            assert [(outcome.value, outcome.left) for outcome in outcomes] == [(RIGHT, [])] * 2, outcomes


@pytest.fixture
def locked(processes: Harness, sources: str, open_folder: Path) -> Iterator[Path]:
    """A store with the dataset that another user may only read."""
    root = open_folder / "store"
    assert processes.run("fault_dataset:prepare", {"url": str(root)}, sources).value == "prepared"
    lock(root, 0o555, 0o444)
    yield root
    lock(root, 0o755, 0o644)
    shutil.rmtree(root)


def test_a_store_that_may_be_read_only_serves_and_refuses(processes: Harness, sources: str, locked: Path) -> None:
    before = {path: path.lstat().st_mtime_ns for path in locked.rglob("*")}

    reading = processes.run("fault_dataset:use", {"url": str(locked)}, sources, user=NOBODY, look_for_left=True)
    writing = processes.run("fault_dataset:prepare", {"url": str(locked)}, sources, 2, user=NOBODY, look_for_left=True)

    assert (reading.value, reading.left) == (RIGHT, []), reading
    assert (writing.error, writing.own, writing.left) == ("StorageError", True, []), writing
    assert {path: path.lstat().st_mtime_ns for path in locked.rglob("*")} == before


@pytest.mark.parametrize("closed", [".", "numbers/1/preprocessed/train/samples.npy", ".data_stack"])
def test_what_one_is_not_permitted_to_read_is_our_error_or_not_needed(
    processes: Harness, sources: str, locked: Path, closed: str
) -> None:
    (locked / closed).chmod(0)

    outcome = processes.run("fault_dataset:use", {"url": str(locked)}, sources, user=NOBODY, look_for_left=True)

    assert outcome.value == RIGHT or outcome.own, outcome
    assert outcome.left == []


def lock(root: Path, folders: int, files: int) -> None:
    """Set the modes of all below a folder."""
    for path in [root, *sorted(root.rglob("*"))]:
        path.chmod(0o755 if path.is_dir() else files)
    for path in [*sorted(root.rglob("*"), reverse=True), root]:
        if path.is_dir():
            path.chmod(folders)
