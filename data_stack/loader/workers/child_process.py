"""A fresh interpreter that works for this one over a channel: how the parent starts and ends it, and how it begins."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any

from data_stack.exception import ConfigError
from data_stack.loader.workers.channel import Channel

# multiprocessing would import the user's script again, which would need a main guard
_PROGRAM = "import sys; facts = sys.argv[1]; sys.path[:] = sys.argv[2:]; from {} import main; main(*map(int, facts.split(',')))"
_ANSWER_SECONDS = 5.0  # children always read, so one that does not answer for so long was stopped
_PR_SET_PDEATHSIG = 1  # which signal to get when the thread that started this process ends, see prctl(2)


class ChildProcess:
    """A process with this one's ``sys.path``, current folder and environment. Ctrl-C does not reach it.

    Args:
        module: whose ``main(channel, parent, is_of_main_thread, *facts)`` it runs; see :func:`begin_as_child`.
        facts: further integers.
        output: its standard output, as for ``subprocess.Popen``.

    Raises:
        ConfigError: there is no interpreter to run.
        OSError: the process could not be started.

    Attributes:
        channel: to the process.
    """

    def __init__(self, module: str, *facts: int, output: Any = None) -> None:
        if not sys.executable or getattr(sys, "frozen", False):
            raise ConfigError("there is no Python interpreter here that worker processes could run; use threads")
        ours, theirs = socket.socketpair()
        self.channel = Channel(ours, _ANSWER_SECONDS)
        known = [theirs.fileno(), os.getpid(), threading.current_thread() is threading.main_thread(), *facts]
        command = [sys.executable, *subprocess._args_from_interpreter_flags(), "-u", "-c", _PROGRAM.format(module)]  # type: ignore[attr-defined]  # as multiprocessing does
        try:
            with contextlib.closing(theirs):
                self.process = subprocess.Popen(  # noqa: S603  # our own program
                    [*command, ",".join(str(int(fact)) for fact in known), *map(os.fspath, sys.path)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
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

    def tell_death(self) -> str:
        """How it ended, for a message; waits for the end for a second, and then kills it."""
        try:
            status = self.process.wait(timeout=1)
        except subprocess.TimeoutExpired:  # it closed its channel, but runs on
            self.process.kill()
            return "does not answer any more"
        if status >= 0:
            return f"exited with status {status}"
        name = signal.Signals(-status).name if -status in signal.Signals._value2member_map_ else "a real-time signal"
        why = ", as the kernel does when memory runs out" if -status == signal.SIGKILL else ""
        return f"was killed by signal {-status} ({name}{why})"

    def end(self, deadline: float) -> None:
        """Close its channel, and kill it if it still runs at the deadline, in seconds of the monotonic clock."""
        self.channel.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(max(0.0, deadline - time.monotonic()))
        if self.process.returncode is None:
            self.process.kill()
            self.process.wait()

    def forget(self) -> None:
        """In a fork of the parent, forget the child without ending it."""
        self.channel.close()
        self.process.returncode = 0  # else Popen warns that the process was not waited for


def begin_as_child(channel: int, parent: int, is_of_main_thread: int) -> Channel:
    """Open the channel to the parent, and make this process end with the parent.

    Args:
        channel: descriptor of the socket.
        parent: process id of the one that started this one.
        is_of_main_thread: whether the parent's main thread did, which lives as long as the parent.
    """
    if is_of_main_thread and sys.platform == "linux":
        # The thread below cannot end this process while it is stopped or the GIL is held.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_end_with, args=(parent,), name="parent", daemon=True).start()
    return Channel(socket.socket(fileno=channel))


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.25)
    os._exit(1)
