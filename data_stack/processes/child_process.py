"""A process that works for this one over a channel."""

from __future__ import annotations

import contextlib
import signal
import socket
import sys
import time
from typing import Any, Final

from data_stack.processes.channel import Channel
from data_stack.processes.fork_server import ForkedProcess

_ANSWER_SECONDS = 5.0  # children always read, so one that does not answer within this time was stopped

#: Packages that take long to import, and have no threads and no connections until they are used.
_HELD: Final = frozenset({"PIL", "cv2", "h5py", "numpy", "pandas", "pyarrow", "torch"})


class ChildProcess:
    """A fork of the fork server (:mod:`data_stack.processes.fork_server`), with this process's ``sys.path``, current folder and
    environment. Ctrl-C does not reach it.

    multiprocessing would import the user's script again, which would need a main guard.

    Args:
        module: whose ``main(channel, *facts)`` it runs, ``channel`` being the descriptor of a socket.
        facts: further integers.
        output: a file for its standard output; None: this process's.

    Raises:
        ConfigError: this Python cannot start interpreters.
        OSError: the process could not be started.

    Attributes:
        channel: to the process.
    """

    def __init__(self, module: str, *facts: int, output: Any = None) -> None:
        ours, theirs = socket.socketpair()
        self.channel = Channel(ours, _ANSWER_SECONDS)
        try:
            with contextlib.closing(theirs):
                self.process = ForkedProcess(f"{module}:main", facts, [theirs.fileno()], output)
        except BaseException:
            self.channel.close()
            raise

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    @property
    def is_gone(self) -> bool:
        """Whether it has ended, or closed its channel."""
        return self.channel.is_ended or self.process.poll() is not None  # the channel stays open if a fork has it, too

    @property
    def is_stopped(self) -> bool:
        """Whether it was stopped, as by SIGSTOP; False on systems without ``/proc``."""
        try:
            with open(f"/proc/{self.pid}/stat", encoding="utf-8", errors="replace") as stat:
                # the name of the program comes second, in parentheses, and may have any characters in it, see proc(5)
                return stat.read().rpartition(")")[2].split()[0] == "T"
        except (OSError, IndexError):
            return False

    def describe_end(self) -> str:
        """How it ended, for a message; waits for the end for a second, and then kills it."""
        try:
            status = self.process.wait(timeout=1)
        except TimeoutError:  # it closed its channel, but runs on
            self.process.kill()
            return "no longer answers"
        if status >= 0:
            return f"exited with status {status}"
        name = signal.Signals(-status).name if -status in signal.Signals._value2member_map_ else "a real-time signal"
        why = ", as the kernel does when memory runs out" if -status == signal.SIGKILL else ""
        return f"was killed by signal {-status} ({name}{why})"

    def end(self, deadline: float) -> None:
        """Close its channel, and kill it if it still runs at the deadline, in seconds of the monotonic clock."""
        self.channel.close()
        with contextlib.suppress(TimeoutError):
            self.process.wait(max(0.0, deadline - time.monotonic()))
        if self.process.returncode is None:
            self.process.kill()
            with contextlib.suppress(TimeoutError):  # the fork server, which reports its status, was stopped
                self.process.wait(_ANSWER_SECONDS)

    def forget(self) -> None:
        """In a fork of the parent, release the child without ending it."""
        self.channel.close()
        self.process.forget()


def loaded_modules() -> list[str]:
    """The modules of this process that the fork server may hold for later ones."""
    return [name for name in sys.modules if name in _HELD or name.startswith("data_stack.")]
