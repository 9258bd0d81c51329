"""Runs a function of ours on a file's bytes in a process of its own, where a crash, a hang or a flood of memory harms nothing.

One helper process is started when it is first needed, and imports what the functions need once; each run is a fork of it, which
takes some milliseconds. A run has the bytes from this process, by position, and gives plain JSON back. The helper ends when this
process does, or when it has had nothing to do for a minute.
"""

from __future__ import annotations

import atexit
import importlib
import json
import logging
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

from data_stack.exception import DatasetFileCorruptError, DataStackError, RequestLimitError
from data_stack.util.request_limit import MAX_REQUEST_BYTES, limit_bytes

__all__ = ["ISOLATION", "run_apart"]

ISOLATION: Final = "DATA_STACK_ISOLATION"
"""The environment variable that turns it off (``off``): functions then run in this process."""

_logger = logging.getLogger(__name__)

_PROGRAM: Final = (
    "import sys; descriptor = int(sys.argv[1]); sys.path[:] = sys.argv[2:]; "
    "from data_stack.util.isolation import _serve; _serve(descriptor)"
)
_START_SECONDS: Final = 60.0
_IDLE_SECONDS: Final = 60.0
#: Without a word from a run. Its own limit is of processor time, which a busy machine does not use up.
_SILENT_SECONDS: Final = 120.0
_MAX_READ_BYTES: Final = 64 << 20
#: What libraries take for themselves.
_LEAST_MEMORY_BYTES: Final = 256 << 20
_FRAME: Final = struct.Struct("<cQ")
_RANGE: Final = struct.Struct("<QQ")
_STARTED, _READ, _RESULT, _ERROR = b"s", b"r", b"=", b"!"

_lock = threading.Lock()
_helper: tuple[int, socket.socket] | None = None


def run_apart(
    function: str,
    arguments: Sequence[Any],
    *,
    name: str,
    size: int,
    read_at: Callable[[int, int], bytes],
    seconds: float = 10.0,
) -> Any:
    """What ``function`` gives of a file that is read in another process.

    Args:
        function: ``"module:name"`` of ours; it is given a seekable binary file and the arguments, and returns plain JSON data.
        arguments: plain JSON data.
        name: of the file, for messages.
        size: of the file, in bytes.
        read_at: gives ``size`` bytes from an offset on; called in this process. What it raises is raised.
        seconds: of processor time that it may take.

    Raises:
        DatasetFileCorruptError: the function raised an error of ours, or its process crashed or took too much time or memory.
        OSError: there can be no other process on this machine.
    """
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            facts = {"name": name, "size": size, "seconds": seconds, "limit_bytes": limit_bytes()}
            _send_job(theirs, {"function": function, "arguments": list(arguments), **facts})
        ours.settimeout(_SILENT_SECONDS)
        pid = 0
        try:
            while True:
                kind, payload = _receive(ours)
                if kind == _RESULT:
                    return json.loads(payload)
                if kind == _ERROR:
                    raise DatasetFileCorruptError(payload.decode())
                if kind == _STARTED:
                    pid = int(payload)
                else:
                    offset, n_bytes = _RANGE.unpack(payload)
                    _send(ours, _READ, read_at(offset, min(n_bytes, _MAX_READ_BYTES)))
        except (EOFError, TimeoutError, ConnectionError) as error:
            raise DatasetFileCorruptError(
                f"{name!r} cannot be read: the process that looked at it crashed, or took more than {seconds:g} s of processor "
                f"time or {limit_bytes():,} bytes of memory. It is damaged, or was made to do that. Fetch it again; if you "
                f"trust it, set the environment variable {ISOLATION}=off"
            ) from error
        finally:
            if pid and not _has_ended(ours):
                os.kill(pid, signal.SIGKILL)


def _has_ended(ours: socket.socket) -> bool:
    """Whether the run has closed its end: then its number may be another process's by now."""
    try:
        ours.settimeout(0)
        return ours.recv(1, socket.MSG_PEEK) == b""
    except (BlockingIOError, TimeoutError):
        return False
    except OSError:
        return True


def _send_job(theirs: socket.socket, job: dict[str, Any]) -> None:
    data = json.dumps(job).encode()
    for attempt in (1, 2):
        with _lock:
            helper = _running_helper()
            try:
                socket.send_fds(helper, [data], [theirs.fileno()])
                return
            except OSError:  # it had ended, having had nothing to do
                _let_go()
                if attempt == 2:
                    raise


