"""Runs functions of the kit in processes of their own, with a fault armed in them."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any

KIT = Path(__file__).resolve().parent
ROOT = KIT.parents[2]

#: No process of a test may take longer; the slowest takes two seconds alone, and machines are busy.
PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Fault:
    """What happens at which call; see crashpoint.c.

    Attributes:
        folder: calls that touch files below it count; empty: no file does.
        at: number of the call that is hit, from 1 on; 0 only counts.
        action: ``"kill"``, ``"killafter"``, ``"torn"``, ``"error"``, ``"power"``, ``"powerafter"``, ``"powerlog"`` or
            ``"powerlogafter"``.
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


@dataclass(frozen=True)
class Outcome:
    """How a process ended.

    Attributes:
        status: exit status; the negative number of the signal that ended it; None if it had to be killed for it hung.
        value: what its function returned.
        error: the class of what its function raised; None if it returned.
        own: whether that was a DataStackError.
        message: that error's traceback.
        hits: how many calls were counted.
        left: descriptors and threads that were left behind, where they were looked for.
        output: what it wrote to stdout and stderr.
        seconds: how long it took.
    """

    status: int | None
    value: Any = None
    error: str | None = None
    own: bool | None = None
    message: str = ""
    hits: int = 0
    left: list[str] = field(default_factory=list)
    output: str = ""
    seconds: float = 0.0

    @property
    def hung(self) -> bool:
        return self.status is None

    @property
    def was_killed(self) -> bool:
        return self.status == -signal.SIGKILL


class Process:
    """A running child."""

    def __init__(self, processes: FaultProcesses, pid: int, output: str) -> None:
        self.pid, self._processes, self._output = pid, processes, output
        self._started = time.monotonic()

    @property
    def seconds_so_far(self) -> float:
        """How long ago it was started."""
        return time.monotonic() - self._started

    def kill(self) -> None:
        """SIGKILL."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout_seconds: float = PATIENCE_SECONDS) -> Outcome:
        """Wait for its end; if that takes too long kill it, and have the stacks of its threads in ``output``."""
        until = time.monotonic() + timeout_seconds
        while True:
            # In short turns, so that several threads can wait for several children of the one forking process.
            status = self._processes.ask({"wait": self.pid, "timeout_seconds": 0.01})
            if status is not None:
                break
            if time.monotonic() > until:
                self._say_where()
                self.kill()
                self._processes.ask({"wait": self.pid, "timeout_seconds": 10.0})
                break
        seconds = time.monotonic() - self._started
        answer: dict[str, Any] = {}
        output = ""
        with contextlib.suppress(FileNotFoundError):
            output = Path(self._output).read_text(errors="replace")
            os.unlink(self._output)
        with contextlib.suppress(FileNotFoundError):
            answer = json.loads(Path(self._output + ".answer").read_text())
            os.unlink(self._output + ".answer")
        return Outcome(status, **answer, output=output, seconds=seconds)

    def _say_where(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGUSR1)
            time.sleep(0.5)


class FaultProcesses:
    """Starts children out of one warm interpreter (fault_child.py), into which crashpoint.c is preloaded.

    Args:
        folder: a scratch folder, outside of the stores; open to all where children are to run as nobody.
        environment: variables for all of them.
    """

    def __init__(self, folder: Path, **environment: str) -> None:
        self._folder = folder
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._environment = environment
        self._said = folder / "forking.txt"
        self._begin()

    def _begin(self) -> None:
        self._unread = b""
        with self._said.open("wb") as said:
            self._zygote = self._started(self._environment, said)
        assert self._line() == "ready"

    def _end(self) -> None:
        self._zygote.kill()
        self._zygote.wait()
        for pipe in (self._zygote.stdin, self._zygote.stdout):
            assert pipe is not None
            pipe.close()

    def _started(self, environment: dict[str, str], said: IO[bytes]) -> subprocess.Popen[bytes]:
        path = [str(ROOT), str(KIT), str(ROOT / "tests/support"), os.environ.get("PYTHONPATH", "")]
        return subprocess.Popen(
            [sys.executable, "-X", "faulthandler", str(KIT / "fault_child.py")],
            env={
                **os.environ,
                **environment,
                "LD_PRELOAD": crashpoint_library(self._folder),
                "PYTHONPATH": os.pathsep.join(filter(None, path)),
                "PYTHONDONTWRITEBYTECODE": "1",
                "OPENBLAS_NUM_THREADS": "1",  # a fork takes no threads along
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            bufsize=0,
        )

    def __enter__(self) -> FaultProcesses:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._zygote.stdin is not None
        assert self._zygote.stdout is not None
        self._zygote.stdin.close()
        try:
            self._zygote.wait(30)
        except subprocess.TimeoutExpired:
            self._zygote.kill()
            self._zygote.wait()
            raise
        finally:
            self._zygote.stdout.close()

    def start(
        self,
        function: str,
        *arguments: Any,
        fault: Fault = Fault(),  # a value
        user: int | None = None,
        look_for_left: bool = False,
        **environment: str,
    ) -> Process:
        """Call ``module:function`` of the kit in a child.

        Args:
            function: where it is.
            arguments: plain data for it.
            fault: what goes wrong on the way.
            user: number of the user (and group) to be; None to stay who we are.
            look_for_left: wait for the threads that it leaves behind to end, half a second for those of pymongo.
            environment: environment variables.
        """
        output = str(self._folder / f"{next(self._numbers)}")
        request = {
            "function": function,
            "arguments": arguments,
            "fault": fault.__dict__,
            "user": user,
            "environment": environment,
            "look_for_left": look_for_left,
            "output": output,
        }
        return Process(self, self.ask(request), output)

    def run(
        self,
        function: str,
        *arguments: Any,
        fault: Fault = Fault(),  # a value
        user: int | None = None,
        look_for_left: bool = False,
        timeout_seconds: float = PATIENCE_SECONDS,
        **environment: str,
    ) -> Outcome:
        """Call ``module:function`` in a child, and wait for its end."""
        process = self.start(function, *arguments, fault=fault, user=user, look_for_left=look_for_left, **environment)
        return process.wait(timeout_seconds)

    def ask(self, request: dict[str, Any]) -> Any:
        """A request to the forking process, and its answer.

        Raises:
            TimeoutError: there was none within PATIENCE_SECONDS; with the stack of that process, which is killed.
        """
        with self._lock:
            try:
                assert self._zygote.stdin is not None
                self._zygote.stdin.write(json.dumps(request).encode() + b"\n")
                return json.loads(self._line())
            except BaseException:
                # Whoever asks next must not get this answer.
                self._end()
                self._begin()
                raise

    def _line(self) -> str:
        """The next line that the forking process writes."""
        assert self._zygote.stdout is not None
        until = time.monotonic() + PATIENCE_SECONDS
        while b"\n" not in self._unread:
            readable, _, _ = select.select([self._zygote.stdout], [], [], max(0.0, until - time.monotonic()))
            data = os.read(self._zygote.stdout.fileno(), 1 << 16) if readable else b""
            if not data:
                self._zygote.send_signal(signal.SIGUSR1)
                time.sleep(0.5)
                self._zygote.kill()
                raise TimeoutError(f"the forking process {'ended' if readable else 'hung'}: {self._said.read_text()}")
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()


def crashpoint_library(folder: Path) -> str:
    """crashpoint.c, compiled into ``folder``."""
    library = folder / "crashpoint.so"
    compiler = os.environ.get("CC", "cc")
    subprocess.run(
        [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(KIT / "crashpoint.c"), "-ldl"],
        check=True,
        capture_output=True,
    )
    return str(library)
