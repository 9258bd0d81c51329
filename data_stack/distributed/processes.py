"""Tasks in processes of this machine."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeVar

from data_stack.dataset.engine import PreparationEngine
from data_stack.distributed.attempts import Failure, PackedWork, packed
from data_stack.exception import ConfigError
from data_stack.loader.workers.channel import Channel
from data_stack.util.logger import logger
from data_stack.util.processors import n_processors

__all__ = ["ProcessEngine"]

Result = TypeVar("Result")

# A fresh interpreter: multiprocessing's would run the user's script again, which therefore needs a guard, as no notebook has.
_PROGRAM = (
    "import sys; facts = sys.argv[1]; sys.path[:] = sys.argv[2:]; "
    "from data_stack.distributed.task_process import main; main(*map(int, facts.split(',')))"
)
_LOOK_SECONDS = 0.25
_GRACE_SECONDS = 0.25  # for processes to end by themselves


class ProcessEngine(PreparationEngine):
    """Runs tasks in processes of this machine; one that dies is replaced, and its task attempted again.

    Each is a fresh interpreter with this one's ``sys.path``, current folder and environment. It does not run the user's script
    again, so that needs no ``if __name__ == "__main__"``, and a notebook will do: the functions and classes that a script or a
    cell defines are sent by value. What tasks print goes to standard error. When this process dies, they die.

    Args:
        n_processes: how many at once; None: one for each processor that this process may use.
        attempts: how often a task is tried, whether it raises or its process dies.

    Raises:
        ConfigError: a number is less than 1.
    """

    def __init__(self, n_processes: int | None = None, *, attempts: int = 3) -> None:
        for name, value in (("n_processes", n_processes), ("attempts", attempts)):
            if value is not None and (type(value) is not int or value < 1):
                raise ConfigError(f"{name} is a number from 1 on, got {value!r:.40}")
        self.n_processes = n_processors() if n_processes is None else n_processes
        self.attempts = attempts

    def __repr__(self) -> str:
        return f"ProcessEngine({self.n_processes}, attempts={self.attempts})"

    def run(
        self, work: Callable[[Any], Result], tasks: Mapping[str, Any], *, title: str
    ) -> Generator[tuple[str, Result], None, None]:
        package = packed(work)
        waiting, failures = deque(tasks), Counter[str]()
        processes: list[_TaskProcess] = []
        poll = select.poll()
        try:
            while waiting or any(process.task is not None for process in processes):
                for process in processes:
                    if waiting and process.task is None:
                        process.attempt(waiting[0], tasks[waiting[0]])
                        waiting.popleft()
                while waiting and len(processes) < self.n_processes:
                    processes.append(_TaskProcess(package))
                    poll.register(processes[-1].channel.fileno(), select.POLLIN)
                    processes[-1].attempt(waiting[0], tasks[waiting[0]])
                    waiting.popleft()
                for process in processes:
                    poll.modify(process.channel.fileno(), select.POLLIN | (select.POLLOUT if process.channel.has_outgoing else 0))
                poll.poll(_LOOK_SECONDS * 1000)
                for process in list(processes):
                    ends = process.ends()
                    if process.is_gone:
                        poll.unregister(process.channel.fileno())
                        processes.remove(process)
                        process.end(time.monotonic())
                    for task, result, failure in ends:
                        if failure is None:
                            yield task, result
                            continue
                        failures[task] += 1
                        if failures[task] >= self.attempts:
                            raise failure.error(task, failures[task])
                        logger.warning("%s: attempt %d %s; it is tried again", task, failures[task], failure.problem)
                        waiting.append(task)
        finally:
            for process in processes:
                process.channel.close()
            deadline = time.monotonic() + _GRACE_SECONDS
            for process in processes:
                process.end(deadline if process.task is None else time.monotonic())


class _TaskProcess:
    """A process that attempts one task after the other.

    Raises:
        ConfigError: there is no interpreter to run.
        OSError: it could not be started.

    Attributes:
        channel: to it.
        task: what it is at; None: nothing.
        is_gone: whether it has ended, or cannot be spoken to any more.
    """

    def __init__(self, package: PackedWork) -> None:
        if not sys.executable or getattr(sys, "frozen", False):
            raise ConfigError("there is no Python interpreter here that other processes could run; prepare without an engine")
        self.task: str | None = None
        self.is_gone = False
        ours, theirs = socket.socketpair()
        self.channel = Channel(ours)
        try:
            # The first three are the standard streams, which this process may be without.
            with contextlib.closing(theirs):
                descriptor = fcntl.fcntl(theirs.fileno(), fcntl.F_DUPFD_CLOEXEC, 3)
            try:
                self.process = self._started(descriptor)
            finally:
                os.close(descriptor)
            self.channel.send(("work", package, list(sys.argv)))
        except BaseException:
            self.channel.close()
            raise

    @staticmethod
    def _started(descriptor: int) -> subprocess.Popen[bytes]:
        is_of_main_thread = threading.current_thread() is threading.main_thread()
        try:
            os.fstat(2)
            errors = 2
        except OSError:
            errors = subprocess.DEVNULL
        return subprocess.Popen(  # noqa: S603  # our own program
            [
                sys.executable,
                *subprocess._args_from_interpreter_flags(),  # type: ignore[attr-defined]  # as multiprocessing does
                "-c",
                _PROGRAM,
                f"{descriptor},{os.getpid()},{int(is_of_main_thread)}",
                *map(os.fspath, sys.path),
            ],
            stdin=subprocess.DEVNULL,
            stdout=errors,  # what is on standard output may be JSON for somebody
            stderr=errors,
            pass_fds=[descriptor],
        )

    def attempt(self, task: str, argument: Any) -> None:
        """Let it do a task."""
        self.task = task
        self.channel.send(("task", argument))

    def ends(self) -> list[tuple[str, Any, Failure | None]]:
        """The task that has ended since this was last called, as (task, result, how it failed or None); at most one."""
        self.channel.flush()
        has_ended = self.process.poll() is not None  # which the channel does not tell if a fork has it, too
        try:
            messages = self.channel.receive()
        except Exception as error:  # noqa: BLE001  # whatever an object raises instead of coming to life
            self.is_gone = True
            return self._end(None, Failure(f"gave what cannot be put together here: {type(error).__name__}: {error}"))
        if messages:
            return self._end(*messages[0])
        if has_ended or self.channel.is_ended:
            self.is_gone = True
            return self._end(None, Failure(self._death()))
        return []

    def _end(self, result: Any, failure: Failure | None) -> list[tuple[str, Any, Failure | None]]:
        task, self.task = self.task, None
        return [] if task is None else [(task, result, failure)]

    def _death(self) -> str:
        """How it ended; it is made sure that it has."""
        try:
            status = self.process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            return f"ended because its process {self.process.pid} does not answer any more"
        if status >= 0:
            return f"ended with its process {self.process.pid}, which exited with status {status}"
        name = signal.Signals(-status).name if -status in signal.Signals._value2member_map_ else "a real-time signal"
        why = ", as the kernel does when memory runs out" if -status == signal.SIGKILL else ""
        return f"ended with its process {self.process.pid}, which was killed by signal {-status} ({name}{why})"

    def end(self, deadline: float) -> None:
        """End it: by force if it has not ended by itself at the deadline, in seconds of the monotonic clock."""
        self.channel.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(max(0.0, deadline - time.monotonic()))
        if self.process.returncode is None:
            self.process.kill()
            self.process.wait()
