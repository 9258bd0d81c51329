"""Runs a function of ours on a file's bytes in a separate process.

The process may crash, hang or exhaust its memory limit. It is a fork of the fork server
(:mod:`data_stack.processes.fork_server`), reads the bytes from this process, by position, and
returns plain JSON.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from typing import Any, Final

from data_stack.exception import DatasetFileCorruptError, DataStackError, RequestLimitError
from data_stack.processes.fork_server import ForkedProcess, hold
from data_stack.util.interrupts import is_from_signal_handler
from data_stack.util.request_limit import MAX_REQUEST_BYTES, limit_bytes

ISOLATION: Final = "DATA_STACK_ISOLATION"
"""The environment variable that disables isolation (``off``): functions then run in this process."""

#: Timeout of messages. A run has a limit of processor time, which does not expire on a busy machine.
_TIMEOUT_SECONDS: Final = 120.0

_MAX_READ_BYTES: Final = 64 << 20
_MAX_MESSAGE_BYTES: Final = 16 << 20
_MAX_ERROR_CHARACTERS: Final = 4096

#: The memory that the libraries themselves need.
_MIN_MEMORY_BYTES: Final = 256 << 20

#: What a process maps at most where its size cannot be read; most of that is shared libraries.
_ASSUMED_MAPPED_BYTES: Final = 8 << 30


def run_apart(
    function: str,
    arguments: Sequence[Any],
    *,
    name: str,
    size: int,
    read_at: Callable[[int, int], bytes],
    seconds: float = 10.0,
) -> Any:
    """Call a function on a file in another process, and return its result.

    Args:
        function: ``"module:name"`` of data_stack; it is called with a seekable binary file and the
            arguments, and returns plain JSON data.
        arguments: plain JSON data.
        name: of the file, for messages.
        size: of the file, in bytes.
        read_at: returns ``size`` bytes from an offset on; it is called in this process, and its
            errors pass through.
        seconds: limit of processor time: that of the function, and that of this thread while it
            reads for the function.

    Raises:
        DatasetFileCorruptError: the function raised an error of data_stack, or its process crashed
            or exceeded a limit.
        OSError: no process can be started.
    """
    job = {
        "function": function,
        "arguments": list(arguments),
        "name": name,
        "size": size,
        "seconds": seconds,
        "limit_bytes": limit_bytes(),
    }
    module_name, _, _ = function.partition(":")
    channel, theirs = Pipe()
    with channel:
        with theirs:
            hold([module_name])  # one import for all runs
            process = ForkedProcess(f"{__name__}:_run", [job], [theirs.fileno()])
        try:
            return _Conversation(channel, name, size, read_at, seconds).result()
        finally:
            process.kill()  # a parser that takes errors of reading for zeros would go on
            process.forget()


def is_switched_off() -> bool:
    """Return whether the environment disables isolation, for files that the user trusts."""
    return os.environ.get(ISOLATION, "").strip().lower() in ("off", "0")


def run_on_bytes(
    function: str, arguments: Sequence[Any], data: bytes, *, name: str, seconds: float = 10.0
) -> Any:
    """Call a function on bytes of strangers in another process, and return its result.

    If isolation is switched off, the function is called in this process.

    Args:
        function: ``"module:name"``; it is called with a seekable binary file of the bytes and the
            arguments, and returns plain JSON data. It raises errors of data_stack only.
        arguments: plain JSON data.
        data: the bytes.
        name: of the bytes, for messages.
        seconds: limit of processor time.

    Raises:
        DatasetFileCorruptError: the function raised an error of data_stack, or its process crashed
            or exceeded a limit of time or memory.
        OSError: no process can be started.
    """
    if is_switched_off():
        return _import_function(function)(io.BytesIO(data), *arguments)

    def read_at(start: int, n_bytes: int) -> bytes:
        return data[start : start + n_bytes]

    return run_apart(
        function, arguments, name=name, size=len(data), read_at=read_at, seconds=seconds
    )


def _import_function(function: str) -> Callable[..., Any]:
    """Return the function ``"module:name"``."""
    module_name, _, function_name = function.partition(":")
    imported: Callable[..., Any] = getattr(importlib.import_module(module_name), function_name)
    return imported


@dataclass(frozen=True)
class _Conversation:
    """Serves the reads of a process until it has a result."""

    channel: Connection
    name: str
    size: int
    read_at: Callable[[int, int], bytes]
    seconds: float

    def result(self) -> Any:
        """Return the result of the function.

        Raises:
            DatasetFileCorruptError: as :func:`run_apart`.
        """
        started_at = time.thread_time()
        data_to_send: bytes | None = None
        while True:
            try:
                if data_to_send is not None:
                    self.channel.send_bytes(data_to_send)
                message = json.loads(_receive(self.channel, _MAX_MESSAGE_BYTES))
                kind = message["kind"]
                content = message["content"]
                if kind == "read":
                    offset, n_bytes = self._check_read(content)
                    own_seconds = time.thread_time() - started_at
                    if float(message["seconds"]) + own_seconds > self.seconds:
                        raise EOFError
            except (EOFError, OSError, ValueError, TypeError, LookupError) as error:
                if is_from_signal_handler(error):
                    raise
                raise self._broken() from error
            if kind == "error":
                raise DatasetFileCorruptError(str(content))
            if kind != "read":
                return content
            # Outside of ``try``: errors of reading are not damage.
            data_to_send = self.read_at(offset, min(n_bytes, _MAX_READ_BYTES))

    def _check_read(self, content: Any) -> tuple[int, int]:
        """Return the offset and number of bytes that a process asks for, both within the file."""
        offset, n_bytes = content
        return self._clip(offset), self._clip(n_bytes)

    def _clip(self, number: Any) -> int:
        return min(max(0, int(number)), self.size)

    def _broken(self) -> DatasetFileCorruptError:
        return DatasetFileCorruptError(
            f"{self.name!r} cannot be read: the process that parsed it crashed, or took more than "
            f"{self.seconds:.0f} s of processor time or {limit_bytes():,} bytes of memory. It is "
            f"damaged or malicious. Fetch it again; if you trust it, set the environment variable "
            f"{ISOLATION}=off"
        )


def _receive(channel: Connection, max_bytes: int) -> bytes:
    if not channel.poll(_TIMEOUT_SECONDS):
        raise EOFError
    return channel.recv_bytes(max_bytes)


# In the other process


def _run(descriptor: int, job: dict[str, Any]) -> None:
    _discard_output()
    channel = Connection(descriptor)
    function = _import_function(job["function"])
    os.environ[MAX_REQUEST_BYTES] = str(job["limit_bytes"])
    _limit_resources(job["seconds"], job["limit_bytes"])
    file = _RemoteFile(channel, job["name"], job["size"])
    try:
        result = function(file, *job["arguments"])
        _send(channel, "result", result)
    except RequestLimitError:
        # This is not damage: reading the file in the other process raises it again.
        _send(channel, "result", None)
    except DataStackError as error:
        _send(channel, "error", str(error)[:_MAX_ERROR_CHARACTERS])
    except MemoryError:
        _send(
            channel,
            "error",
            f"{job['name']!r} needs more than {job['limit_bytes']:,} bytes of memory to be read",
        )
    # Any other error ends the process and closes the channel, which the other process notices.


class _RemoteFile:
    """The file as a binary file object, read from the process that called :func:`run_apart`."""

    def __init__(self, channel: Connection, name: str, size: int) -> None:
        self.name = name
        self._channel = channel
        self._size = size
        self._position = 0

    def read(self, size: int = -1) -> bytes:
        n_left = self._size - self._position
        if size >= 0:
            n_left = min(n_left, size)
        parts = []
        while n_left > 0:
            _send(self._channel, "read", [self._position, n_left])
            part = _receive(self._channel, _MAX_READ_BYTES)
            if not part:
                break
            parts.append(part)
            self._position += len(part)
            n_left -= len(part)
        return b"".join(parts)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_CUR:
            offset += self._position
        elif whence == os.SEEK_END:
            offset += self._size
        self._position = offset
        return self._position

    def tell(self) -> int:
        return self._position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


def _send(channel: Connection, kind: str, content: Any) -> None:
    message = {"kind": kind, "content": content, "seconds": time.process_time()}
    channel.send_bytes(json.dumps(message).encode())


def _discard_output() -> None:
    """Discard what libraries print: they report damage at length."""
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), 1)
        os.dup2(nothing.fileno(), 2)


def mapped_bytes(statm: str = "/proc/self/statm") -> int:
    """Return the size of the address space of this process, from which a limit is counted.

    Args:
        statm: a file whose first number is that size in pages.
    """
    try:
        with open(statm, encoding="ascii") as file:
            n_pages = int(file.read().split()[0])
    except OSError:  # /proc is not mounted in a chroot or a small container, and macOS has none
        return _ASSUMED_MAPPED_BYTES
    return n_pages * resource.getpagesize()


def _limit_resources(seconds: float, memory_bytes: int) -> None:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cpu_seconds = int(usage.ru_utime + usage.ru_stime + seconds + 1)
    max_mapped_bytes = mapped_bytes() + max(memory_bytes, _MIN_MEMORY_BYTES)
    _lower_limit(resource.RLIMIT_AS, min(max_mapped_bytes, sys.maxsize))
    _lower_limit(resource.RLIMIT_CPU, cpu_seconds)
    _lower_limit(resource.RLIMIT_FSIZE, 0)
    _lower_limit(resource.RLIMIT_CORE, 0)


def _lower_limit(kind: int, limit: int) -> None:
    _, hard_limit = resource.getrlimit(kind)
    if hard_limit != resource.RLIM_INFINITY:
        limit = min(limit, hard_limit)
    resource.setrlimit(kind, (limit, limit))
