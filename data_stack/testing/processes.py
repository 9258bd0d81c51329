"""Calls functions in other processes, and kills them at a chosen change of a file."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from data_stack.processes.pickling import dump, load

#: Each process is a fork of a fresh interpreter that has imported data_stack, and nothing else of this one.
_FORKS = multiprocessing.get_context("forkserver")
_TIMEOUT_SECONDS = 60.0


def preload(module: str) -> None:
    """Import a module once for all processes, if the first one is still to be started and can import it."""
    _FORKS.set_forkserver_preload(
        [__name__, "data_stack.loading", "data_stack.io.retriever.http", "data_stack.io.web_sessions", module]
    )


preload("data_stack.formats")


class ChildProcess:
    """A running call of ``function(*arguments)``; code that the process cannot import is sent by value."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self._answer, answer = _FORKS.Pipe(duplex=False)
        call = bytes(dump((function, arguments), in_one_piece=True)[0])
        self._process = _FORKS.Process(target=_call, args=(call, answer), daemon=True)
        self._process.start()
        answer.close()

    def wait(self) -> tuple[int, Any]:
        """Wait for its end.

        Returns:
            The exit code, negative for a signal; and the result of the function, None if the process was killed.

        Raises:
            RuntimeError: the function raised an error; the message has its traceback.
            TimeoutError: it took more than a minute, and was killed.
        """
        if not self._answer.poll(_TIMEOUT_SECONDS):
            self._process.kill()
            raise TimeoutError(f"a process of the test still ran after {_TIMEOUT_SECONDS:g} s")
        try:
            value, error = load(self._answer.recv_bytes())
        except EOFError:  # it was killed
            value = error = None
        self._answer.close()
        self._process.join()
        if error is not None:
            raise RuntimeError(f"in another process:\n{error}")
        return int(self._process.exitcode or 0), value


def call_in_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of ``function(*arguments)`` in another process.

    Raises:
        RuntimeError: the function raised an error, or the process died.
        TimeoutError: it takes more than a minute.
    """
    code, value = ChildProcess(function, *arguments).wait()
    if code:
        raise RuntimeError(f"the process of {function.__qualname__} ended with exit code {code}")
    return value


def _call(pickled: bytes, answer: Connection) -> None:
    value = error = None
    try:
        function, arguments = load(pickled)
        value = function(*arguments)
    except BaseException:  # noqa: BLE001  # the other process reports it
        error = traceback.format_exc()
    answer.send_bytes(dump((value, error), in_one_piece=True)[0])


def count_changes(folder: str, kill_at: int = 0) -> list[str]:
    """Count the changes of files below ``folder`` in this process from now on, and kill it before one of them.

    Args:
        folder: of a file store, whose files are opened by names relative to its folders.
        kill_at: number of the change, from 1 on; 0 only counts.

    Returns:
        A list that grows by the name of each change's audit event.
    """
    changes: list[str] = []

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in ("open", "os.rename", "os.remove", "os.mkdir"):
            return
        path = str(arguments[0])
        writes = event != "open" or arguments[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if writes and (not path.startswith("/") or path.startswith(folder)):
            changes.append(event)
            if len(changes) == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(look)
    return changes


def find_left_over(folder: str) -> list[str]:
    """Files of a file store that no ready dataset needs: unfinished writes, and journals."""
    files = [os.path.join(root, file) for root, _, files in os.walk(folder) for file in files]
    return [file for file in files if os.path.basename(file).startswith(".~") or os.path.basename(file) == "journal.json"]
