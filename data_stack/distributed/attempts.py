"""Attempts at tasks in another process, and their results or failures."""

from __future__ import annotations

import os
import socket
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from data_stack.exception import ConfigError, TaskError
from data_stack.processes.child_process import Channel, Parcel, dump, dump_error, load


@dataclass(frozen=True)
class Failure:
    """How an attempt failed.

    Attributes:
        problem: the error and where it was raised, to follow "the attempt" in a message.
        traceback_text: its traceback, or an empty string.
        pickled: the exception, if it survives pickling.
    """

    problem: str
    traceback_text: str = ""
    pickled: bytes | None = None

    def error(self, task: str, n_attempts: int) -> TaskError:
        """The error for a task after ``n_attempts`` failures, caused by the exception of the attempt."""
        error = TaskError(task, n_attempts, self.problem, self.traceback_text)
        error.__cause__ = None if self.pickled is None else load(self.pickled)
        return error


def pack(work: Callable[[Any], Any]) -> bytes:
    """Pickle the function of tasks; functions and classes of a script or a notebook are pickled by value.

    Raises:
        ConfigError: it cannot be pickled.
    """
    try:
        return bytes(dump(work, in_one_piece=True)[0])
    except Exception as error:  # an object cannot be pickled
        raise ConfigError(
            f"{work!r:.200} cannot be sent to other processes: {type(error).__name__}: {error}. Open files and connections when "
            f"they are first used"
        ) from error


def attempt(packed: bytes, argument: Any) -> tuple[Any, Failure | None]:
    """Run a task, and return its result or its failure.

    Args:
        packed: what :func:`pack` returned.
        argument: of the task.
    """
    try:
        return load(packed)(argument), None
    except BaseException as error:  # noqa: BLE001  # also SystemExit of user code
        problem = f"raised {type(error).__name__}: {error}" if str(error) else f"raised {type(error).__name__}"
        text = "".join(traceback.format_exception(error))
        return None, Failure(f"{problem} (process {os.getpid()} of {socket.gethostname()})", text, dump_error(error))


def main(descriptor: int) -> None:
    """Attempt tasks for the process that started this one."""
    channel = Channel(socket.socket(fileno=descriptor))
    while (message := channel.receive()) is not None:
        (sys.argv[:],), parcel = message
        if parcel is None:
            continue
        end = attempt(*parcel.open())
        try:
            answer = Parcel.of(end)
        except Exception as error:  # noqa: BLE001  # an object cannot be pickled
            answer = Parcel.of((None, Failure(f"returned a result that cannot be pickled: {type(error).__name__}: {error}")))
        channel.send((), answer)
    channel.close()
