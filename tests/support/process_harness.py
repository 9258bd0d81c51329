"""Starts processes for tests, to be killed, frozen or failed at the n-th change of a file; damages
bytes.

A function of a :class:`Harness` runs in a fork of a warm interpreter into which crashpoint.c is
preloaded.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, TypeVar, cast
from unittest import mock

from sizes import FULL

from data_stack.exception import DataStackError
from data_stack.processes import fork_server
from data_stack.processes.fork_server import ForkedProcess

_Result = TypeVar("_Result")

#: No process of a test may take longer; the slowest takes two seconds alone, and machines are busy:
#: on one with 16 processes for two processors, one took more than a minute.
PATIENCE_SECONDS = 180.0 if FULL else 120.0


# ------------------------------------------------------------- functions in processes, with a fault


@dataclass(frozen=True)
class Fault:
    """What happens at which call; see crashpoint.c.

    Attributes:
        folder: calls that touch files below it count; empty: no file does.
        at: number of the call that is hit, from 1 on; 0 only counts.
        action: ``"kill"``, ``"killafter"``, ``"torn"``, ``"error"``, ``"power"``, ``"powerafter"``,
            ``"powerlog"`` or ``"powerlogafter"``.
        error: number of the error for ``"error"``.
        sticky: all later calls fail too.
        looking: calls that only look are counted too.
        sockets: what is sent through sockets is counted too.
        clock_seconds: how much the clock is fast.
    """

    folder: str = ""
    at: int = 0
    action: str = "count"
    error: int = 0
    sticky: bool = False
    looking: bool = False
    sockets: bool = False
    clock_seconds: int = 0

    def arm(self) -> None:
        """Let it happen in this process."""
        library = ctypes.CDLL(None)
        library.cp_shift_clock(ctypes.c_long(self.clock_seconds))
        numbers = self.error, int(self.sticky), int(self.looking), int(self.sockets)
        library.cp_arm(
            os.fsencode(self.folder), ctypes.c_long(self.at), self.action.encode(), *numbers
        )


@dataclass(frozen=True)
class Outcome:
    """How a process ended.

    Attributes:
        status: exit status; the negative number of the signal that ended it; None if it was killed
            because it hung.
        value: what its function returned.
        error: the class of what its function raised; None if it returned.
        own: whether that was a DataStackError.
        message: that error's traceback.
        hits: how many calls were counted.
        left: descriptors and threads that were left behind, where they were looked for.
        output: what it wrote to stdout and stderr.
    """

    status: int | None
    value: Any = None
    error: str | None = None
    own: bool | None = None
    message: str = ""
    hits: int = 0
    left: list[str] = field(default_factory=list)
    output: str = ""

    @property
    def was_killed(self) -> bool:
        return self.status == -signal.SIGKILL


class Process:
    """A running function."""

    def __init__(self, forked: ForkedProcess, answer: IO[bytes], output: IO[bytes]) -> None:
        self._forked, self._answer, self._output = forked, answer, output
        self.kill = forked.kill

    def is_running(self) -> bool:
        return self._forked.poll() is None

    def wait(self, timeout_seconds: float = PATIENCE_SECONDS) -> Outcome:
        """Wait for its end; if that takes too long kill it, and have the stacks of its threads in
        ``output``.
        """
        status = self._forked.poll(timeout_seconds)
        if status is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._forked.pid, signal.SIGUSR1)
            time.sleep(0.5)
            self.kill()
            self._forked.poll(10)
        with self._answer, self._output:
            self._answer.seek(0)
            self._output.seek(0)
            answer = self._answer.read()
            return Outcome(
                status,
                **json.loads(answer or b"{}"),
                output=self._output.read().decode(errors="replace"),
            )


class Harness(contextlib.AbstractContextManager["Harness"]):
    """Starts functions in processes; a context manager.

    Args:
        folder: for the compiled crashpoint.c; open to all where functions run as another user.
        modules: that all processes have.
        environment: variables for all of them.
    """

    def __init__(self, folder: Path, *modules: str, **environment: str) -> None:
        library = str(folder / "crashpoint.so")
        source = str(Path(__file__).with_name("crashpoint.c"))
        compile_it = [
            os.environ.get("CC", "cc"),
            "-O2",
            "-shared",
            "-fPIC",
            "-o",
            library,
            source,
            "-ldl",
        ]
        subprocess.run(compile_it, check=True, capture_output=True)
        # A fork takes no threads along.
        environment = {**environment, "LD_PRELOAD": library, "OPENBLAS_NUM_THREADS": "1"}
        with (
            mock.patch.dict(os.environ, environment),
            mock.patch.object(fork_server, "_server", None),
        ):
            fork_server.hold(["process_harness", *modules])
            server = cast("Any", fork_server._server)
        # Its processes keep these, and what libraries read at import; other threads may read our
        # variables from now on.
        kept, changes = (
            re.compile("|".join([fork_server._READ_AT_IMPORT.pattern, *environment])),
            server.changes,
        )
        server.changes = lambda: {
            name: value for name, value in changes().items() if not kept.fullmatch(name)
        }
        self._lock, self._server = threading.Lock(), server

    def __exit__(self, *error: object) -> None:
        self._server.close()

    def start(
        self,
        function: str,
        *arguments: Any,
        fault: Fault = Fault(),  # a value
        user: int | None = None,
        look_for_left: bool = False,
        **environment: str,
    ) -> Process:
        """Call ``module:function`` in a process.

        Args:
            function: where it is.
            arguments: plain data for it.
            fault: what goes wrong on the way.
            user: number of the user (and group) to be; None to stay who we are.
            look_for_left: wait for the threads that it leaves behind to end, half a second for
                those of pymongo.
            environment: environment variables.
        """
        answer, output = (
            tempfile.TemporaryFile(),
            tempfile.TemporaryFile(),
        )  # Process.wait closes them
        facts = {"user": user, "environment": environment, "look_for_left": look_for_left}
        request = {"function": function, "arguments": arguments, "fault": asdict(fault), **facts}
        with self._lock, mock.patch.object(fork_server, "_server", self._server):
            forked = ForkedProcess("process_harness:_run", [request], [answer.fileno()], output)
            assert fork_server._server is self._server, "its fork server has ended"
        return Process(forked, answer, output)

    def run(
        self,
        function: str,
        *arguments: Any,
        timeout_seconds: float = PATIENCE_SECONDS,
        **options: Any,
    ) -> Outcome:
        """As :meth:`start`, and wait for its end."""
        return self.start(function, *arguments, **options).wait(timeout_seconds)


def _run(descriptor: int, request: dict[str, Any]) -> None:
    os.dup2(1, 2)
    faulthandler.register(signal.SIGUSR1)  # who waits too long asks where we are
    if request["user"] is not None:
        os.setgroups([])
        os.setgid(request["user"])
        os.setuid(request["user"])
    os.environ.update(request["environment"])
    module, _, name = request["function"].partition(":")
    function = getattr(importlib.import_module(module), name)
    answer: dict[str, Any] = {}
    handles = open_handles()
    Fault(**request["fault"]).arm()
    try:
        answer["value"] = function(*request["arguments"])
    except BaseException as error:
        answer = {
            "error": type(error).__name__,
            "own": isinstance(error, DataStackError),
            "message": traceback.format_exc(),
        }
    answer["hits"] = int(ctypes.CDLL(None).cp_count())
    Fault().arm()
    if request["look_for_left"]:
        until(lambda: not _left_behind(handles), 5)
        answer["left"] = _left_behind(handles)
    sys.stdout.flush()
    os.write(descriptor, json.dumps(answer).encode())


def n_bytes_read() -> int:
    """Bytes that this process has read from files and pipes, not from sockets."""
    return int(Path("/proc/self/io").read_text().split()[1])


def open_handles() -> dict[str, str]:
    """What the descriptors of this process stand for, by number."""
    found = {}
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one that lists
            found[name] = os.readlink(f"/proc/self/fd/{name}")
    return found


def _left_behind(handles: dict[str, str]) -> list[str]:
    gc.collect()
    left = [f"{number}: {what}" for number, what in open_handles().items() if number not in handles]
    return left + [
        thread.name for thread in threading.enumerate() if thread is not threading.main_thread()
    ]


def forked(work: Callable[[], object]) -> int:
    """Start a fork of this process that does ``work``; the number of its process, whose end
    :func:`exit_status` tells.
    """
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            result = work()
            status = result if type(result) is int else int(result is False)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)  # no pytest, no cleaning up of what the parent still uses
    return pid


def exit_status(pid: int) -> int:
    """Wait for a fork: the number that its work returned, 0 for None or True, 1 for False or an
    error; -9 if it was killed.
    """
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def in_fork(work: Callable[[], object]) -> int:
    """Do ``work`` in a fork of this process; its :func:`exit_status`."""
    return exit_status(forked(work))


# ---------------------------------------------------------------------- programs


def start_python(*arguments: object, **environment: str) -> subprocess.Popen[str]:
    """Another Python with this one's path and the arguments: ``"-c", program`` or a file."""
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, **path, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


