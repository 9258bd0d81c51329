"""Starts processes as forks of a fork server: a process that has imported modules for them.

A start takes milliseconds. The server (:mod:`data_stack.processes.fork_server_process`) is a fresh
interpreter without threads of its own, so it can always be forked safely. It starts with the first
process and ends with this one, as do its forks. A fork of this process has its own server.

Each process has its own channel to the server: a socket on which the server sends the process id,
the new process receives its task, and the server sends the exit status. So threads, signal handlers
and finalizers never wait for each other.

multiprocessing's fork server would import the user's script again, which then needs a main guard,
and it cannot import further modules after its start.
"""

from __future__ import annotations

import atexit
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
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from data_stack.exception import ConfigError
from data_stack.util.interrupts import (
    interrupts_deferred,
    is_from_signal_handler,
    suppress_own,
)

#: What the interpreter of the server runs.
_PROGRAM: Final = (
    "import sys; descriptor = int(sys.argv[1]); sys.path[:] = sys.argv[2:]; "
    "from data_stack.processes.fork_server_process import serve; serve(descriptor)"
)

#: A server that does not answer within this time is replaced by another one.
_ANSWER_SECONDS: Final = 30.0

#: A message about a process. The first one is its id, or a negative error number; the second one
#: its exit status.
NUMBER: Final = struct.Struct("=i")

#: Variables that libraries read when they are imported. The server has imported them, so a change
#: needs another server.
_READ_AT_IMPORT: Final = re.compile(
    "(ARROW|BLIS|CUDA|GOTO|KMP|LD|MALLOC|MKL|OMP|OPENBLAS|OPENCV|PYTHON|PYTORCH|TORCH)_?.*"
)

#: Held while this process forks: a fork in between would inherit a socket of the server, and hide
#: the end of this process. A signal handler or finalizer may fork while its own thread holds it.
_lock = threading.RLock()


