"""The program of the fork server (:mod:`data_stack.processes.fork_server`)."""

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
import struct
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterable
from typing import Any, Final, NoReturn

STARTED: Final = struct.Struct("=ii")
"""The first message about a process: its id, or 0 and an error number."""

ENDED: Final = struct.Struct("=i")
"""The second one: its exit status."""

MAX_DESCRIPTORS: Final = 16
_CLOSE_ON_EXEC: Final = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_PR_SET_PDEATHSIG: Final = 1  # selects the signal to receive when the parent ends, see prctl(2)


def serve(descriptor: int) -> None:
    """Fork for each request until the other end is closed."""
    control = socket.socket(fileno=descriptor)
    wakeup, woken = socket.socketpair()
    for each in (wakeup, woken):
        each.setblocking(False)
    signal.signal(signal.SIGCHLD, _do_nothing)  # so that the end of a process is noticed at once
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
            kind, received, _, _ = socket.recv_fds(control, 16, MAX_DESCRIPTORS, _CLOSE_ON_EXEC)
        if not kind:
            os._exit(0)
        channel = socket.socket(fileno=received[0])
        if kind == b"hold":
            with channel, contextlib.suppress(ValueError):
                _import_all(_read_all(channel))
        else:
            _fork(channel, received[1:], [control, wakeup, woken, *running.values()], running)


def _do_nothing(*_: Any) -> None:
    pass


def _reap(running: dict[int, socket.socket]) -> None:
    with contextlib.suppress(ChildProcessError):
        while (end := os.waitpid(-1, os.WNOHANG))[0]:
            if (channel := running.pop(end[0], None)) is not None:
                with channel, contextlib.suppress(OSError):  # no one waits for it
                    channel.sendall(ENDED.pack(os.waitstatus_to_exitcode(end[1])))


def _read_all(channel: socket.socket) -> Any:
    """The JSON data that arrives until the other end closes.

    Raises:
        ValueError: the data is cut off.
    """
    with channel.makefile("rb") as file:
        return json.load(file)


def _import_all(modules: Iterable[str]) -> None:
    for name in modules:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # else collections in forks would copy the pages of all objects


def _fork(channel: socket.socket, received: list[int], own: list[socket.socket], running: dict[int, socket.socket]) -> None:
    server, answer = os.getpid(), (0, 0)
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
        answer, running[pid] = (pid, 0), channel
    except OSError as error:
        answer = (0, error.errno or errno.EAGAIN)
    for descriptor in received:
        os.close(descriptor)
    with contextlib.suppress(OSError):  # no one waits for it
        channel.sendall(STARTED.pack(*answer))
    if not answer[0]:
        channel.close()


def _read_request(channel: socket.socket) -> Any:
    try:
        return _read_all(channel)
    except (OSError, ValueError):  # Ctrl-C in the other process
        os._exit(1)


def _run(channel: socket.socket, received: list[int], server: int) -> NoReturn:
    status = 1
    try:
        os.setsid()
        end_with(server)
        for number, output in enumerate(received[:2], 1):
            os.dup2(output, number)
            os.close(output)
        with channel:
            request = _read_request(channel)
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
    except BaseException:  # noqa: BLE001  # the parent sees the status
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