#: Options of Python that make warnings errors, except that workers of loaders are slow, as they are
#: on a busy machine. The last filter that fits counts.
WARNINGS_ARE_ERRORS = (
    "-Werror",
    "-Wignore:a worker thread:RuntimeWarning",
    "-Wignore:worker process:RuntimeWarning",
    "-Werror:worker processes:RuntimeWarning",
)


def run_python(
    *arguments: object, timeout_seconds: float = PATIENCE_SECONDS, **environment: str
) -> tuple[str, str]:
    """What such a Python writes to standard output and error; it must end well."""
    with start_python(*arguments, **environment) as process:
        try:
            output, errors = process.communicate(timeout=timeout_seconds)
        finally:
            process.kill()
    assert process.returncode == 0, output + errors
    return output, errors


class ServerProcess:
    """A server in a process of its own, which ends with this one at the latest; a context manager.

    Args:
        arguments: of Python. The program prints a line when it is ready, and ends when its standard
            input does.

    Attributes:
        pid: of its process.
        said: the words of the line.
    """

    def __init__(self, *arguments: str, environment: dict[str, str] | None = None) -> None:
        command = [sys.executable, *arguments]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        assert self._process.stdout is not None
        self.pid, self.said = self._process.pid, self._process.stdout.readline().decode().split()
        if not self.said:
            raise RuntimeError(f"{type(self).__name__} did not start")

    def stop(self) -> None:
        """End the server."""
        with self._process:  # closes the pipes of a server that does not end in time, too
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.communicate(timeout=5)
            self._process.kill()

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


