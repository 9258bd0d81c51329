"""Loaders side by side, each in processes of its own that stand still while it is not their
turn.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from record_peers.workload import Schema

from loader_peers import loader_system
from loader_peers.checking import check_epoch
from loader_peers.memory import proportional_bytes

#: A turn has at least so many batches, however slow the loader is.
_FEWEST_BATCHES = 4


class Child:
    """One loader in a process of its own, with all workers in one process group.

    Args:
        name: of the loader.
        log: what it and its libraries print.
    """

    def __init__(self, name: str, log: Path) -> None:
        self.name, self._log = name, log
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_run, args=(name, log, theirs))
        self._process.start()
        theirs.close()

    def open(self, schema: Schema, folder: Path, truth: Path, seconds: float) -> int:
        """Open and check the loader; returns how many samples were checked.

        Raises:
            RuntimeError: it cannot, or gives what is not true.
        """
        n_checked: int = self._ask((schema, folder, truth, seconds), 60 + seconds)
        self._send(signal.SIGSTOP)
        return n_checked

    def turn(self, seconds: float) -> dict[str, Any]:
        """Let it run for so long.

        Raises:
            RuntimeError: it failed, or did nothing.
        """
        self._send(signal.SIGCONT)
        try:
            found: dict[str, Any] = self._ask(seconds, 30 + seconds)
            return found
        finally:
            self._send(signal.SIGSTOP)

    def close(self) -> None:
        """End it and all of its workers."""
        self._send(signal.SIGCONT)
        self._pipe.close()
        self._process.join(5)
        self._send(signal.SIGKILL)
        self._process.join()

    def _ask(self, asked: Any, seconds: float) -> Any:
        try:
            self._pipe.send(asked)
            if not self._pipe.poll(seconds):
                raise RuntimeError(f"no answer in {seconds:.0f} s")
            answer = self._pipe.recv()
        except (OSError, EOFError, RuntimeError) as error:
            raise RuntimeError(
                f"{error or 'it has ended'}: {self._log.read_text(errors='replace').strip()[-300:]}"
            ) from error
        if isinstance(answer, Exception):
            raise RuntimeError(str(answer))
        return answer

    def _send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid or 0, number)


def _run(name: str, log: Path, pipe: Connection) -> None:
    """In the child: open and check when told so, then a turn whenever one is asked for."""
    os.setsid()
    os.environ["OMP_NUM_THREADS"] = "1"
    with open(log, "wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    with contextlib.suppress(EOFError):
        schema, folder, truth, seconds = pipe.recv()
        try:
            loading = loader_system(name).open(schema, folder)
            n_checked, rest = check_epoch(loading, schema, truth, seconds)
            batches = _endless(loading, rest)
            pipe.send(n_checked)
            while True:
                pipe.send(_turn(loading, batches, pipe.recv()))
        except EOFError:
            loading.close()
        except Exception as error:
            pipe.send(RuntimeError(f"{type(error).__name__}: {str(error)[:300]}"))
    sys.stderr.flush()
    os._exit(0)  # ends all threads of a peer


def _endless(loading: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield from rest
    del rest
    while True:
        yield from loading.epoch()


def _turn(loading: Any, batches: Iterator[Any], seconds: float) -> dict[str, Any]:
    """Samples of as many batches as take so long, after those that were made ahead."""
    for _ in range(loading.ahead):
        batch = next(batches)
    n_batches = n_samples = 0
    start = time.perf_counter()
    while n_batches < _FEWEST_BATCHES or time.perf_counter() - start < seconds:
        batch = next(batches)
        n_batches += 1
        first = (
            batch.get("lengths", next(iter(batch.values())))
            if isinstance(batch, dict)
            else batch[0]
        )
        n_samples += len(first)
    duration = time.perf_counter() - start
    return {
        "seconds": duration,
        "samples": n_samples,
        "bytes": proportional_bytes(os.getpid()),
        "kind": loading.kind_of_workers(),
    }
