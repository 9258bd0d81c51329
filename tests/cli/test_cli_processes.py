"""The command as a process: pipes, signals, closed streams, locales, hostile names."""

from __future__ import annotations

import logging
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from data_stack.cli.main import PrintableFormatter
from data_stack.show.markup import Table, as_text

Start = Callable[..., "subprocess.Popen[bytes]"]

SLOW = """
    import time
    from pathlib import Path
    from data_stack import DatasetCard, DatasetFactory, SequenceDatasetIterator

    class Factory(DatasetFactory):
        card = DatasetCard(name="slow", version="1")
        splits = ("all",)

        def preprocess(self, raw, prepared):
            with prepared.create("preprocessed/all") as file:
                file.write(b"x" * 100000)
                Path({started!r}).touch()
                time.sleep(60)

        def open(self, split, prepared):
            return SequenceDatasetIterator([[0]])
"""


def finished(running: subprocess.Popen[bytes]) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    with running:
        out, err = running.communicate(timeout=60)
    return running.returncode, out.decode(), err.decode()


def test_a_reader_that_leaves_ends_the_command_quietly(process: Start) -> None:
    running = process("info", "digits")
    assert running.stdout is not None
    running.stdout.close()

    with running:
        assert running.stderr is not None
        err = running.stderr.read()

    assert (running.wait(60), err) == (1, b"")


def test_a_report_can_be_written_in_any_locale(process: Start) -> None:
    code, out, err = finished(process("report", "digits", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"))

    assert (code, "1,437" in out, err) == (0, True, "")


def test_an_interrupted_preparation_ends_with_130_and_leaves_nothing_half_done(
    process: Start, install: Callable[..., None], tmp_path: Path, store: Path
) -> None:
    install("slow", SLOW.format(started=str(tmp_path / "started")))
    running = process("prepare", "slow")
    deadline = time.monotonic() + 30
    while not (tmp_path / "started").exists() and time.monotonic() < deadline:
        time.sleep(0.02)

    running.send_signal(signal.SIGINT)
    code, out, err = finished(running)

    assert (code, out, err.strip().splitlines()[-1], "Traceback" in err) == (130, "", "data-stack: interrupted", False)
    assert [
        path for path in store.rglob("*") if path.is_file() and path.suffix != ".json" and ".data_stack" not in path.parts
    ] == []


HOSTILE = "\x1b[31m\x1b]0;title\x07\u202eevil\rname\x9b2J"


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    folder = tmp_path / "set"
    folder.mkdir()
    table = pa.table({HOSTILE: [1, 2], "plain": [HOSTILE, "b"]})
    pq.write_table(table, folder / "a.parquet")
    return folder


def check(text: str) -> None:
    assert all(each.isprintable() or each in "\n\t" for each in text), repr(text)


def test_copies_and_conversions_print_none(command: Callable[..., Any], dataset: Path, tmp_path: Path) -> None:
    for arguments in (
        ["convert", str(dataset), str(tmp_path / "target.npz")],
        ["convert", str(dataset), str(tmp_path / "target")],
        ["convert", str(tmp_path / HOSTILE), str(tmp_path / "other")],
        ["convert", str(tmp_path / "target.npz"), str(tmp_path / "b.h5")],
        ["verify", HOSTILE],
        ["info", HOSTILE],
        ["report", HOSTILE],
    ):
        outcome = command(*arguments)
        assert outcome.out + outcome.err
        check(outcome.out + outcome.err)


def test_logged_names_are_escaped() -> None:
    record = logging.LogRecord("data_stack", logging.WARNING, "", 0, "column %s", (HOSTILE,), None)

    assert PrintableFormatter("%(levelname)s: %(message)s").format(record).startswith(r"WARNING: column \x1b[31m")


def test_wide_characters_stay_in_their_column() -> None:
    shown = as_text([Table(("name", "n"), [("数据集", "1"), ("digits", "2")], frozenset({1}))])

    assert shown.splitlines() == ["name    n", "------  -", "数据集  1", "digits  2"]
