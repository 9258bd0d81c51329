"""The trace of a loader, in the Trace Event Format."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from data_stack import Loader
from data_stack.dataset.iterator import SequenceDatasetIterator
from data_stack.exception import ConfigError
from data_stack.loader.batch_maker import MadeBatch, Reading
from data_stack.loader.delivery import Delivery
from data_stack.loader.job import Job
from data_stack.loader.ranks import Shard
from data_stack.loader.trace import TraceWriter

N_SAMPLES = 200


def numbers() -> SequenceDatasetIterator:
    return SequenceDatasetIterator([np.arange(N_SAMPLES)])


def wait_a_little(batch: Any) -> Any:
    time.sleep(0.004)
    return batch


def events_of(path: Path) -> list[dict[str, Any]]:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("[\n")
    events: list[dict[str, Any]] = json.loads(text.rstrip(",\n") + "]")
    return events


def spans_of(path: Path, name: str) -> list[dict[str, Any]]:
    return [event for event in events_of(path) if event["ph"] == "X" and event["name"] == name]


@pytest.mark.parametrize("kind", ["inline", "threads", "processes"])
def test_each_batch_has_spans_in_the_row_of_its_worker(tmp_path: Path, kind: Any) -> None:
    path = tmp_path / "trace.json"

    with Loader(numbers(), 10, transform=wait_a_little, worker_kind=kind, trace=path) as loader:
        for _ in loader:
            time.sleep(0.004)

    waits = spans_of(path, "wait")
    steps = [wait["args"]["step"] for wait in waits]
    n_left_out = sum(wait["args"].get("n_left_out", 0) for wait in waits)
    assert steps == sorted(set(steps))
    assert steps[-1] + 1 == len(steps) + n_left_out
    transforms = spans_of(path, "transform")
    assert len(transforms) == len(waits)
    assert all(event["dur"] > 3000 for event in transforms)
    consumer_rows = {(wait["pid"], wait["tid"]) for wait in waits}
    worker_rows = {(event["pid"], event["tid"]) for event in transforms}
    assert len(consumer_rows) == 1
    assert (worker_rows == consumer_rows) == (kind == "inline")


@pytest.mark.parametrize("kind", ["inline", "threads"])
def test_spans_of_a_row_lie_within_each_other_or_apart(tmp_path: Path, kind: Any) -> None:
    path = tmp_path / "trace.json"

    loader = Loader(numbers(), 10, transform=wait_a_little, worker_kind=kind, trace=path)
    for _ in loader.torch():
        time.sleep(0.002)

    rows: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for event in events_of(path):
        if event["ph"] == "X":
            start = round(event["ts"] * 1000)
            stop = start + round(event["dur"] * 1000)
            rows.setdefault((event["pid"], event["tid"]), []).append((start, stop))
    for spans in rows.values():
        ends: list[int] = []
        for start, stop in sorted(spans, key=lambda span: (span[0], -span[1])):
            while ends and ends[-1] <= start:
                ends.pop()
            assert not ends or stop <= ends[-1]
            ends.append(stop)


def test_rows_have_names_and_counters_a_number(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"

    for _ in Loader(numbers(), 50, worker_kind="threads", workers=1, trace=path):
        pass

    events = events_of(path)
    names = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert names == {"training", "consumer", "worker"}
    counts = [event["args"]["batches"] for event in events if event["ph"] == "C"]
    assert counts
    assert all(count >= 0 for count in counts)


def test_bytes_of_files_are_fetched_and_then_decoded(tmp_path: Path) -> None:
    with TraceWriterOf(tmp_path / "trace.json") as writer:
        reading = Reading(seconds=0.010, fetch_seconds=0.004, began_at=100.0, thread_id=7)
        writer.add(delivery(0, reading, asked_at=100.0))

    events = {event["name"]: event for event in events_of(tmp_path / "trace.json")}
    assert (events["read"]["ts"], events["read"]["dur"]) == (100e6, 10000)
    assert (events["fetch"]["ts"], events["fetch"]["dur"]) == (100e6, 4000)
    assert (events["decode"]["ts"], events["decode"]["dur"]) == (100.004e6, 6000)


def test_one_request_for_several_batches_is_one_span(tmp_path: Path) -> None:
    with TraceWriterOf(tmp_path / "trace.json") as writer:
        reading = Reading(seconds=0.010, n_batches=2, began_at=100.0, thread_id=7)
        for step in range(2):
            writer.add(delivery(step, reading, asked_at=101.0 + step))

    (read,) = spans_of(tmp_path / "trace.json", "read")
    assert read["args"]["n_batches_read"] == 2


def test_batches_that_come_too_fast_are_left_out_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    n_batches = 20_000

    for _ in Loader(SequenceDatasetIterator([np.arange(n_batches)]), 1, trace=path):
        pass

    waits = spans_of(path, "wait")
    n_left_out = sum(wait["args"].get("n_left_out", 0) for wait in waits)
    assert n_left_out > 0
    assert len(waits) + n_left_out <= n_batches
    notes = [event["name"] for event in events_of(path) if event["ph"] == "i"]
    is_last_drawn = waits[-1]["args"]["step"] == n_batches - 1
    assert is_last_drawn or notes[-1].startswith("the last ")


def test_ranks_write_files_of_their_own(tmp_path: Path) -> None:
    for rank in range(2):
        for _ in Loader(numbers(), 50, shard=(rank, 2), trace=tmp_path / "trace.json"):
            pass

    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["trace.rank0.json", "trace.rank1.json"]


def test_iterations_follow_each_other_in_one_trace(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    loader = Loader(numbers(), 100, transform=wait_a_little, worker_kind="inline", trace=path)

    for _ in range(2):
        for _ in loader:
            pass

    epochs = {wait["args"]["epoch"] for wait in spans_of(path, "wait")}
    assert epochs == {0, 1}


def test_the_trace_of_a_killed_program_opens(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    program = textwrap.dedent(f"""
        import time
        import numpy as np
        import data_stack
        from data_stack.dataset.iterator import SequenceDatasetIterator

        data = SequenceDatasetIterator([np.arange(10_000)])
        for batch in data_stack.Loader(data, 10, trace={str(path)!r}):
            time.sleep(0.01)
    """)
    with subprocess.Popen([sys.executable, "-c", program]) as process:
        deadline = time.monotonic() + 60
        while not (path.exists() and '"ph":"X"' in path.read_text(encoding="utf-8")):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)

    assert Counter(event["ph"] for event in events_of(path))["X"] > 0


def test_a_trace_that_cannot_be_written_fails_at_once(tmp_path: Path) -> None:
    for path, problem in (
        (tmp_path / "missing" / "trace.json", "does not exist"),
        (tmp_path, "it is a folder"),
        (3, "must be the path of a file"),
    ):
        with pytest.raises(ConfigError, match=problem):
            Loader(numbers(), 10, trace=path)  # type: ignore[arg-type]


def test_a_long_trace_ends_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "trace.json"
    writer = TraceWriter(path, max_events=20)
    writer.begin(Shard(0, 1))

    with caplog.at_level(logging.WARNING):
        for step in range(10):
            reading = Reading(seconds=0.1, began_at=100.0 + step)
            writer.add(delivery(step, reading, asked_at=time.perf_counter() + 1000 + step))
        writer.end()

    assert "the trace ends here" in caplog.text
    assert "the trace ends here" in events_of(path)[-1]["name"]


def test_a_copy_in_another_process_writes_to_another_file(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    loader = Loader(numbers(), 100, trace=path)
    program = "import pickle, sys\nfor _ in pickle.loads(sys.stdin.buffer.read()):\n    pass\n"

    subprocess.run(
        [sys.executable, "-c", program], input=pickle.dumps(loader), check=True, timeout=60
    )

    (written,) = tmp_path.iterdir()
    assert written.name.startswith("trace.pid")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no forks")
def test_a_fork_writes_a_trace_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    loader = Loader(numbers(), 50, worker_kind="inline", transform=wait_a_little, trace=path)
    batches = iter(loader)
    next(batches)
    next(batches)

    process = multiprocessing.get_context("fork").Process(target=lambda: list(loader))
    process.start()
    process.join(120)
    list(batches)

    assert process.exitcode == 0
    rows = {(wait["pid"], wait["tid"]) for wait in spans_of(path, "wait")}
    steps = [wait["args"]["step"] for wait in spans_of(path, "wait")]
    assert len(rows) == 1
    assert steps == sorted(set(steps))
    assert spans_of(tmp_path / f"trace.pid{process.pid}.json", "wait")


class TraceWriterOf:
    """A writer within an iteration that began a thousand seconds ago, so that it draws all."""

    def __init__(self, path: Path) -> None:
        self._writer = TraceWriter(path)

    def __enter__(self) -> TraceWriter:
        self._writer.begin(Shard(0, 1))
        return self._writer

    def __exit__(self, *_: object) -> None:
        self._writer.end()


def delivery(step: int, reading: Reading, *, asked_at: float) -> Delivery:
    job = Job(0, step, step, np.arange(4), 0, (0, step + 1))
    made = MadeBatch(None, 80, reading)
    later = asked_at + time.perf_counter() + 1e6
    return Delivery(job, made, 1, asked_at, 0.5, later)