@contextlib.contextmanager
def frozen(pid: int) -> Iterator[None]:
    """Let a process hang inside of the block: its connections stay, its answers do not come."""
    os.kill(pid, signal.SIGSTOP)
    states = [task / "stat" for task in Path(f"/proc/{pid}/task").iterdir()]
    # A busy machine stops its threads one after the other.
    until(
        lambda: all(
            state.read_text().rpartition(")")[2].split()[0] in "TtZ"
            for state in states
            if state.exists()
        ),
        30,
    )
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def is_running(pid: int) -> bool:
    """Whether there is such a process, and it is no zombie."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return False


def until(condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> bool:
    """Wait until a condition holds, but no longer than that; whether it does. A file that it does
    not find may come.
    """
    end, holds = time.monotonic() + seconds, False
    while not holds and time.monotonic() <= end:
        with contextlib.suppress(FileNotFoundError):
            holds = condition()
        time.sleep(0 if holds else 0.01)
    return holds


def eventually(
    work: Callable[[], _Result],
    error: type[BaseException],
    seconds: float = PATIENCE_SECONDS,
) -> _Result:
    """Return what ``work`` returns, and call it again while it raises ``error``.

    This is for what has a short time limit, which may be over on a busy machine. After
    ``seconds``, the error is raised.
    """
    end = time.monotonic() + seconds
    while True:
        try:
            return work()
        except error:
            if time.monotonic() > end:
                raise


# ---------------------------------------------------------------------- bytes


def flipped(data: bytes, position: int) -> bytes:
    """``data`` with bit ``position % 8`` of byte ``position // 8`` flipped."""
    changed = bytearray(data)
    changed[position // 8] ^= 1 << position % 8
    return bytes(changed)


def flip_file(path: Path, position: int, *, keep_time: bool = False) -> None:
    """Flip one bit of a file without its store; ``keep_time``: set the time of its last change
    back, as far as one may.
    """
    status = path.stat()
    with path.open("r+b") as file:
        file.seek(position // 8)
        byte = file.read(1)
        file.seek(position // 8)
        file.write(flipped(byte, position % 8))
    if keep_time:
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def each_flip(data: bytes, step: int = 1) -> Iterator[bytes]:
    """``data`` with each of its bits flipped in turn, or every ``step``-th."""
    return (flipped(data, position) for position in range(0, 8 * len(data), step))


def each_cut(data: bytes, step: int = 1) -> Iterator[bytes]:
    """``data`` cut short anywhere, or at every ``step`` bytes."""
    return (data[:size] for size in range(0, len(data), step))
