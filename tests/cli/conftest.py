"""Runs the command in this process or in one of its own, on a store of its own, with plugins made for the test."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from distributions import write_distribution
from process_harness import start_python

from data_stack.cli.main import main


@dataclass(frozen=True)
class Outcome:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its standard output as JSON."""
        return json.loads(self.out)

    @property
    def facts(self) -> dict[str, str]:
        """The second column of its standard output, by the first."""
        rows = (line.split(maxsplit=1) for line in self.out.splitlines())
        return {row[0]: row[-1] for row in rows if row}


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The default store of this test; nothing is in it."""
    folder = tmp_path / "store"
    monkeypatch.setenv("DATA_STACK_HOME", str(folder))
    for name in ("OFFLINE", "DISABLE_PLUGINS"):
        monkeypatch.delenv(f"DATA_STACK_{name}", raising=False)
    return folder


@pytest.fixture
def command(store: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Runs the command in this process."""

    def run(*arguments: str) -> Outcome:
        capsys.readouterr()
        code = main(arguments)
        written = capsys.readouterr()
        return Outcome(code, written.out, written.err)

    return run


@pytest.fixture
def process(store: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts the command in a process of its own, which ends with the test; environment variables may be given by name."""
    with contextlib.ExitStack() as ends:

        def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
            running = ends.enter_context(
                start_python("-m", "data_stack.cli", *arguments, **environment)
            )
            ends.callback(running.kill)  # of a test that failed
            return running

        yield start


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Installs a distribution of one module with datasets, for this process and those it starts."""

    def make(
        distribution: str,
        module_text: str,
        datasets: Sequence[str] = ("Factory",),
        names: Sequence[str] = (),
    ) -> None:
        module = distribution.replace("-", "_")
        folder = tmp_path / "site" / distribution
        lines = [
            f"{name} = {module}:{factory}"
            for name, factory in zip(names or [distribution], datasets, strict=True)
        ]
        write_distribution(
            folder,
            distribution,
            "\n".join(["[data_stack.datasets]", *lines]),
            {module: module_text},
        )
        monkeypatch.syspath_prepend(str(folder))

    return make
