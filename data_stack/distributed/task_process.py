"""The program of a process that attempts tasks until nobody is there to want them."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NoReturn

from data_stack.distributed.attempts import Failure, PackedWork, attempted, unpacked
from data_stack.loader.workers.channel import Channel

__all__ = ["main"]

_LOOK_SECONDS = 0.25
_PR_SET_PDEATHSIG = 1  # which signal to get when the thread that started this process ends, see prctl(2)


def main(channel: int, parent: int, is_of_main_thread: int) -> NoReturn:
    """Attempt tasks for the process that started this one.

    Args:
        channel: descriptor of the socket to it.
        parent: process id of the one that started this one.
        is_of_main_thread: whether that process's main thread did, which lives as long as the process.
    """
    # Ctrl-C goes to all processes of a terminal; it is the parent's to say what becomes of its tasks.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if is_of_main_thread and sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=_end_with, args=(parent,), name="parent", daemon=True).start()
    _attempt_tasks(Channel(socket.socket(fileno=channel)), os.getpid())
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(0)  # threads of user code are not waited for


def _attempt_tasks(channel: Channel, pid: int) -> None:
    poll = select.poll()
    poll.register(channel.fileno(), select.POLLIN)
    messages: deque[tuple[Any, ...]] = deque()
    work: Callable[[Any], Any] | None = None
    packed: PackedWork | None = None

    def unpacked_once() -> Callable[[Any], Any]:
        nonlocal work
        if work is None and packed is not None:
            work = unpacked(packed)
        return work  # type: ignore[return-value]  # the work comes before the first task

    while not channel.is_ended:
        poll.modify(channel.fileno(), select.POLLIN | (select.POLLOUT if channel.has_outgoing else 0))
        if not messages:
            poll.poll()
        channel.flush()
        messages.extend(channel.receive())
        if not messages:
            continue
        kind, *content = messages.popleft()
        if kind == "work":
            packed, sys.argv[:] = content
        else:
            result, failure = attempted(unpacked_once, content[0])
            if os.getpid() != pid:
                os._exit(1)  # a fork that user code made and let come back: the task is the other one's
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
            try:
                channel.send((result, failure))
            except Exception as error:  # noqa: BLE001  # whatever an object raises instead of being pickled
                channel.send((None, Failure(f"gave what cannot be sent back: {type(error).__name__}: {error}")))


def _end_with(parent: int) -> None:
    """End this process when the one that started it is gone: whoever takes its place does the work again."""
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os._exit(1)
