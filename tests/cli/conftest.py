"""Runs the command in this process or in one of its own, on a store of its own, with plugins made for the test."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

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


class Command(Protocol):
    """Runs ``data-stack`` with arguments."""

    def __call__(self, *arguments: str) -> Outcome: ...


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The default store of this test; nothing is in it."""
    folder = tmp_path / "store"
    monkeypatch.setenv("DATA_STACK_HOME", str(folder))
    for name in ("OFFLINE", "DISABLE_PLUGINS"):
        monkeypatch.delenv(f"DATA_STACK_{name}", raising=False)
    return folder


@pytest.fixture
def command(store: Path, capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs the command in this process."""

    def run(*arguments: str) -> Outcome:
        capsys.readouterr()
        code = main(arguments)
        written = capsys.readouterr()
        return Outcome(code, written.out, written.err)

    return run


@pytest.fixture
def on_terminal(store: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Runs the command in this process on a pseudo-terminal of ``width`` columns; returns its output with escape sequences."""

    def run(*arguments: str, width: int = 80, **environment: str) -> str:
        master, slave = pty.openpty()
        for name, value in {"COLUMNS": str(width), "TERM": "xterm-256color", **environment}.items():
            monkeypatch.setenv(name, value)
        shown = io.BytesIO()
        reader = threading.Thread(target=_read_all, args=(master, shown))
        reader.start()
        with monkeypatch.context() as context, open(slave, "w", encoding="utf-8") as stream:
            context.setattr(sys, "stdout", stream)
            context.setattr(sys, "stderr", stream)
            main(arguments)
        reader.join()
        os.close(master)
        return shown.getvalue().decode().replace("\r\n", "\n")

    return run


def _read_all(master: int, shown: io.BytesIO) -> None:
    with contextlib.suppress(OSError):  # Linux raises it once the other end is closed
        while part := os.read(master, 65536):
            shown.write(part)


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
