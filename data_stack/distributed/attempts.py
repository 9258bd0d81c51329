"""Attempts at tasks in processes of this machine."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
import traceback
from collections import Counter, deque
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import wait as connection_wait
from typing import Any

from data_stack.exception import ConfigError, TaskError
from data_stack.processes.channel import Channel, Payload
from data_stack.processes.child_process import ChildProcess, end_all, loaded_modules
from data_stack.processes.engine import PreparationEngine, Result
from data_stack.processes.fork_server import hold, is_readable
from data_stack.processes.pickling import dump, dump_error, load
from data_stack.processes.program_settings import ProgramSettings
from data_stack.util.executor import n_processors
from data_stack.util.interrupts import is_from_signal_handler
from data_stack.util.logger import logger

_LOOK_SECONDS = 0.25


class ProcessEngine(PreparationEngine):
    """Runs tasks in processes of this machine; it replaces a process that dies, and attempts its task again.

    Each is a fork of a fresh interpreter, with this process's ``sys.path``, current folder and environment. It does not import
    the user's script, so scripts need no ``if __name__ == "__main__"`` and notebooks work: functions and classes of a script or
    a cell are pickled by value. The global generators of random numbers are seeded anew for each process; tasks have the settings
    of ``decimal``, numpy's errors, torch's default dtype and gradient mode, and the locale of the thread that runs them.
    Output of tasks goes to standard error. The processes end with this one.

    Args:
        n_processes: number of simultaneous processes; None for one per processor of this process.
        attempts: maximum number of attempts at a task that raises or whose process dies.

    Raises:
        ConfigError: a number is less than 1.
    """

    def __init__(self, n_processes: int | None = None, *, attempts: int = 3) -> None:
        for name, value in (("n_processes", n_processes), ("attempts", attempts)):
            if value is not None and (type(value) is not int or value < 1):
                raise ConfigError(f"{name} must be an integer of at least 1, got {value!r:.40}")
        self.n_processes = n_processors() if n_processes is None else n_processes
        self.attempts = attempts

    def __repr__(self) -> str:
        return f"ProcessEngine({self.n_processes}, attempts={self.attempts})"

    def run(
        self, work: Callable[[Any], Result], tasks: Mapping[str, Any], *, title: str
    ) -> Generator[tuple[str, Result], None, None]:
        packed = pack(work)
        waiting, failures = deque(tasks), Counter[str]()
        processes: list[_TaskProcess] = []
        try:
            while waiting or any(process.task is not None for process in processes):
                while waiting and len(processes) < min(self.n_processes, len(tasks)):
                    processes.append(_TaskProcess())
                for process in processes:
                    if waiting and process.task is None:
                        process.task = waiting.popleft()
                        with contextlib.closing(Payload((packed, tasks[process.task]))) as payload:
                            settings = ProgramSettings.of_thread()
                            process.channel.send((list(sys.argv), settings), payload)
                connection_wait([process.channel.fileno() for process in processes], _LOOK_SECONDS)
                for process in list(processes):
                    task, result, failure = process.take_end()
                    if process.is_gone:
                        processes.remove(process)
                        process.end(time.monotonic())
                    if failure is not None and task is not None:
                        failures[task] += 1
                        if failures[task] >= self.attempts:
                            raise failure.error(task, failures[task])
                        logger.warning(
                            "%s: attempt %d %s; trying again", task, failures[task], failure.problem
                        )
                        waiting.append(task)
                    elif task is not None:
                        yield task, result
        finally:
            end_all(processes)


class _TaskProcess(ChildProcess):
    """A process that attempts one task after another; ``task`` is the current task, or None."""

    def __init__(self) -> None:
        hold([__name__])  # once for all processes
        # standard output may be JSON for another program
        super().__init__(__name__, output=sys.__stderr__)
        self.task: str | None = None

    def take_end(self) -> tuple[str | None, Any, Failure | None]:
        """The task that has ended since the last call, or None; its result; and its failure, or None."""
        message = self.channel.receive() if is_readable(self.channel, 0) else None
        if message is None and not self.is_gone:
            return None, None, None
        task, self.task = self.task, None
        if message is None or message[1] is None:
            return (
                task,
                None,
                Failure(f"ended because its process {self.pid} {self.describe_end()}"),
            )
        if message[0]:
            hold(message[0])  # a process that is started later need not import it
        try:
            return task, *message[1]()
        except Exception as error:  # an object cannot be unpickled
            if is_from_signal_handler(error):
                raise
            return (
                task,
                None,
                Failure(
                    f"returned a result that cannot be unpickled: {type(error).__name__}: {error}"
                ),
            )


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


def pack(work: Any) -> bytes:
    """Pickle the function of tasks, or an end of one; functions and classes of a script or a notebook are pickled by value.

    Raises:
        ConfigError: it cannot be pickled.
    """
    try:
        return bytes(dump(work, in_one_piece=True)[0])
    except Exception as error:  # an object cannot be pickled
        if is_from_signal_handler(error):
            raise
        raise ConfigError(
            f"{work!r:.200} cannot be sent to other processes: {type(error).__name__}: {error}. Open files and connections when "
            f"they are first used"
        ) from error


def unpack(packed: bytes) -> Any:
    """What :func:`pack` has pickled; only for bytes from processes of ours."""
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
        what = f"{type(error).__name__}: {error}".removesuffix(": ")
        problem = f"raised {what} (process {os.getpid()} of {socket.gethostname()})"
        return None, Failure(problem, "".join(traceback.format_exception(error)), dump_error(error))
    try:
        dump(result)
    except Exception as error:  # noqa: BLE001  # an object cannot be pickled
        return None, Failure(
            f"returned a result that cannot be pickled: {type(error).__name__}: {error}"
        )
    return result, None


def main(descriptor: int) -> None:
    """Attempt tasks for the process that started this one."""
    channel, n_modules = Channel(socket.socket(fileno=descriptor)), 0
    while (message := channel.receive()) is not None:
        (sys.argv[:], settings), unpickle = message
        packed, argument = unpickle()  # type: ignore[misc]  # each message has one
        with contextlib.closing(Payload(attempt(packed, argument, settings))) as payload:
            n_before, n_modules = n_modules, len(sys.modules)
            channel.send(loaded_modules() if n_modules > n_before else [], payload)
    channel.close()
