"""One attempt at a task, and how it failed; engines run it in other processes."""

from __future__ import annotations

import os
import socket
import traceback
from dataclasses import dataclass
from typing import Any

from data_stack.exception import ConfigError, TaskError
from data_stack.processes.pickling import dump, dump_error, load
from data_stack.processes.program_settings import ProgramSettings
from data_stack.util.interrupts import is_from_signal_handler


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
        """Return the error for a task, caused by the exception of the attempt.

        Args:
            task: its name.
            n_attempts: how often it has failed.
        """
        error = TaskError(task, n_attempts, self.problem, self.traceback_text)
        if self.pickled is not None:
            error.__cause__ = load(self.pickled)
        return error


def pack(work: Any) -> bytes:
    """Pickle the function of tasks, or an end of one.

    Functions and classes of a script or a notebook are pickled by value.

    Raises:
        ConfigError: it cannot be pickled.
    """
    try:
        pieces = dump(work, in_one_piece=True)
    except Exception as error:  # any class may refuse to be pickled in a way of its own
        if is_from_signal_handler(error):
            raise
        raise ConfigError(
            f"{work!r:.200} cannot be sent to other processes: {type(error).__name__}: {error}. "
            f"Open files and connections when they are first used"
        ) from error
    return bytes(pieces[0])


def unpack(packed: bytes) -> Any:
    """Return what :func:`pack` has pickled; only for bytes from processes of ours."""
    return load(packed)


def attempt(
    packed: bytes, argument: Any, settings: ProgramSettings | None = None
) -> tuple[Any, Failure | None]:
    """Run a task, and return its result or its failure; cloudpickle can pickle both.

    Args:
        packed: what :func:`pack` returned.
        argument: of the task.
        settings: of the program, for this process; None if it has them.
    """
    try:
        function = load(packed)
        if settings is not None:
            settings.apply_to_process()
        result = function(argument)
    except BaseException as error:  # noqa: BLE001  # also SystemExit of user code
        return None, _failure_of(error)
    try:
        dump(result)
    except Exception as error:  # noqa: BLE001  # any class may refuse to be pickled in a way of its own
        return None, Failure(
            f"returned a result that cannot be pickled: {type(error).__name__}: {error}"
        )
    return result, None


def _failure_of(error: BaseException) -> Failure:
    """Describe an exception of a task, and where it was raised."""
    description = f"{type(error).__name__}: {error}".removesuffix(": ")
    return Failure(
        problem=f"raised {description} (process {os.getpid()} of {socket.gethostname()})",
        traceback_text="".join(traceback.format_exception(error)),
        pickled=dump_error(error),
    )
