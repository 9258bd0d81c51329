"""The command as a process: exit codes, errors, signals, locales, what it prints."""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_runs import Install, Run, Start, outcome_of
from process_harness import until

from data_stack import FileStorageConnector
from data_stack.cli.main import PrintableFormatter

#: A text that would change the colour, the title and the cursor of a terminal.
HOSTILE = "\x1b[31m\x1b]0;title\x07\u202eevil\rname\x9b2J"

SLOW_DATASET = """
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

# ---------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["info", "digit"], "did you mean 'digits'"),
        (["report", "digits", "--split", "trian"], "did you mean 'train'"),
        (["report", "digits", "-O", "color"], "KEY=VALUE"),
        (["list", "--storage", "nosuch://place"], "nosuch://"),
        (["lst"], "no command 'lst' (did you mean 'list'?)"),
        (["list", "--jsn"], "Did you mean "),
        (["prepare", "digits", "--engine", "sparc"], "did you mean 'spark'"),
        (["show", "digits", "-o", "sheet.txt"], ".png or .jpg"),
        (["import-file", "mine/raw/x", __file__], "--unverified"),
        (["copy", "SRC", "SRC"], "another store"),
        (["copy", "SRC", "OUT", "digit"], "did you mean 'digits'"),
        (["copy", "SRC", "OUT", "--storage", "x"], "SRC and DST"),
        (["copy", "SRC", "OUT", "mongodb://user:canary@host/db"], "not a URL"),
        (["copy", "unknown://canary", "OUT"], "unknown:// "),
        (["convert", "digits", "OUT"], "train, test; choose one, such as digits:train"),
        (["convert", "nothing", "OUT"], "no plugin provides a dataset 'nothing'"),
        (["convert", "nothing", "OUT", "--from", "hdf5"], "'nothing'"),
        (["convert", "SOURCE", "OUT", "-O", "a=b"], "which has no option 'a'"),
        (
            ["convert", "SOURCE", "mongodb://user:canary@host/db"],
            "must name a dataset in the store",
        ),
        (["parquet", "info", "OUT"], "there"),
        (["parquet", "info", "BAD"], "bad.parquet"),
        (["browse", "--no-open", "digts"], "did you mean 'digits'"),
        (["browse", "--no-open", "SOURCE", "--split", "train"], "has no split 'train'"),
        (["browse", "--no-open", "SOURCE/spec.json"], "cannot detect the format"),
        (["browse", "--no-open", "SOURCE", "-O", "a=1"], "--storage and -O"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(
    command: Run,
    prepared: FileStorageConnector,
    records_folder: Path,
    tmp_path: Path,
    arguments: list[str],
    message: str,
) -> None:
    places = {
        "SRC": str(prepared.root_path),
        "SOURCE": str(records_folder),
        "SOURCE/spec.json": str(records_folder / "spec.json"),
        "OUT": str(tmp_path / "there"),
        "BAD": str(tmp_path / "bad.parquet"),
    }
    (tmp_path / "bad.parquet").write_bytes(b"nonsense")
    is_usage_error = arguments[0] != "parquet"

    outcome = command(*(places.get(argument, argument) for argument in arguments))

    assert outcome.code == (2 if is_usage_error else 1)
    assert outcome.out == ""
    assert message in outcome.err
    assert "canary" not in outcome.err
    assert "Traceback" not in outcome.err
    assert not (tmp_path / "there").exists()


# ---------------------------------------------------------------------- signals and streams


def test_a_reader_that_leaves_ends_the_command_quietly(process: Start) -> None:
    running: Any = process("info", "digits")
    running.stdout.close()

    err = running.stderr.read()

    assert running.wait(60) == 1
    assert err == ""


def test_an_interrupted_preparation_leaves_nothing_half_done(
    process: Start, install: Install, tmp_path: Path, store: Path
) -> None:
    started = tmp_path / "started"
    install("slow", SLOW_DATASET.format(started=str(started)))
    running = process("prepare", "slow")
    assert until(started.exists)

    running.send_signal(signal.SIGINT)
    outcome = outcome_of(running)

    assert (outcome.code, outcome.out) == (130, "")
    assert outcome.err.strip().splitlines()[-1] == "data-stack: interrupted"
    assert "Traceback" not in outcome.err
    assert [path for path in store.rglob("*") if is_of_a_dataset(path)] == []


def is_of_a_dataset(path: Path) -> bool:
    """Return whether a path in a store is a file of a dataset, other than manifest and journal."""
    return path.is_file() and path.suffix != ".json" and ".data_stack" not in path.parts


def test_a_report_can_be_written_in_any_locale(process: Start) -> None:
    running = process("report", "digits", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")

    outcome = outcome_of(running)

    assert (outcome.code, outcome.err) == (0, "")
    assert "1,437" in outcome.out


# ---------------------------------------------------------------------- hostile names


@pytest.fixture
def hostile_folder(tmp_path: Path) -> Path:
    """A Parquet dataset with a hostile name of a column, and a hostile value."""
    folder = tmp_path / "set"
    folder.mkdir()
    table = pa.table({HOSTILE: [1, 2], "plain": [HOSTILE, "b"]})
    pq.write_table(table, folder / "a.parquet")
    return folder


def test_no_command_prints_control_characters(
    command: Run, hostile_folder: Path, tmp_path: Path
) -> None:
    for arguments in (
        ["convert", str(hostile_folder), str(tmp_path / "target.npz")],
        ["convert", str(hostile_folder), str(tmp_path / "target")],
        ["convert", str(tmp_path / HOSTILE), str(tmp_path / "other")],
        ["convert", str(tmp_path / "target.npz"), str(tmp_path / "b.h5")],
        ["verify", HOSTILE],
        ["info", HOSTILE],
        ["report", HOSTILE],
    ):
        outcome = command(*arguments)

        printed = outcome.out + outcome.err
        assert printed
        for character in printed:
            assert character.isprintable() or character in "\n\t", repr(printed)


def test_logged_names_are_escaped() -> None:
    record = logging.LogRecord("data_stack", logging.WARNING, "", 0, "column %s", (HOSTILE,), None)

    line = PrintableFormatter("%(levelname)s: %(message)s").format(record)

    assert line.startswith(r"WARNING: column \x1b[31m")


# ---------------------------------------------------------------------- after the command


def test_offline_ends_with_the_command(command: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATA_STACK_OFFLINE", "0")

    command("list", "--offline")

    assert os.environ["DATA_STACK_OFFLINE"] == "0"
