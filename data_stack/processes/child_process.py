"""A process that works for this one over a channel."""

from __future__ import annotations

import signal
import socket
import time
from typing import Any, Final

from data_stack.processes.channel import Channel
from data_stack.processes.fork_server import ForkedProcess
from data_stack.util.interrupts import interrupts_deferred

#: How long :func:`end_all` lets children end by themselves before it kills them.
_GRACE_SECONDS: Final = 0.25

#: Children always read from their channel, so one that does not read for this time was stopped.
_ANSWER_SECONDS: Final = 5.0

#: A child that closed its channel ends within this time, or is killed.
_END_SECONDS: Final = 1.0


class ChildProcess(ForkedProcess):
    """A process that works for this one over a channel.

    Args:
        module: the name of a module, whose ``main(descriptor, *facts)`` the process calls. The
            descriptor is that of the socket of the channel.
        facts: integers, passed to ``main``.
        output: a file for the standard output of the process; None: that of this process.

    Raises:
        ConfigError: this Python cannot start interpreters.
        OSError: the process could not be started.

    Attributes:
        channel: the channel to the process.
    """

    channel: Channel

    def __init__(self, module: str, *facts: int, output: Any = None) -> None:
        with interrupts_deferred():
            ours, theirs = socket.socketpair()
        self.channel = Channel(ours, _ANSWER_SECONDS)
        try:
            with theirs:
                super().__init__(f"{module}:main", facts, [theirs.fileno()], output)
        except BaseException:
            self.channel.close()
            raise

    @property
    def is_gone(self) -> bool:
        """Whether it has ended, or closed its channel."""
        # The channel stays open if a fork of the process has it, too.
        return self.channel.is_ended or self.poll() is not None

    def describe_end(self) -> str:
        """Return how the process ended, for a message.

        The process may still run for a second; then it is killed.
        """
        status = self.poll(_END_SECONDS)
        if status is None:  # it closed its channel, but still runs
            self.kill()
            return "no longer answers"
        if status >= 0:
            return f"exited with status {status}"
        number = -status
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = "a real-time signal"
        reason = ", as the kernel does when memory runs out" if number == signal.SIGKILL else ""
        return f"was killed by signal {number} ({name}{reason})"

    def end(self, deadline: float) -> None:
        """Close its channel, and kill it if it still runs at the deadline.

        Args:
            deadline: in seconds of the monotonic clock.
        """
        self.channel.close()
        seconds_left = max(0.0, deadline - time.monotonic())
        if self.poll(seconds_left) is None:
            self.kill()
            # With a limit: the fork server, which says the status, may be stopped, or be busy with
            # a slow import.
            status = self.poll(_ANSWER_SECONDS)
            if status is None:
                self.forget()

    def forget(self) -> None:
        """In a fork of the parent, release the child without ending it."""
        self.channel.close()
        super().forget()


def end_all(processes: list[Any]) -> None:
    """End processes, and remove them from the list.

    Their channels are closed first, so that all end at the same time; those that still run after a
    quarter of a second are killed.
    """
    for process in processes:
        process.channel.close()
    deadline = time.monotonic() + _GRACE_SECONDS
    while processes:
        processes[-1].end(deadline)
        processes.pop()
