"""Runs the command in this process or in one of its own, on a store of its own."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from command_runs import Install, Outcome, Run, Start
from distributions import write_distribution
from process_harness import start_python

import data_stack
from data_stack import FileStorageConnector
from data_stack.cli.main import main
from data_stack.formats import records
from data_stack.formats.records import ColumnType


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The default store of this test; nothing is in it."""
    folder = tmp_path / "store"
    monkeypatch.setenv("DATA_STACK_HOME", str(folder))
    monkeypatch.delenv("DATA_STACK_OFFLINE", raising=False)
    monkeypatch.delenv("DATA_STACK_DISABLE_PLUGINS", raising=False)
    return folder


@pytest.fixture
def filled_store(prepared: FileStorageConnector, store: Path) -> Path:
    """The default store of this test, with digits and iris in it."""
    data_stack.copy_datasets(prepared, store)
    return store


@pytest.fixture
def command(store: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command in this process."""

    def run(*arguments: str) -> Outcome:
        capsys.readouterr()
        code = main(arguments)
        written = capsys.readouterr()
        return Outcome(code, written.out, written.err)

    return run


@pytest.fixture
def process(store: Path) -> Iterator[Start]:
    """Starts the command in a process of its own, which ends with the test."""
    with contextlib.ExitStack() as ends:

        def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
            running = ends.enter_context(
                start_python("-m", "data_stack.cli", *arguments, **environment)
            )
            ends.callback(running.kill)  # of a test that failed
            return running

        yield start


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a distribution of one module with datasets, for this process and those it starts.

    Its arguments are the name of the distribution, the text of its module, the names of the
    factories in it, and those of the datasets: by default, one that is named as the distribution.
    """

    def make(
        distribution: str,
        module_text: str,
        factories: Sequence[str] = ("Factory",),
        names: Sequence[str] = (),
    ) -> None:
        module = distribution.replace("-", "_")
        folder = tmp_path / "site" / distribution
        lines = ["[data_stack.datasets]"]
        for name, factory in zip(names or [distribution], factories, strict=True):
            lines.append(f"{name} = {module}:{factory}")
        write_distribution(folder, distribution, "\n".join(lines), {module: module_text})
        monkeypatch.syspath_prepend(str(folder))

    return make


@pytest.fixture
def records_folder(tmp_path: Path) -> Path:
    """A folder of twelve records with the columns x, label, text."""
    folder = tmp_path / "source"
    spec: dict[str, str | ColumnType] = {
        "x": ColumnType("array", "float32", (4,)),
        "label": "i64",
        "text": "utf8",
    }
    with records.RecordWriter(folder, spec) as writer:
        for number in range(12):
            x = np.full(4, number, np.float32)
            writer.append({"x": x, "label": number, "text": "x" * number})
    return folder
