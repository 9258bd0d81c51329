"""The fork server itself: an interpreter that imports modules and forks processes on request.

:mod:`data_stack.processes.fork_server` starts it and talks to it.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
import warnings
from collections.abc import Iterable
from typing import Any, Final, NoReturn

from data_stack.processes.fork_server import NUMBER
from data_stack.processes.seeding import seed_generators

#: A request brings its channel, two outputs and the descriptors of the process.
_MAX_DESCRIPTORS: Final = 16

_MAX_REQUEST_BYTES: Final = 16
_CLOSE_ON_EXEC: Final = getattr(socket, "MSG_CMSG_CLOEXEC", 0)

#: Selects the signal that this process receives when its parent ends, see prctl(2).
_PR_SET_PDEATHSIG: Final = 1


def serve(descriptor: int) -> None:
    """Fork a process or import modules for each request, until the other end is closed.

    Args:
        descriptor: of the socket on which requests arrive.
    """
    _Service(socket.socket(fileno=descriptor)).run()


class _Service:
    """Answers requests, and reports the end of the processes that it forked.

    Args:
        control: the socket on which requests arrive.
    """

    #: Requests arrive here.
    _control: socket.socket

    #: The channels of the processes that run, by process id.
    _running: dict[int, socket.socket]

    #: A pair of sockets: a byte arrives at the first one when a process has ended.
    _wakeup: socket.socket
    _signal_end: socket.socket

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._running = {}
        self._wakeup, self._signal_end = socket.socketpair()
        self._signal_end.setblocking(False)

    def run(self) -> NoReturn:
        """Answer requests until the other end of the control socket is closed."""
        # When a process ends, the signal SIGCHLD makes Python write a byte to the wakeup socket.
        signal.signal(signal.SIGCHLD, _do_nothing)
        signal.set_wakeup_fd(self._signal_end.fileno(), warn_on_full_buffer=False)
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        poll.register(self._wakeup, select.POLLIN)
        while True:
            ready = {handle for handle, _ in poll.poll()}
            if self._wakeup.fileno() in ready:
                self._wakeup.recv(4096)
                self._report_ended()
            if self._control.fileno() in ready:
                self._answer_request()

    def _answer_request(self) -> None:
        """Receive a request, and fork a process or import modules."""
        kind = b""
        descriptors: list[int] = []
        with contextlib.suppress(ConnectionError):
            kind, descriptors, _, _ = socket.recv_fds(
                self._control, _MAX_REQUEST_BYTES, _MAX_DESCRIPTORS, _CLOSE_ON_EXEC
            )
        if not kind:
            os._exit(0)  # the process that the server works for has ended
        channel = socket.socket(fileno=descriptors[0])
        if kind == b"hold":
            _import_modules(channel)
        else:
            self._fork(channel, descriptors[1:])

    def _fork(self, channel: socket.socket, descriptors: list[int]) -> None:
        """Fork a process, and send its id, or a negative error number.

        Args:
            channel: of the new process.
            descriptors: two outputs, then those of the process.
        """
        server_pid = os.getpid()
        try:
            with warnings.catch_warnings():
                # Libraries have threads, which they restart in forks.
                warnings.simplefilter("ignore")
                pid = os.fork()
            if pid == 0:
                self._leave()
                _run_task(channel, descriptors, server_pid)
            self._running[pid] = channel
        except OSError as error:
            pid = -(error.errno or errno.EAGAIN)
        for descriptor in descriptors:
            os.close(descriptor)
        with contextlib.suppress(OSError):  # nobody waits for it
            channel.sendall(NUMBER.pack(pid))
        if pid < 0:
            channel.close()

    def _leave(self) -> None:
        """In the new process, release what belongs to the server."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._control.close()
        self._wakeup.close()
        self._signal_end.close()
        for channel in self._running.values():
            channel.close()

    def _report_ended(self) -> None:
        """Send the exit status of each process that has ended."""
        with contextlib.suppress(ChildProcessError):  # no process is left
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:  # all others still run
                    return
                channel = self._running.pop(pid, None)
                if channel is None:
                    continue
                with channel, contextlib.suppress(OSError):  # nobody waits for it
                    channel.sendall(NUMBER.pack(os.waitstatus_to_exitcode(status)))


def _do_nothing(*_: Any) -> None:
    """Handle a signal that only has to wake the server up."""


def _import_modules(channel: socket.socket) -> None:
    """Import the modules whose names arrive; skip those whose import fails."""
    names: Iterable[str] = ()
    with channel, contextlib.suppress(ValueError):  # the names are cut off
        names = _read_all(channel)
    # Modules that this process has are left alone: it no longer shares a page that it touches with
    # its forks.
    new_names = [name for name in names if name not in sys.modules]
    if not new_names:
        return
    for name in new_names:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    # Otherwise garbage collections in forks would copy the pages of all objects.
    gc.collect()
    gc.freeze()


def _read_all(channel: socket.socket) -> Any:
    """Return the JSON data that arrives until the other end closes.

    Raises:
        ValueError: they are cut off.
    """
    with channel.makefile("rb") as file:
        return json.load(file)


def _run_task(channel: socket.socket, descriptors: list[int], server_pid: int) -> NoReturn:
    """In the new process, run the function that it was started for, and exit."""
    status = 1
    try:
        os.setsid()
        _end_with(server_pid)
        standard_output, standard_error, *task_descriptors = descriptors
        _replace_descriptor(1, standard_output)
        _replace_descriptor(2, standard_error)
        with channel:
            try:
                task = _read_all(channel)
            except (OSError, ValueError):  # Ctrl-C in the other process
                os._exit(1)
        _take_over_settings(task)
        seed_generators(os.urandom(16))
        module_name, _, function_name = task["function"].partition(":")
        function = getattr(importlib.import_module(module_name), function_name)
        function(*task_descriptors, *task["arguments"])
        status = 0
    except BaseException:  # noqa: BLE001  # the parent sees the status
        traceback.print_exc()
    finally:
        os._exit(status)


def _replace_descriptor(number: int, descriptor: int) -> None:
    """Give an open file another descriptor, whose old file is closed."""
    os.dup2(descriptor, number)
    os.close(descriptor)


def _take_over_settings(task: dict[str, Any]) -> None:
    """Set what the process that asked for the task has: environment, path, folder, processors."""
    changes = task["changes"]
    for name, value in changes.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    sys.path[:] = task["path"]
    if task["folder"] is not None:
        os.chdir(task["folder"])
    if task["processors"]:
        os.sched_setaffinity(0, task["processors"])
    if "TZ" in changes and hasattr(time, "tzset"):
        time.tzset()


def _end_with(parent_pid: int) -> None:
    """Let this process end when its parent does.

    On other systems than Linux it ends when its channel is closed.
    """
    if sys.platform != "linux":
        return
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    has_parent_ended_before = os.getppid() != parent_pid
    if has_parent_ended_before:
        os._exit(1)
