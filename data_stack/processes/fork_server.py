"""Starts processes as forks of a fork server, a process that holds imports: a start takes milliseconds.

The server is a fresh interpreter without threads of its own, so it can always be forked safely. It starts with the first process
and ends with this one, as do its forks. A fork of this process has its own server.

Each process has its own channel to the server: a socket on which the server sends the process id, the new process receives its
task, and the server sends the exit status. So threads, signal handlers and finalizers never wait for each other.

multiprocessing's fork server would import the user's script again, which then needs a main guard, and it cannot import further
modules after its start.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import gc
import importlib
import json
import os
import re
import select
import signal
import socket
import struct
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
from data_stack.processes.seeding import seed_generators
from data_stack.util.interrupts import (
    interrupts_deferred,
    is_from_signal_handler,
    suppress_own,
)

_PROGRAM: Final = (
    "import sys; descriptor = int(sys.argv[1]); sys.path[:] = sys.argv[2:]; "
    "from data_stack.processes.fork_server import serve; serve(descriptor)"
)
_ANSWER_SECONDS: Final = 30.0  # then another server replaces it

_NUMBER: Final = struct.Struct("=i")
"""A message about a process. The first one is its id, or a negative error number; the second one its exit status."""

_MAX_DESCRIPTORS: Final = 16
_CLOSE_ON_EXEC: Final = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_PR_SET_PDEATHSIG: Final = 1  # selects the signal to receive when the parent ends, see prctl(2)

#: Variables that libraries read when they are imported: the server has imported them, so a change needs another server.
_READ_AT_IMPORT: Final = re.compile(
    "(ARROW|BLIS|CUDA|GOTO|KMP|LD|MALLOC|MKL|OMP|OPENBLAS|OPENCV|PYTHON|PYTORCH|TORCH)_?.*"
)

# Held while this process forks: a fork in between would inherit a socket of the server, and hide the end of this process.
# A signal handler or finalizer may fork while its own thread holds it.
_lock = threading.RLock()


class ForkedProcess:
    """A process with this one's ``sys.path``, current folder, environment, processors and output. Ctrl-C does not reach it.

    Its priority, file mode mask and limits of resources are those that this process had when the server started.

    Args:
        function: ``"module:name"``, called with the numbers of its descriptors, and with the arguments.
        arguments: plain JSON data.
        descriptors: passed to the process.
        output: a file for its standard output; None: this process's.

    Raises:
        ConfigError: this Python cannot start interpreters.
        OSError: no process can be started.

    Attributes:
        pid: its process id.
        returncode: None until :meth:`poll` saw its end; then as in :class:`subprocess.Popen`.
    """

    def __init__(
        self,
        function: str,
        arguments: Sequence[Any] = (),
        descriptors: Sequence[int] = (),
        output: Any = None,
    ) -> None:
        self.returncode: int | None = None
        request: dict[str, Any] = {
            "function": function,
            "arguments": list(arguments),
            "path": list(map(os.fspath, sys.path)),
            "folder": None,
            "processors": sorted(os.sched_getaffinity(0))
            if hasattr(os, "sched_getaffinity")
            else [],
        }
        with suppress_own(OSError):  # it was removed
            request["folder"] = os.getcwd()
        with open(os.devnull, "wb") as nothing:
            outputs = [
                _open_or(nothing.fileno(), 1 if output is None else output.fileno()),
                _open_or(nothing.fileno(), 2),
            ]
            self._server, self._channel, self.pid = _start(
                [*outputs, *descriptors]
            )  # it ends with its server
        request["changes"] = self._server.changes()
        _send_all(self._channel, request)

    def poll(self, seconds: float = 0.0) -> int | None:
        """Its exit status, or the negative number of the signal that killed it; None if it still runs after some seconds."""
        if self.returncode is None and is_readable(self._channel, seconds):
            status = b""
            with suppress_own(ConnectionError):
                status = self._channel.recv(_NUMBER.size, socket.MSG_PEEK)  # for other threads, too
            self.returncode = (
                _NUMBER.unpack(status)[0] if status else -signal.SIGKILL
            )  # a process ends with its server
            self._channel.close()
        return self.returncode

    def kill(self) -> None:
        """End it at once."""
        if self.poll() is None:
            with suppress_own(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def forget(self) -> None:
        """Release it without its exit status: one that was killed, or, in a fork of this process, one of the parent."""
        self.returncode = 0
        self._channel.close()


def hold(modules: Iterable[str]) -> None:
    """Let the server import modules, without waiting for it; starts it if necessary. A module that fails is skipped."""
    with suppress_own(OSError), _lock:
        server = _running_server()
        if names := sorted(set(modules) - server.held):
            server.held.update(names)
            with server.connect(b"hold") as channel:
                _send_all(channel, names)


class _Server:
    """This process's end of a server.

    Raises:
        OSError: it cannot be started.

    Attributes:
        pid: its process id.
        held: the modules that it was asked to import.
    """

    def __init__(self) -> None:
        self._environment = dict(os.environ)
        self.held: set[str] = set()
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # as multiprocessing does
        with interrupts_deferred():
            self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                self._process = subprocess.Popen(  # noqa: S603  # our own program
                    [
                        sys.executable,
                        *flags,
                        "-u",
                        "-c",
                        _PROGRAM,
                        str(theirs.fileno()),
                        *map(os.fspath, sys.path),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    env=self._environment,
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,  # Ctrl-C does not reach it
                )
        self._connection.settimeout(_ANSWER_SECONDS)
        self.pid = self._process.pid
        _servers.add(self)

    def changes(self) -> dict[str, str | None]:
        """The variables of the environment that have changed since it started; None for removed ones."""
        before, now = self._environment, os.environ
        names = [name for name in {*before, *now} if before.get(name) != now.get(name)]
        return {name: now.get(name) for name in names}

    def fork(self, descriptors: Sequence[int]) -> tuple[socket.socket, int]:
        """Fork a process, and return its channel, which waits for the task, and its id.

        Raises:
            ConnectionError, TimeoutError: the server has ended, or does not answer.
            OSError: it cannot fork.
        """
        with _lock:
            channel = self.connect(b"fork", descriptors)
        try:
            started = channel.recv(_NUMBER.size) if is_readable(channel, _ANSWER_SECONDS) else b""
            if not started:
                raise ConnectionError(f"the fork server, process {self.pid}, was killed or stopped")
            (pid,) = _NUMBER.unpack(started)
            if pid < 0:
                raise OSError(-pid, os.strerror(-pid))
        except BaseException:
            channel.close()
            raise
        return channel, pid

    def connect(self, request: bytes, descriptors: Sequence[int] = ()) -> socket.socket:
        """Make a channel to the server, which reads ``request`` first."""
        with interrupts_deferred():
            ours, theirs = socket.socketpair()
        try:
            with theirs:
                socket.send_fds(self._connection, [request], [theirs.fileno(), *descriptors])
        except BaseException:
            ours.close()
            raise
        return ours

    def close(self) -> None:
        """End it, and the processes that it forked."""
        self._connection.close()
        self._process.kill()
        self._process.wait()

    def forget(self) -> None:
        """In a fork of this process, leave it to the parent."""
        self._connection.close()
        self._process.returncode = 0  # else Popen warns that the process was not waited for

    def __del__(self) -> None:
        if hasattr(self, "_process"):
            self.close()


_servers: weakref.WeakSet[_Server] = weakref.WeakSet()
_server: _Server | None = None


def _running_server() -> _Server:
    global _server
    with _lock:
        if _server is None or any(map(_READ_AT_IMPORT.fullmatch, _server.changes())):
            if not sys.executable or getattr(sys, "frozen", False):
                raise ConfigError(
                    "this program has no Python interpreter that other processes could run (sys.executable)"
                )
            _server = _Server()  # processes of the former one keep it
        return _server


def _start(descriptors: Sequence[int]) -> tuple[_Server, socket.socket, int]:
    """Fork a server that answers."""
    global _server
    server = _running_server()
    try:
        return server, *server.fork(descriptors)
    except (ConnectionError, TimeoutError) as error:
        if is_from_signal_handler(error):
            raise
        with _lock:
            if _server is server:  # where it was only stopped, its processes keep it
                _server = None
    server = _running_server()
    return server, *server.fork(descriptors)


def _send_all(channel: socket.socket, data: Any) -> None:
    with suppress_own(ConnectionError):  # its reader was killed, which its status says
        try:
            channel.sendall(json.dumps(data).encode())
        finally:
            channel.shutdown(socket.SHUT_WR)  # a fork of this process may hold the socket open


def is_readable(channel: Any, seconds: float) -> bool:
    """Whether a socket can be read, or was closed by its other end, within some seconds."""
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _open_or(other: int, descriptor: int) -> int:
    """The descriptor, or another one if it is closed."""
    try:
        os.fstat(descriptor)
    except OSError as error:
        if is_from_signal_handler(error):
            raise
        return other
    return descriptor


def _end_all() -> None:
    for server in list(_servers):
        server.close()


def _after_fork_in_child() -> None:
    global _server
    for server in list(_servers):
        server.forget()
    _servers.clear()
    _server = None


os.register_at_fork(after_in_child=_after_fork_in_child)
# in C, where Ctrl-C cannot come between and leave it locked
os.register_at_fork(
    before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
)
atexit.register(_end_all)


# ----------------------------------------------------------------------------------------------- in the server, and in its forks


def serve(descriptor: int) -> None:
    """Fork for each request until the other end is closed."""
    control = socket.socket(fileno=descriptor)
    wakeup, woken = socket.socketpair()
    woken.setblocking(False)
    signal.signal(
        signal.SIGCHLD, lambda *_: None
    )  # so that the end of a process is noticed at once
    signal.set_wakeup_fd(woken.fileno(), warn_on_full_buffer=False)
    poll = select.poll()
    poll.register(control, select.POLLIN)
    poll.register(wakeup, select.POLLIN)
    running: dict[int, socket.socket] = {}
    while True:
        ready = dict(poll.poll())
        if wakeup.fileno() in ready:
            wakeup.recv(4096)
            _reap(running)
        if control.fileno() not in ready:
            continue
        kind, received = b"", list[int]()
        with contextlib.suppress(ConnectionError):
            kind, received, _, _ = socket.recv_fds(control, 16, _MAX_DESCRIPTORS, _CLOSE_ON_EXEC)
        if not kind:
            os._exit(0)
        channel = socket.socket(fileno=received[0])
        if kind == b"hold":
            with channel, contextlib.suppress(ValueError):
                for name in _read_all(channel):
                    with contextlib.suppress(Exception):
                        importlib.import_module(name)
                gc.collect()
                gc.freeze()  # else collections in forks would copy the pages of all objects
        else:
            _fork(channel, received[1:], [control, wakeup, woken, *running.values()], running)


def _reap(running: dict[int, socket.socket]) -> None:
    with contextlib.suppress(ChildProcessError):
        while (end := os.waitpid(-1, os.WNOHANG))[0]:
            if (channel := running.pop(end[0], None)) is not None:
                with channel, contextlib.suppress(OSError):  # no one waits for it
                    channel.sendall(_NUMBER.pack(os.waitstatus_to_exitcode(end[1])))


def _read_all(channel: socket.socket) -> Any:
    """The JSON data that arrives until the other end closes; a ValueError if they are cut off."""
    with channel.makefile("rb") as file:
        return json.load(file)


def _fork(
    channel: socket.socket,
    received: list[int],
    own: list[socket.socket],
    running: dict[int, socket.socket],
) -> None:
    server = os.getpid()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # libraries have threads, which they restart in forks
            pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for each in own:
                each.close()
            _run(channel, received, server)
        running[pid] = channel
    except OSError as error:
        pid = -(error.errno or errno.EAGAIN)
    for descriptor in received:
        os.close(descriptor)
    with contextlib.suppress(OSError):  # no one waits for it
        channel.sendall(_NUMBER.pack(pid))
    if pid < 0:
        channel.close()


def _run(channel: socket.socket, received: list[int], server: int) -> NoReturn:
    status = 1
    try:
        os.setsid()
        _end_with(server)
        for number, output in enumerate(received[:2], 1):
            os.dup2(output, number)
            os.close(output)
        with channel:
            try:
                request = _read_all(channel)
            except (OSError, ValueError):  # Ctrl-C in the other process
                os._exit(1)
        for name, value in request["changes"].items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        sys.path[:] = request["path"]
        if request["folder"] is not None:
            os.chdir(request["folder"])
        if processors := request["processors"]:
            os.sched_setaffinity(0, processors)
        if "TZ" in request["changes"] and hasattr(time, "tzset"):
            time.tzset()
        seed_generators(os.urandom(16))
        module, _, name = request["function"].partition(":")
        getattr(importlib.import_module(module), name)(*received[2:], *request["arguments"])
        status = 0
    except BaseException:  # noqa: BLE001  # the parent sees the status
        traceback.print_exc()
    finally:
        os._exit(status)


def _end_with(parent: int) -> None:
    """Let this process end when its parent does; elsewhere than on Linux it ends when its channel is closed."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
