"""Writers of record datasets that are killed, refused by the disk, forgotten, forked: what was said to be safe is safe."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fault_records
import pytest
from fault_records import SPECS, sample
from mongodb_server import folder_in_memory
from process_harness import Fault, Harness
from sizes import sized, spread

from data_stack.exception import DataStackError, StorageConflictError
from data_stack.formats import records
from data_stack.formats.records import RecordReader, RecordWriter
from data_stack.testing.iterators import assert_same

ENOSPC, EIO = 28, 5
NOBODY = 65534


@pytest.fixture(scope="module")
def processes() -> Iterator[Harness]:
    with tempfile.TemporaryDirectory(prefix="data_stack-records-") as folder:
        Path(folder).chmod(0o777)
        with Harness(Path(folder), "fault_warm") as processes:
            yield processes


@pytest.fixture
def folder() -> Iterator[Path]:
    """Open to all users; in memory where there is such a folder, since processes are killed here, no power is cut."""
    with tempfile.TemporaryDirectory(prefix="data_stack-records-", dir=folder_in_memory()) as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture(params=["columns", "sequences"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def files(folder: Path) -> dict[str, bytes]:
    found = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "writing.lock"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}


def said(path: Path) -> int:
    return int(path.read_text() or "0") if path.exists() else 0


def in_turn(points: list[int], faults: list[Any]) -> list[tuple[int, Any]]:
    """One of the faults for each point; in the full form all of them."""
    n_each = sized(1, len(faults))
    return [(at, faults[(number + more) % len(faults)]) for number, at in enumerate(points) for more in range(n_each)]


def check_readable_part(dataset: Path, kind: str) -> None:
    """Whatever lies there is samples from the first on, or an error of ours."""
    try:
        with records.open(dataset) as reader:
            assert_same(list(reader), [sample(kind, i) for i in range(len(reader))])
    except DataStackError:
        pass


def test_a_writer_that_is_killed_at_any_call_is_gone_on_with(processes: Harness, folder: Path, kind: str) -> None:
    whole = folder / "whole"
    n_calls = processes.run("fault_records:write", str(whole), kind, str(folder / "n"), fault=Fault(str(whole))).hits
    assert n_calls > 30

    for at, action in in_turn(spread(n_calls, sized(4, 2_000)), ["kill", "torn", "killafter"]):
        dataset, acknowledged = folder / f"{at} {action}", folder / f"{at} {action} said"
        fault = Fault(str(dataset), at=at, action=action)
        outcome = processes.run("fault_records:write", str(dataset), kind, str(acknowledged), fault=fault)
        assert outcome.was_killed, outcome
        check_readable_part(dataset, kind)

        found = fault_records.write(str(dataset), kind, str(folder / "n"))

        assert found >= said(acknowledged)
        assert files(dataset) == files(whole)
        with RecordReader(dataset) as reader:
            reader.verify()
        shutil.rmtree(dataset)


def test_a_disk_that_refuses_at_any_call_is_our_error_and_the_next_run_heals(processes: Harness, folder: Path, kind: str) -> None:
    whole = folder / "whole"
    n_calls = processes.run("fault_records:write", str(whole), kind, str(folder / "n"), fault=Fault(str(whole))).hits

    for at, error in in_turn(spread(n_calls, sized(3, 2_000)), [ENOSPC, EIO]):
        dataset, acknowledged = folder / f"{at} {error}", folder / f"{at} {error} said"
        fault = Fault(str(dataset), at=at, action="error", error=error, sticky=True)
        outcome = processes.run("fault_records:write", str(dataset), kind, str(acknowledged), fault=fault, look_for_left=True)
        assert outcome.own or files(dataset) == files(whole), outcome
        assert outcome.left == [], outcome
        check_readable_part(dataset, kind)

        found = fault_records.write(str(dataset), kind, str(folder / "n"))

        assert found >= said(acknowledged)
        assert files(dataset) == files(whole)
        shutil.rmtree(dataset, ignore_errors=True)


def test_a_folder_that_cannot_be_written_is_our_error(processes: Harness, folder: Path) -> None:
    with RecordWriter(folder / "dataset", SPECS["columns"]) as writer:
        writer.append(sample("columns", 0))
    (folder / "dataset").chmod(0o555)
    for path in (folder / "dataset").iterdir():
        path.chmod(0o444)
    user = NOBODY if os.geteuid() == 0 else None

    outcome = processes.run("fault_records:write_where_nothing_can_be_written", str(folder / "dataset"), user=user)

    (folder / "dataset").chmod(0o755)
    assert len(outcome.value) == 2, outcome
    assert all(said.startswith("StorageError: could not ") and "ermission denied" in said for said in outcome.value)


def test_a_second_writer_is_refused_until_the_first_has_ended(processes: Harness, folder: Path) -> None:
    process = processes.start("fault_records:hold", str(folder / "dataset"), str(folder / "ready"))
    while not (folder / "ready").exists():
        time.sleep(0.005)

    with pytest.raises(StorageConflictError, match="another writer has the record dataset"):
        RecordWriter(folder / "dataset", SPECS["columns"])
    process.kill()
    process.wait()
    with RecordWriter(folder / "dataset", SPECS["columns"]) as writer:
        assert len(writer) == 1


def test_a_fork_neither_writes_nor_unlocks(processes: Harness, folder: Path) -> None:
    outcome = processes.run("fault_records:fork_with_an_open_writer", str(folder / "dataset"))

    said, is_free, on_disk, n_samples = outcome.value
    assert "the parent process" in said
    assert (is_free, on_disk, n_samples) == (False, 0, 6)
    with RecordReader(folder / "dataset") as reader:
        assert_same([reader[i] for i in range(6)], [sample("columns", i) for i in range(6)])


def test_a_writer_that_is_forgotten_leaves_no_thread_and_no_lock(processes: Harness, folder: Path) -> None:
    outcome = processes.run("fault_records:forget", str(folder / "dataset"), look_for_left=True)

    assert (outcome.value, outcome.left, outcome.output) == ([0, True], [], "")
