"""One attempt at a task, and how it failed; engines run it in other processes."""

from __future__ import annotations

import os
import socket
import traceback
from dataclasses import dataclass
from typing import Any

from data_stack.exception import ConfigError, TaskError, describe_error
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
    """Pickle the function of tasks, or what :func:`attempt` returned for one of them.

    Functions and classes of a script or a notebook are pickled by value.

    Raises:
        ConfigError: ``work`` cannot be pickled.
    """
    try:
        pieces = dump(work, in_one_piece=True)
    except Exception as error:  # any class may refuse to be pickled in a way of its own
        if is_from_signal_handler(error):
            raise
        raise ConfigError(
            f"{work!r:.200} cannot be sent to other processes: {describe_error(error)}. "
            f"Open files and connections when they are first used"
        ) from error
    return bytes(pieces[0])


def unpack(packed: bytes) -> Any:
    """Return what :func:`pack` pickled. The bytes must come from a process of this program."""
    return load(packed)


def attempt(
    packed: bytes, argument: Any, settings: ProgramSettings | None = None
) -> tuple[Any, Failure | None]:
    """Run a task once. Nothing that the task raises leaves this function.

    Args:
        packed: the function of the task, as :func:`pack` returned it.
        argument: the argument of the function.
        settings: the settings of the program, to apply to this process; None if the process has
            them already.

    Returns:
        The result of the task, and None; or None, and how the task failed. cloudpickle can pickle
        both.
    """
    try:
        function = load(packed)
        if settings is not None:
            settings.apply_to_process()
        result = function(argument)
    except BaseException as error:  # noqa: BLE001  # also SystemExit of user code
        return None, _failure_of(error)
    # Pickle the result here, where a refusal is a failure of the task. Any class may refuse to be
    # pickled in a way of its own.
    try:
        dump(result)
    except Exception as error:  # noqa: BLE001
        return None, Failure(f"returned a result that cannot be pickled: {describe_error(error)}")
    return result, None


def _failure_of(error: BaseException) -> Failure:
    """Describe an exception of a task, and where it was raised."""
    process = f"process {os.getpid()} of {socket.gethostname()}"
    return Failure(
        problem=f"raised {describe_error(error)} ({process})",
        traceback_text="".join(traceback.format_exception(error)),
        pickled=dump_error(error),
    )
