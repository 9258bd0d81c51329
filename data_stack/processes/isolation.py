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
from typing import Any, Final, NamedTuple

from data_stack.exception import DatasetFileCorruptError, DataStackError, RequestLimitError
from data_stack.processes.fork_server import ForkedProcess, hold
from data_stack.util.interrupts import is_from_signal_handler
from data_stack.util.request_limit import MAX_REQUEST_BYTES, limit_bytes

ISOLATION: Final = "DATA_STACK_ISOLATION"
"""The environment variable that disables isolation if it is ``off``.

Functions then run in this process.
"""

#: How long a message is waited for. The function itself has a limit of processor time, which does
#: not expire on a busy machine.
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
        read_at: takes an offset and a number of bytes, and returns these bytes. It is called in
            this process, and its errors pass through.
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
            # A parser that takes errors of reading for zeros would go on.
            process.kill()
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


class _Read(NamedTuple):
    """Bytes of the file that the other process asks for.

    Attributes:
        offset: where they begin, within the file.
        n_bytes: how many, not more than the file has, nor than fit in one message.
    """

    offset: int
    n_bytes: int


class _Result(NamedTuple):
    """What the function returned."""

    value: Any


@dataclass(frozen=True)
class _Conversation:
    """Serves the reads of a process until it has a result.

    The other process may send anything, as the file may have taken it over.

    Attributes:
        channel: the channel to the process.
        name: the name of the file, for messages.
        size: the size of the file in bytes.
        read_at: takes an offset and a number of bytes, and returns these bytes.
        seconds: limit of processor time.
    """

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
        message = self._exchange(None, started_at)
        while isinstance(message, _Read):
            # Not in _exchange(): errors of reading are not damage.
            data = self.read_at(message.offset, message.n_bytes)
            message = self._exchange(data, started_at)
        return message.value

    def _exchange(self, data: bytes | None, started_at: float) -> _Read | _Result:
        """Send the bytes that the process asked for, and receive its next message.

        Args:
            data: the bytes; None before its first message.
            started_at: when the conversation began, in processor seconds of this thread.

        Raises:
            DatasetFileCorruptError: the function failed, its process has ended, took too long, or
                sent something else than a message.
        """
        try:
            if data is not None:
                self.channel.send_bytes(data)
            message = json.loads(_receive(self.channel, _MAX_MESSAGE_BYTES))
            kind = message["kind"]
            content = message["content"]
            if kind == "read":
                self._check_time(float(message["seconds"]), time.thread_time() - started_at)
                return self._parse_read(content)
        except (EOFError, OSError, ValueError, TypeError, LookupError) as error:
            if is_from_signal_handler(error):
                raise
            raise self._broken_error() from error
        if kind == "error":
            raise DatasetFileCorruptError(str(content))
        return _Result(content)

    def _check_time(self, function_seconds: float, own_seconds: float) -> None:
        """Check the processor time of the function and of this thread.

        Raises:
            EOFError: it exceeds the limit.
        """
        if function_seconds + own_seconds > self.seconds:
            raise EOFError

    def _parse_read(self, content: Any) -> _Read:
        offset, n_bytes = content
        return _Read(self._clip(offset), min(self._clip(n_bytes), _MAX_READ_BYTES))

    def _clip(self, number: Any) -> int:
        return min(max(0, int(number)), self.size)

    def _broken_error(self) -> DatasetFileCorruptError:
        return DatasetFileCorruptError(
            f"{self.name!r} cannot be read: the process that parsed it crashed, or took more than "
            f"{self.seconds:.0f} s of processor time or {limit_bytes():,} bytes of memory. It is "
            f"damaged or malicious. Fetch it again; if you trust it, set the environment variable "
            f"{ISOLATION}=off"
        )


def _receive(channel: Connection, max_bytes: int) -> bytes:
    """Return the next message.

    Raises:
        EOFError: none came in time, or the other end is closed.
        OSError: it has more than ``max_bytes``.
    """
    if not channel.poll(_TIMEOUT_SECONDS):
        raise EOFError
    return channel.recv_bytes(max_bytes)


# --------------------------------------------------------------------------- in the other process


def _run(descriptor: int, job: dict[str, Any]) -> None:
    """Call the function of a job, and send its result or its error.

    Args:
        descriptor: of the channel to the process that called :func:`run_apart`.
        job: what :func:`run_apart` wrote.
    """
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
        if offset < 0:
            raise OSError(f"negative seek position {offset}")  # the error that zipfile expects
        self._position = offset
        return self._position

    def tell(self) -> int:
        return self._position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


def _send(channel: Connection, kind: str, content: Any) -> None:
    """Send a message, with the processor time of this process so far."""
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
    """Limit the processor time and memory of this process, and let it write no file."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cpu_seconds = int(usage.ru_utime + usage.ru_stime + seconds + 1)
    max_mapped_bytes = mapped_bytes() + max(memory_bytes, _MIN_MEMORY_BYTES)
    _lower_limit(resource.RLIMIT_AS, min(max_mapped_bytes, sys.maxsize))
    _lower_limit(resource.RLIMIT_CPU, cpu_seconds)
    _lower_limit(resource.RLIMIT_FSIZE, 0)
    _lower_limit(resource.RLIMIT_CORE, 0)


def _lower_limit(kind: int, limit: int) -> None:
    # The limit that the system sets may be lower.
    _, hard_limit = resource.getrlimit(kind)
    if hard_limit != resource.RLIM_INFINITY:
        limit = min(limit, hard_limit)
    resource.setrlimit(kind, (limit, limit))
