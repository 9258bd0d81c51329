"""Starts processes as forks of a fork server, a process that holds imports: a start takes milliseconds.

The server is a fresh interpreter without threads of its own, so forking it is safe whatever this process does. It starts with
the first process and ends with this one, and so do the processes. A fork of this process has its own server.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import itertools
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import warnings
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, Final, NoReturn

from data_stack.exception import ConfigError

_PROGRAM: Final = (
    "import sys; descriptor = int(sys.argv[1]); sys.path[:] = sys.argv[2:]; "
    "from data_stack.util.fork_server import _serve; _serve(descriptor)"
)
_ANSWER_SECONDS: Final = 60.0
_REAP_MILLISECONDS: Final = 250
_GRACE_SECONDS: Final = 1.0  # for the server to end by itself
_MAX_MESSAGE_BYTES: Final = 1 << 18
_MOST_ENDED: Final = 1024  # of which the server knows the status
_CLOSE_ON_EXEC: Final = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_PR_SET_PDEATHSIG: Final = 1  # which signal to get when the parent ends, see prctl(2)

#: Variables that libraries read when they are imported: the server has imported them, so a change needs another server.
_READ_AT_IMPORT: Final = re.compile("(ARROW|BLIS|CUDA|GOTO|KMP|LD|MALLOC|MKL|OMP|OPENBLAS|OPENCV|PYTHON|PYTORCH|TORCH)_?.*")

# Held while this process forks: a fork in between would inherit the server's socket, and hide the end of this process.
_lock = threading.Lock()


class ForkedProcess:
    """A process with this one's ``sys.path``, current folder, environment, processors and output. Ctrl-C does not reach it.

    Its priority, file mode mask and limits of resources are those that this process had when the server started.

    Args:
        function: ``"module:name"``, called with the numbers of its descriptors, and with the arguments.
        arguments: plain JSON data.
        descriptors: to hand over.
        output: a file for its standard output; None: this process's.

    Raises:
        ConfigError: there is no interpreter to run.
        OSError: no process can be started.

    Attributes:
        pid: its process id.
        returncode: None before :meth:`poll` or :meth:`wait` saw its end; then as of :class:`subprocess.Popen`.
    """

    def __init__(self, function: str, arguments: Sequence[Any] = (), descriptors: Sequence[int] = (), output: Any = None) -> None:
        self.returncode: int | None = None
        request = {
            "function": function,
            "arguments": list(arguments),
            "path": list(map(os.fspath, sys.path)),
            "folder": _current_folder(),
            "processors": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [],
        }
        with open(os.devnull, "wb") as nothing:
            outputs = [_open_or(nothing.fileno(), 1 if output is None else output.fileno()), _open_or(nothing.fileno(), 2)]
            self._server, answer, own = _ask(request, [*outputs, *descriptors])
        self._end = own[0] if own else None  # becomes readable when the process ends
        if "error" in answer:
            raise OSError(*answer["error"])
        self.pid: int = answer["pid"]

    def poll(self) -> int | None:
        """Its exit status, or minus the signal that killed it; None while it runs."""
        return self._look(0)

    def wait(self, timeout: float) -> int:
        """Wait for its end, and return what :meth:`poll` does.

        Args:
            timeout: in seconds.

        Raises:
            TimeoutError: it still runs.
        """
        end = time.monotonic() + timeout
        while (status := self._look(max(0.0, end - time.monotonic()))) is None:
            if time.monotonic() >= end:
                raise TimeoutError(f"process {self.pid} still runs after {timeout:g} s")
        return status

    def kill(self) -> None:
        """End it at once."""
        with contextlib.suppress(ProcessLookupError):
            if self._end is not None:
                signal.pidfd_send_signal(self._end, signal.SIGKILL)
            elif self.returncode is None:
                os.kill(self.pid, signal.SIGKILL)

    def forget(self) -> None:
        """In a fork of this process, leave it to the parent."""
        self._note(0)

    def _look(self, seconds: float) -> int | None:
        if self.returncode is None:
            if self._end is not None:
                poll = select.poll()
                poll.register(self._end, select.POLLIN)
                if not poll.poll(seconds * 1000):
                    return None
            else:  # a system that does not tell
                time.sleep(min(seconds, 0.01))
            status = self._server.status_of(self.pid)
            if status is not None:
                self._note(status)
        return self.returncode

    def _note(self, status: int) -> None:
        self.returncode = status
        if self._end is not None:
            os.close(self._end)
            self._end = None

    def __del__(self) -> None:
        if getattr(self, "_end", None) is not None:
            self._note(0)


def hold(modules: Iterable[str]) -> None:
    """Let the server import modules, without waiting for it; it starts if it does not run. A module that fails is left out."""
    with contextlib.suppress(OSError), _lock:
        _running_server().hold(modules)


class _Server:
    """This process's end of a server.

    Raises:
        OSError: it cannot be started.

    Attributes:
        pid: its process id.
    """

    def __init__(self) -> None:
        self._environment = dict(os.environ)
        self._held: set[str] = set()
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connection.settimeout(_ANSWER_SECONDS)
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # as multiprocessing does
        with contextlib.closing(theirs):
            self._process = subprocess.Popen(  # noqa: S603  # our own program
                [sys.executable, *flags, "-u", "-c", _PROGRAM, str(theirs.fileno()), *map(os.fspath, sys.path)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C does not reach it
            )
        self.pid = self._process.pid
        _servers.add(self)

    def changes(self) -> dict[str, str | None]:
        """The variables of the environment that have changed since it started; None for those that are no more."""
        before, now = self._environment, os.environ
        names = [name for name in {*before, *now} if before.get(name) != now.get(name)]
        return {name: now.get(name) for name in names}

    def ask(self, request: Any, descriptors: Sequence[int] = ()) -> tuple[Any, list[int]]:
        """The answer to a request, and the descriptors that come with it.

        Raises:
            OSError: the server has ended.
        """
        number = next(_numbers)
        socket.send_fds(self._connection, [json.dumps({**request, "number": number}).encode()], descriptors)
        while True:
            data, received, _, _ = socket.recv_fds(self._connection, _MAX_MESSAGE_BYTES, 1, _CLOSE_ON_EXEC)
            if not data:
                raise ConnectionResetError("the fork server has ended")
            answer = json.loads(data)
            if answer["number"] == number:
                return answer, received
            for each in received:  # of a request that Ctrl-C interrupted
                os.close(each)

    def hold(self, modules: Iterable[str]) -> None:
        if names := sorted(set(modules) - self._held):
            self._held.update(names)
            self._connection.send(json.dumps({"hold": names}).encode())

    def status_of(self, pid: int) -> int | None:
        """The exit status of a process, or None while it runs."""
        try:
            with _lock:
                status: int | None = self.ask({"status": pid})[0]["status"]
        except OSError:
            return -signal.SIGKILL  # they end with the server
        return status

    def close(self) -> None:
        """End it, and the processes that it forked."""
        self._connection.close()
        try:
            self._process.wait(_GRACE_SECONDS)
        except subprocess.TimeoutExpired:  # it imports
            self._process.kill()
            self._process.wait()

    def forget(self) -> None:
        """In a fork of this process, leave it to the parent."""
        self._connection.close()
        self._process.returncode = 0  # else Popen warns that the process was not waited for

    def __del__(self) -> None:
        if hasattr(self, "_process"):
            self.close()


_numbers = itertools.count()  # of requests
_servers: weakref.WeakSet[_Server] = weakref.WeakSet()
_server: _Server | None = None


def _running_server() -> _Server:
    global _server
    if _server is None or any(map(_READ_AT_IMPORT.fullmatch, _server.changes())):
        if not sys.executable or getattr(sys, "frozen", False):
            raise ConfigError("there is no Python interpreter here that other processes could run")
        _server = _Server()  # processes of the former one keep it
    return _server


def _ask(request: Any, descriptors: Sequence[int]) -> tuple[_Server, Any, list[int]]:
    global _server
    with _lock:
        for is_last in (False, True):
            server = _running_server()
            try:
                return server, *server.ask({**request, "changes": server.changes()}, descriptors)
            except OSError:  # it was killed
                server.close()
                _server = None
                if is_last:
                    raise
    raise AssertionError


def _current_folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return None


def _open_or(other: int, descriptor: int) -> int:
    """The descriptor, or another one if it is closed."""
    try:
        os.fstat(descriptor)
    except OSError:
        return other
    return descriptor


def _end_all() -> None:
    for server in list(_servers):
        server.close()


def _after_fork() -> None:
    global _server
    _lock.release()
    for server in list(_servers):
        server.forget()
    _servers.clear()
    _server = None


if hasattr(os, "register_at_fork"):  # not on Windows, where no process forks
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_after_fork)
atexit.register(_end_all)


# ------------------------------------------------------------------------- in the server, and in its forks


def _serve(descriptor: int) -> None:
    """Fork for each request until the other end is closed."""
    control = socket.socket(fileno=descriptor)
    poll = select.poll()
    poll.register(control, select.POLLIN)
    statuses: dict[int, int | None] = {}  # None: it runs
    while True:
        is_asked = poll.poll(_REAP_MILLISECONDS if None in statuses.values() else None)
        _reap(statuses)
        if not is_asked:
            continue
        data, received = b"", list[int]()
        with contextlib.suppress(ConnectionError):
            data, received, _, _ = socket.recv_fds(control, _MAX_MESSAGE_BYTES, 8, _CLOSE_ON_EXEC)
        if not data:
            os._exit(0)
        request = json.loads(data)
        own: list[int] = []
        if "hold" in request:
            _import_all(request["hold"])
            continue
        answer: dict[str, Any] = {"number": request["number"]}
        if "status" in request:
            answer["status"] = statuses.get(request["status"], -signal.SIGKILL)
        else:
            try:
                answer["pid"] = pid = _fork(control, request, received)
                statuses[pid] = None
                with contextlib.suppress(AttributeError, OSError):  # not on all systems
                    own = [os.pidfd_open(pid)]
            except OSError as error:
                answer["error"] = error.args
        socket.send_fds(control, [json.dumps(answer).encode()], own)
        for each in (*received, *own):
            os.close(each)


def _reap(statuses: dict[int, int | None]) -> None:
    with contextlib.suppress(ChildProcessError):
        while (end := os.waitpid(-1, os.WNOHANG))[0]:
            statuses[end[0]] = os.waitstatus_to_exitcode(end[1])
    ended = [pid for pid, status in statuses.items() if status is not None]
    for pid in ended[:-_MOST_ENDED]:  # of which no status was asked
        del statuses[pid]


def _import_all(modules: Iterable[str]) -> None:
    for name in modules:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # else collections in forks would copy the pages of all objects


def _fork(control: socket.socket, request: Any, received: list[int]) -> int:
    server = os.getpid()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # libraries have threads, which they restart in forks
        pid = os.fork()
    if pid == 0:
        control.close()
        _run(request, received, server)
    return pid


def _run(request: Any, received: list[int], server: int) -> NoReturn:
    status = 1
    try:
        os.setsid()
        end_with(server)
        for number, output in enumerate(received[:2], 1):
            os.dup2(output, number)
            os.close(output)
        for name, value in request["changes"].items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        sys.path[:] = request["path"]
        if request["folder"] is not None:
            os.chdir(request["folder"])
        if processors := request["processors"]:
            os.sched_setaffinity(0, processors)
        if (numpy_random := sys.modules.get("numpy.random")) is not None:
            numpy_random.seed()  # else all forks would draw the same
        module, _, name = request["function"].partition(":")
        getattr(importlib.import_module(module), name)(*received[2:], *request["arguments"])
        status = 0
    except BaseException:  # noqa: BLE001  # the status tells
        traceback.print_exc()
    finally:
        os._exit(status)


def end_with(parent: int) -> None:
    """Let this process end when its parent does."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
    else:
        threading.Thread(target=_watch, args=(parent,), name="parent", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.25)
    os._exit(1)
