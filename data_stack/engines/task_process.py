"""A process of this machine that attempts tasks, one after another.

The program sends one message for each attempt: its head is the program's arguments and settings,
its payload the packed function and the argument. The process answers with one message: its head is
the names of newly imported modules, its payload what :func:`~data_stack.engines.attempts.attempt`
returned. A message without payload ends the conversation.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from data_stack.engines.attempts import Failure, attempt
from data_stack.exception import describe_error
from data_stack.processes.channel import Channel, Payload
from data_stack.processes.child_process import ChildProcess
from data_stack.processes.fork_server import hold, is_readable
from data_stack.processes.held_modules import modules_imported_since
from data_stack.processes.program_settings import ProgramSettings
from data_stack.util.interrupts import is_from_signal_handler


@dataclass(frozen=True, slots=True)
class EndedTask:
    """A task whose attempt has ended.

    Attributes:
        name: of the task.
        result: what it returned; None if it failed.
        failure: how it failed; None if it succeeded.
    """

    name: str
    result: Any
    failure: Failure | None


class TaskProcess(ChildProcess):
    """A process that attempts one task after another.

    Attributes:
        task: the name of the current task; None if there is none.
    """

    task: str | None

    def __init__(self) -> None:
        # The fork server imports this module once for all processes.
        hold([__name__])
        # The standard output of this program may be JSON for another one.
        super().__init__(__name__, output=sys.__stderr__)
        self.task = None

    def start(self, task: str, packed_work: bytes, argument: Any) -> None:
        """Start an attempt at a task.

        Args:
            task: its name.
            packed_work: its function, see :func:`~data_stack.engines.attempts.pack`.
            argument: of the function.
        """
        self.task = task
        with contextlib.closing(Payload((packed_work, argument))) as payload:
            head = (list(sys.argv), ProgramSettings.of_thread())
            self.channel.send(head, payload)

    def take_ended_task(self) -> EndedTask | None:
        """Return the task that has ended since the last call; None if there is none.

        The death of the process ends its task, with a failure.
        """
        message = None
        if is_readable(self.channel, 0):
            message = self.channel.receive()
        if message is None and not self.is_gone:
            # The attempt goes on.
            return None
        task = self.task
        self.task = None
        if task is None:
            # The process died without a task.
            return None
        if message is None or message.load_payload is None:
            problem = f"ended because its process {self.pid} {self.describe_end()}"
            return EndedTask(task, None, Failure(problem))
        imported_modules = message.head
        if imported_modules:
            # A process that is started later has these modules from its start.
            hold(imported_modules)
        return _load_end(task, message.load_payload)


def _load_end(task: str, load_payload: Callable[[], Any]) -> EndedTask:
    """Return the end of a task, as its process has sent it."""
    try:
        result, failure = load_payload()
    except Exception as error:  # any class may refuse to be unpickled in a way of its own
        if is_from_signal_handler(error):
            raise
        problem = f"returned a result that cannot be unpickled: {describe_error(error)}"
        return EndedTask(task, None, Failure(problem))
    return EndedTask(task, result, failure)


def main(descriptor: int) -> None:
    """Attempt tasks for the process that started this one, until it closes the channel.

    The fork server calls this in each new process; see :class:`ChildProcess`.

    Args:
        descriptor: the file descriptor of the channel's socket.
    """
    channel = Channel(socket.socket(fileno=descriptor))
    n_modules = len(sys.modules)
    while True:
        message = channel.receive()
        if message is None or message.load_payload is None:
            break
        program_arguments, settings = message.head
        sys.argv[:] = program_arguments
        packed_work, argument = message.load_payload()
        with contextlib.closing(Payload(attempt(packed_work, argument, settings))) as payload:
            imported_modules = modules_imported_since(n_modules)
            n_modules = len(sys.modules)
            channel.send(imported_modules, payload)
    channel.close()
