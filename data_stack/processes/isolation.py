"""Runs a function of ours on a file's bytes in a separate process, which may crash, hang or exhaust its memory limit.

Each run is a fork of the fork server (:mod:`data_stack.processes.fork_server`). It reads the bytes from this process, by
position, and returns plain JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, Pipe
from typing import Any, Final

from data_stack.exception import DatasetFileCorruptError, DataStackError, RequestLimitError
from data_stack.processes.fork_server import ForkedProcess, hold
from data_stack.util.interrupts import is_from_signal_handler
from data_stack.util.request_limit import MAX_REQUEST_BYTES, limit_bytes

ISOLATION: Final = "DATA_STACK_ISOLATION"
"""The environment variable that disables isolation (``off``): functions then run in this process."""

#: Timeout of messages. A run has a limit of processor time, which does not expire on a busy machine.
_SILENT_SECONDS: Final = 120.0
_MAX_READ_BYTES: Final = 64 << 20
_MAX_MESSAGE_BYTES: Final = 16 << 20
#: For the libraries themselves.
_MIN_MEMORY_BYTES: Final = 256 << 20


def run_apart(
    function: str,
    arguments: Sequence[Any],
    *,
    name: str,
    size: int,
    read_at: Callable[[int, int], bytes],
    seconds: float = 10.0,
) -> Any:
    """Call ``function`` on a file in another process.

    Args:
        function: ``"module:name"`` of data_stack; called with a seekable binary file and the arguments, returns plain JSON data.
        arguments: plain JSON data.
        name: of the file, for messages.
        size: of the file, in bytes.
        read_at: returns ``size`` bytes from an offset on; called in this process, and its errors pass through.
        seconds: limit of processor time, of the function and of this thread while it reads for the function.

    Raises:
        DatasetFileCorruptError: the function raised an error of data_stack, or its process crashed or exceeded a limit.
        OSError: no process can be started.
    """
    job = {
        "function": function,
        "arguments": list(arguments),
        "name": name,
        "size": size,
        "seconds": seconds,
    }
    channel, theirs = Pipe()
    with channel:
        with theirs:
            hold([function.partition(":")[0]])  # once for all runs
            process = ForkedProcess(
                f"{__name__}:_run", [{**job, "limit_bytes": limit_bytes()}], [theirs.fileno()]
            )
        try:
            return _converse(channel, name, size, read_at, seconds)
        finally:
            process.kill()  # a parser that turns errors of reading into zeros would go on
            process.forget()


def _converse(
    channel: Connection, name: str, size: int, read_at: Callable[[int, int], bytes], seconds: float
) -> Any:
    """Serve the reads of the process until it has a result."""
    begin, answer = time.thread_time(), None
    while True:
        try:
            if answer is not None:
                channel.send_bytes(answer)
            message = json.loads(_receive(channel, _MAX_MESSAGE_BYTES))
            kind, content = message["kind"], message["content"]
            if kind == "read":
                offset, n_bytes = (min(max(0, int(number)), size) for number in content)
                if float(message["seconds"]) + time.thread_time() - begin > seconds:
                    raise EOFError
        except (EOFError, OSError, ValueError, TypeError, LookupError) as error:
            if is_from_signal_handler(error):
                raise
            raise DatasetFileCorruptError(
                f"{name!r} cannot be read: the process that parsed it crashed, or took more than {seconds:.0f} s of "
                f"processor time or {limit_bytes():,} bytes of memory. It is damaged or malicious. Fetch it again; if you "
                f"trust it, set the environment variable {ISOLATION}=off"
            ) from error
        if kind == "error":
            raise DatasetFileCorruptError(str(content))
        if kind != "read":
            return content
        answer = read_at(offset, min(n_bytes, _MAX_READ_BYTES))


def _receive(channel: Connection, most_bytes: int) -> bytes:
    if not channel.poll(_SILENT_SECONDS):
        raise EOFError
    return channel.recv_bytes(most_bytes)


# ---------------------------------------------------------------------- in the helper, and in its forks


class _RemoteBytes:
    """The file as a binary file object, read from the parent process."""

    def __init__(self, channel: Connection, name: str, size: int) -> None:
        self._channel, self.name, self._size, self._position = channel, name, size, 0

    def read(self, size: int = -1) -> bytes:
        size = max(0, min(self._size - self._position, size if size >= 0 else self._size))
        parts = []
        while size:
            _say(self._channel, "read", [self._position, size])
            part = _receive(self._channel, _MAX_READ_BYTES)
            if not part:
                break
            parts.append(part)
            self._position += len(part)
            size -= len(part)
        return b"".join(parts)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + (0, self._position, self._size)[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


def _say(channel: Connection, kind: str, content: Any) -> None:
    channel.send_bytes(
        json.dumps({"kind": kind, "content": content, "seconds": time.process_time()}).encode()
    )


def _run(descriptor: int, job: dict[str, Any]) -> None:
    with open(os.devnull, "wb") as nothing:  # libraries report damage at length
        for output in (1, 2):
            os.dup2(nothing.fileno(), output)
    channel = Connection(descriptor)
    module, _, name = job["function"].partition(":")
    function = getattr(importlib.import_module(module), name)
    os.environ[MAX_REQUEST_BYTES] = str(job["limit_bytes"])
    _limit(job["seconds"], job["limit_bytes"])
    try:  # any other error closes the connection, which the parent notices
        _say(
            channel,
            "result",
            function(_RemoteBytes(channel, job["name"], job["size"]), *job["arguments"]),
        )
    except RequestLimitError:  # not damage: reading the file raises it again
        _say(channel, "result", None)
    except DataStackError as error:
        _say(channel, "error", str(error)[:4096])
    except MemoryError:
        _say(
            channel,
            "error",
            f"{job['name']!r} needs more than {job['limit_bytes']:,} bytes of memory to be read",
        )


#: What this process maps at most where its size cannot be read; most of that is shared libraries.
_ASSUMED_BYTES = 8 << 30


def mapped_bytes(statm: str = "/proc/self/statm") -> int:
    """The size of the address space of this process in bytes, from which a limit is counted.

    Args:
        statm: a file whose first number is that size in pages.
    """
    try:
        with open(statm, encoding="ascii") as file:
            return int(file.read().split()[0]) * resource.getpagesize()
    except OSError:  # /proc is not mounted in a chroot or a small container, and macOS has none
        return _ASSUMED_BYTES


def _limit(seconds: float, memory_bytes: int) -> None:
    n_bytes = min(mapped_bytes() + max(memory_bytes, _MIN_MEMORY_BYTES), sys.maxsize)
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu_seconds = int(used.ru_utime + used.ru_stime + seconds + 1)
    for kind, limit in (
        (resource.RLIMIT_AS, n_bytes),
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        _, most = resource.getrlimit(kind)
        least = limit if most == resource.RLIM_INFINITY else min(limit, most)
        resource.setrlimit(kind, (least, least))
