"""Loaders side by side, each in processes of its own that stand still while it is not their turn."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from record_peers.workload import Schema

from loader_peers.memory import mapped_segments


class Child:
    """One loader in a process of its own, with all workers in one process group.

    Args:
        name: of the loader.
        log: what it and its libraries print.
    """

    def __init__(self, name: str, log: Path) -> None:
        self.name, self._log = name, log
        here = Path(__file__).parents[1]
        with open(log, "wb") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "loader_peers.child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                cwd=here,
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join([str(here), *filter(None, [os.environ.get("PYTHONPATH")])]),
                    "OMP_NUM_THREADS": "1",
                },
                start_new_session=True,
                text=True,
            )

    def open(self, schema: Schema, folder: Path, truth: Path, seconds: float) -> int:
        """Open and check the loader; returns how many samples were checked.

        Raises:
            RuntimeError: it cannot, or gives what is not true.
        """
        fields = [asdict(field) for field in schema.fields]
        asked = {"do": "open", "loader": self.name, "work": schema.name, "fields": fields, "n": schema.n}
        answer = self._ask({**asked, "folder": str(folder), "truth": str(truth), "seconds": seconds}, 60 + seconds)
        self._send(signal.SIGSTOP)
        return int(answer["checked"])

    def turn(self, seconds: float) -> dict[str, Any]:
        """Let it run for so long.

        Raises:
            RuntimeError: it failed, or did nothing.
        """
        self._send(signal.SIGCONT)
        try:
            return self._ask({"do": "turn", "seconds": seconds}, 30 + seconds)
        finally:
            self._send(signal.SIGSTOP)

    def close(self) -> None:
        """End it and all of its workers, and remove the shared memory that some peers leave behind."""
        segments = mapped_segments(self._process.pid)
        self._send(signal.SIGCONT)
        with contextlib.suppress(OSError, subprocess.TimeoutExpired, ValueError):
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._process.wait(5)
        self._send(signal.SIGKILL)
        self._process.wait()
        for segment in segments:
            segment.unlink(missing_ok=True)

    def _ask(self, asked: dict[str, Any], seconds: float) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(asked) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise RuntimeError(f"it has ended: {self._last_words()}") from None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            if not selector.select(seconds):
                raise RuntimeError(f"no answer in {seconds:.0f} s: {self._last_words()}")
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"it has ended: {self._last_words()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return answer

    def _last_words(self) -> str:
        return self._log.read_text(errors="replace").strip()[-300:]

    def _send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)
