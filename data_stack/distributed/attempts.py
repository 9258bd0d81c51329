"""One attempt at a task in another process, and what is told of it to the process that wants it done."""

from __future__ import annotations

import os
import socket
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from data_stack.exception import ConfigError, TaskError
from data_stack.loader.workers.pickling import dump, dump_error, load

__all__ = ["Failure", "attempt", "pack"]


@dataclass(frozen=True)
class Failure:
    """How an attempt failed.

    Attributes:
        problem: what was raised and where, for a sentence that begins with "the attempt".
        traceback_text: its traceback; empty if there is none.
        pickled: the exception, if it survives pickling.
    """

    problem: str
    traceback_text: str = ""
    pickled: bytes | None = None

    def error(self, task: str, n_attempts: int) -> TaskError:
        """The error that a task has failed so often, with what was raised as its cause."""
        error = TaskError(task, n_attempts, self.problem, self.traceback_text)
        error.__cause__ = None if self.pickled is None else load(self.pickled)
        return error


def pack(work: Callable[[Any], Any]) -> bytes:
    """The pickle of what tasks do; functions and classes of a script or a notebook are in it by value.

    Raises:
        ConfigError: it cannot be sent.
    """
    try:
        return bytes(dump(work, in_one_piece=True)[0])
    except Exception as error:  # whatever an object raises instead of being pickled
        raise ConfigError(
            f"{work!r:.200} cannot be sent to other processes: {type(error).__name__}: {error}. Let it open what it needs when "
            f"that is first used"
        ) from error


def attempt(packed: bytes, argument: Any) -> tuple[Any, Failure | None]:
    """Try a task: what came of it, or how it failed.

    Args:
        packed: of :func:`pack`.
        argument: of the task.
    """
    try:
        return load(packed)(argument), None
    except BaseException as error:  # noqa: BLE001  # SystemExit and the like of user code must not end it in silence
        said = f"raised {type(error).__name__}: {error}" if str(error) else f"raised {type(error).__name__}"
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        return None, Failure(f"{said} (process {os.getpid()} of {socket.gethostname()})", text, dump_error(error))