def _running_helper() -> socket.socket:
    global _helper
    if _helper is not None and _helper[0] != os.getpid():
        _let_go()  # that of the process that this one was forked from
    if _helper is None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                # The program forks and ends, so that there is no child of this process to be waited for later.
                subprocess.run(  # noqa: S603  # our own program
                    [sys.executable, "-c", _PROGRAM, str(theirs.fileno()), *sys.path],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},  # no threads, for it forks
                    timeout=_START_SECONDS,
                    check=True,
                )
            except subprocess.SubprocessError as error:
                ours.close()
                raise OSError(f"no process can be started to read files in: {error}") from error
        _helper = os.getpid(), ours
    return _helper[1]


def _let_go() -> None:
    global _helper
    if _helper is not None:
        _helper[1].close()
        _helper = None


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_let_go)


# ---------------------------------------------------------------------- frames


def _send(to: socket.socket, kind: bytes, payload: bytes) -> None:
    to.sendall(_FRAME.pack(kind, len(payload)))
    to.sendall(payload)


def _receive(source: socket.socket) -> tuple[bytes, bytes]:
    kind, n_bytes = _FRAME.unpack(_exactly(source, _FRAME.size))
    if n_bytes > _MAX_READ_BYTES:
        raise EOFError
    return kind, _exactly(source, n_bytes)


def _exactly(source: socket.socket, n_bytes: int) -> bytes:
    data = bytearray(n_bytes)
    view = memoryview(data)
    while view:
        n_read = source.recv_into(view)
        if not n_read:
            raise EOFError
        view = view[n_read:]
    return bytes(data)


# ---------------------------------------------------------------------- in the helper, and in its forks


class _RemoteBytes:
    """What the process that asks gives of the file."""

    def __init__(self, channel: socket.socket, name: str, size: int) -> None:
        self._channel, self.name, self._size, self._position = channel, name, size, 0

    def read(self, size: int = -1) -> bytes:
        size = max(0, min(self._size - self._position, size if size >= 0 else self._size))
        parts = []
        while size:
            _send(self._channel, _READ, _RANGE.pack(self._position, min(size, _MAX_READ_BYTES)))
            _, part = _receive(self._channel)
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


def _serve(descriptor: int) -> None:
    """The helper: fork for each job."""
    if os.fork():
        return
    os.setsid()  # so that Ctrl-C is the other process's to answer
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # forks are not waited for
    control = socket.socket(fileno=descriptor)
    control.settimeout(_IDLE_SECONDS)
    while True:
        try:
            data, descriptors, _, _ = socket.recv_fds(control, 1 << 18, 1)
        except (TimeoutError, ConnectionError):
            return
        if not data:
            return
        channel = socket.socket(fileno=descriptors[0])
        job = json.loads(data)
        module = importlib.import_module(job["function"].split(":")[0])  # kept for the jobs that follow
        if os.fork() == 0:
            control.close()
            _run(channel, getattr(module, job["function"].split(":")[1]), job)
        channel.close()


def _run(channel: socket.socket, function: Callable[..., Any], job: dict[str, Any]) -> NoReturn:
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _send(channel, _STARTED, str(os.getpid()).encode())
        os.environ[MAX_REQUEST_BYTES] = str(job["limit_bytes"])
        _limit(job["seconds"], job["limit_bytes"])
        try:
            result = function(_RemoteBytes(channel, job["name"], job["size"]), *job["arguments"])
        except RequestLimitError:  # which is raised again where it is asked for, and is no fault of the file
            _send(channel, _RESULT, b"null")
        except DataStackError as error:
            _send(channel, _ERROR, str(error)[:4096].encode(errors="replace"))
        except MemoryError:
            _send(channel, _ERROR, f"{job['name']!r} needs more than {job['limit_bytes']:,} bytes of memory to be read".encode())
        else:
            _send(channel, _RESULT, json.dumps(result).encode())
    finally:
        os._exit(0)  # whatever went wrong: the other end is closed, which says so


def _limit(seconds: float, memory_bytes: int) -> None:
    with open("/proc/self/statm", encoding="ascii") as file:
        n_pages = int(file.read().split()[0])
    n_bytes = min(n_pages * resource.getpagesize() + max(memory_bytes, _LEAST_MEMORY_BYTES), sys.maxsize)
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