class ForkedProcess:
    """A process with this one's ``sys.path``, current folder, environment, processors and output.

    Ctrl-C does not reach it. Its priority, file mode mask and limits of resources are those that
    this process had when the server started.

    Args:
        function: ``"module:name"``. The process calls it with the numbers that the descriptors
            have there, then with the arguments.
        arguments: plain JSON data.
        descriptors: open descriptors of this process, which the new one gets.
        output: a file for the standard output of the process; None: that of this process.

    Raises:
        ConfigError: this Python cannot start interpreters.
        OSError: no process can be started.

    Attributes:
        pid: its process id.
        returncode: None until :meth:`poll` saw its end; then as in :class:`subprocess.Popen`.
    """

    #: The server, which is kept while the process runs: the process ends with it.
    _server: _Server

    #: Receives the exit status.
    _channel: socket.socket

    def __init__(
        self,
        function: str,
        arguments: Sequence[Any] = (),
        descriptors: Sequence[int] = (),
        output: Any = None,
    ) -> None:
        self.returncode: int | None = None
        task: dict[str, Any] = {
            "function": function,
            "arguments": list(arguments),
            "path": [os.fspath(path) for path in sys.path],
            "folder": _current_folder(),
            "processors": _processors(),
        }
        output_descriptor = 1 if output is None else output.fileno()
        with open(os.devnull, "wb") as nothing:
            standard_output = _open_or(output_descriptor, otherwise=nothing.fileno())
            standard_error = _open_or(2, otherwise=nothing.fileno())
            start = _start([standard_output, standard_error, *descriptors])
        self._server = start.server
        self._channel = start.channel
        self.pid = start.pid
        task["changes"] = self._server.changes()
        _send_all(self._channel, task)

    def poll(self, seconds: float = 0.0) -> int | None:
        """Return the exit status of the process.

        Args:
            seconds: how long to wait for its end.

        Returns:
            The exit status, or the negative number of the signal that killed the process; None if
            it still runs after that time.
        """
        if self.returncode is None and is_readable(self._channel, seconds):
            status = b""
            with suppress_own(ConnectionError):
                # MSG_PEEK: another thread may ask as well.
                status = self._channel.recv(NUMBER.size, socket.MSG_PEEK)
            if status:
                (self.returncode,) = NUMBER.unpack(status)
            else:
                # Its server has ended, and every process ends with its server.
                self.returncode = -signal.SIGKILL
            self._channel.close()
        return self.returncode

    def kill(self) -> None:
        """End it at once."""
        if self.poll() is None:
            with suppress_own(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def forget(self) -> None:
        """Release the process without waiting for its exit status.

        This is for a process that was killed, and in a fork of this process for one of the parent.
        """
        self.returncode = 0
        self._channel.close()


def hold(modules: Iterable[str]) -> None:
    """Let the server import modules, which later processes then have, without waiting for it.

    The server is started if necessary. It skips a module whose import fails.
    """
    with suppress_own(OSError), _lock:
        server = _running_server()
        new_modules = sorted(set(modules) - server.held)
        if new_modules:
            server.held.update(new_modules)
            with server.connect(b"hold") as channel:
                _send_all(channel, new_modules)


class _Server:
    """This process's end of a server.

    Raises:
        OSError: it cannot be started.

    Attributes:
        pid: its process id.
        held: the modules that it was asked to import.
    """

    held: set[str]

    #: The environment that the server has.
    _environment: dict[str, str]

    #: Takes requests, each with the descriptor of a new channel.
    _connection: socket.socket

    _process: subprocess.Popen[bytes]

    def __init__(self) -> None:
        self.held = set()
        self._environment = dict(os.environ)
        with interrupts_deferred():
            self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                self._process = _start_interpreter(theirs.fileno(), self._environment)
        self._connection.settimeout(_ANSWER_SECONDS)
        self.pid = self._process.pid
        _servers.add(self)

    def changes(self) -> dict[str, str | None]:
        """Return the variables of the environment that have changed since it started.

        The value of a variable that was removed is None.
        """
        before = self._environment
        now = os.environ
        changes = {}
        for name in before.keys() | now.keys():
            if before.get(name) != now.get(name):
                changes[name] = now.get(name)
        return changes

    def fork(self, descriptors: Sequence[int]) -> _Start:
        """Fork a process, which waits for its task on its channel.

        Raises:
            ConnectionError, TimeoutError: the server has ended, or does not answer.
            OSError: it cannot fork.
        """
        with _lock:
            channel = self.connect(b"fork", descriptors)
        try:
            answer = b""
            if is_readable(channel, _ANSWER_SECONDS):
                answer = channel.recv(NUMBER.size)
            if not answer:
                raise ConnectionError(f"the fork server, process {self.pid}, was killed or stopped")
            (pid,) = NUMBER.unpack(answer)
            if pid < 0:
                raise OSError(-pid, os.strerror(-pid))
        except BaseException:
            channel.close()
            raise
        return _Start(self, channel, pid)

    def connect(self, request: bytes, descriptors: Sequence[int] = ()) -> socket.socket:
        """Return a new channel to the server, which reads ``request`` first."""
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
        self._process.returncode = 0  # otherwise Popen warns that nobody waited for the process

    def __del__(self) -> None:
        if hasattr(self, "_process"):
            self.close()


class _Start(NamedTuple):
    """A process that was just forked, and waits for its task."""

    server: _Server
    channel: socket.socket
    pid: int


_servers: weakref.WeakSet[_Server] = weakref.WeakSet()
_server: _Server | None = None


def _start_interpreter(descriptor: int, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start the interpreter of a server.

    Args:
        descriptor: of the socket on which the server takes requests.
        environment: its variables.
    """
    # Options such as -W and -X dev; multiprocessing asks for them in the same way.
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    command = [sys.executable]
    command += flags
    command += ["-u", "-c", _PROGRAM, str(descriptor)]
    command += [os.fspath(path) for path in sys.path]
    return subprocess.Popen(  # noqa: S603  # our own program
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env=environment,
        pass_fds=[descriptor],
        start_new_session=True,  # Ctrl-C does not reach it
    )


def _running_server() -> _Server:
    """Return the server, which is started if none runs, or if the environment needs another one.

    Raises:
        ConfigError: this Python cannot start interpreters.
        OSError: the server cannot be started.
    """
    global _server
    with _lock:
        if _server is None or _needs_another_server(_server):
            if not sys.executable or getattr(sys, "frozen", False):
                raise ConfigError(
                    "this program has no Python interpreter that other processes could run "
                    "(sys.executable)"
                )
            _server = _Server()  # processes of the former one keep it
        return _server


def _needs_another_server(server: _Server) -> bool:
    """Return whether a variable has changed that the server's libraries read at their import."""
    return any(_READ_AT_IMPORT.fullmatch(name) for name in server.changes())


def _start(descriptors: Sequence[int]) -> _Start:
    """Fork a process from the running server, or from a new one if that does not answer."""
    global _server
    server = _running_server()
    try:
        return server.fork(descriptors)
    except (ConnectionError, TimeoutError) as error:
        if is_from_signal_handler(error):
            raise
        with _lock:
            if _server is server:  # if it was only stopped, its processes keep it
                _server = None
    return _running_server().fork(descriptors)


def _send_all(channel: socket.socket, data: Any) -> None:
    """Send JSON data, and close this end for writing, so that the reader sees their end."""
    with suppress_own(ConnectionError):  # its reader was killed, which its status says
        try:
            channel.sendall(json.dumps(data).encode())
        finally:
            channel.shutdown(socket.SHUT_WR)  # a fork of this process may hold the socket open


def is_readable(channel: Any, seconds: float) -> bool:
    """Return whether a socket can be read, or was closed by its other end, within some seconds."""
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _current_folder() -> str | None:
    with suppress_own(OSError):
        return os.getcwd()
    return None  # it was removed


def _processors() -> list[int]:
    """Return the processors that this process may use; none if the system does not tell."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return []


def _open_or(descriptor: int, *, otherwise: int) -> int:
    """Return ``descriptor`` if it is open, else ``otherwise``."""
    try:
        os.fstat(descriptor)
    except OSError as error:
        if is_from_signal_handler(error):
            raise
        return otherwise
    return descriptor


def _end_all() -> None:
    for server in list(_servers):
        server.close()


def _forget_servers() -> None:
    global _server
    for server in list(_servers):
        server.forget()
    _servers.clear()
    _server = None


os.register_at_fork(after_in_child=_forget_servers)
# The methods are in C, where Ctrl-C cannot come between and leave the lock locked.
os.register_at_fork(
    before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release
)
atexit.register(_end_all)
