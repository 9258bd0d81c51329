"""Runs the command in this process or in one of its own, on a store of its own, with plugins made for the test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

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
def process(store: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts the command in a process of its own, which ends with the test; environment variables may be given by name."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*arguments: str, **environment: str) -> subprocess.Popen[bytes]:
        running = subprocess.Popen(
            [sys.executable, "-m", "data_stack.cli", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **environment},
            # Background jobs of a shell ignore interrupts, and their children inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        started.append(running)
        return running

    yield start
    for running in started:
        running.kill()  # of a test that failed
        with running:
            pass


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Installs a distribution of one module with datasets, for this process and those it starts."""

    def make(distribution: str, module_text: str, datasets: Sequence[str] = ("Factory",), names: Sequence[str] = ()) -> None:
        module = distribution.replace("-", "_")
        folder = tmp_path / "site" / distribution
        info = folder / f"{module}-1.0.dist-info"
        info.mkdir(parents=True)
        (folder / f"{module}.py").write_text(textwrap.dedent(module_text), encoding="utf-8")
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n", encoding="utf-8")
        lines = [f"{name} = {module}:{factory}" for name, factory in zip(names or [distribution], datasets, strict=True)]
        (info / "entry_points.txt").write_text("\n".join(["[data_stack.datasets]", *lines, ""]), encoding="utf-8")
        monkeypatch.syspath_prepend(str(folder))
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]))

    return make
