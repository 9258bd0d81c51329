"""Runs a function of ours on a file's bytes in a separate process, which may crash, hang or exhaust its memory limit.

A helper process starts at the first run, and imports the modules of the functions once; each run is a fork of it, which takes
milliseconds. A run reads the bytes from this process, by position, and returns plain JSON. The helper ends with this process. A
forked process has its own helper.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection, Pipe
from typing import Any, Final, NoReturn

from data_stack.exception import DatasetFileCorruptError, DataStackError, RequestLimitError
from data_stack.util.request_limit import MAX_REQUEST_BYTES, limit_bytes

ISOLATION: Final = "DATA_STACK_ISOLATION"
"""The environment variable that disables isolation (``off``): functions then run in this process."""

_PROGRAM: Final = (
    "import sys; descriptor = int(sys.argv[1]); sys.path[:] = sys.argv[2:]; "
    "from data_stack.util.isolation import _serve; _serve(descriptor)"
)
_START_SECONDS: Final = 60.0
#: Timeout of messages. A run has a limit of processor time, which does not expire on a busy machine.
_SILENT_SECONDS: Final = 120.0
_MAX_READ_BYTES: Final = 64 << 20
_MAX_MESSAGE_BYTES: Final = 16 << 20
#: For the libraries themselves.
_LEAST_MEMORY_BYTES: Final = 256 << 20

# Held while this process forks: a fork in between would inherit the helper's end of the socket, and hide the end of the helper.
_lock = threading.Lock()
_helper: socket.socket | None = None


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
        function: ``"module:name"`` of ours; it gets a seekable binary file and the arguments, and returns plain JSON data.
        arguments: plain JSON data.
        name: of the file, for messages.
        size: of the file, in bytes.
        read_at: returns ``size`` bytes from an offset on; called in this process, and its errors pass through.
        seconds: limit of processor time.

    Raises:
        DatasetFileCorruptError: the function raised an error of ours, or its process crashed or exceeded a limit.
        OSError: no process can be started.
    """
    facts = {"name": name, "size": size, "seconds": seconds, "limit_bytes": limit_bytes()}
    answer: bytes | None = None
    with _start_run({"function": function, "arguments": list(arguments), **facts}) as channel:
        while True:
            try:
                if answer is not None:
                    channel.send_bytes(answer)
                message = json.loads(_receive(channel, _MAX_MESSAGE_BYTES))
                kind, content = message["kind"], message["content"]
                if kind == "read":
                    offset, n_bytes = (min(max(0, int(number)), size) for number in content)
            except (EOFError, OSError, ValueError, TypeError, LookupError) as error:
                raise DatasetFileCorruptError(
                    f"{name!r} cannot be read: the process that parsed it crashed, or took more than {seconds:g} s of "
                    f"processor time or {limit_bytes():,} bytes of memory. It is damaged or malicious. Fetch it again; if you "
                    f"trust it, set the environment variable {ISOLATION}=off"
                ) from error
            if kind == "error":
                raise DatasetFileCorruptError(str(content))
            if kind != "read":
                return content
            answer = read_at(offset, min(n_bytes, _MAX_READ_BYTES))


def _start_run(job: dict[str, Any]) -> Connection:
    """Start a run, and the helper if it does not run; the connection to the run."""
    with _lock:
        ours, theirs = Pipe()
        with theirs:
            for is_last in (False, True):
                try:
                    socket.send_fds(_running_helper(), [json.dumps(job).encode()], [theirs.fileno()])
                    break
                except OSError:  # the helper was killed
                    _let_go()
                    if is_last:
                        ours.close()
                        raise
    return ours


def _running_helper() -> socket.socket:
    global _helper
    if _helper is None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(_START_SECONDS)
        with theirs:
            try:
                # The program forks and ends, so that this process has no child to wait for later.
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
        _helper = ours
    return _helper


def _let_go() -> None:
    global _helper
    if _helper is not None:
        _helper.close()
        _helper = None


def _after_fork() -> None:
    _lock.release()
    _let_go()  # the parent's helper


os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_after_fork)
atexit.register(_let_go)


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
    channel.send_bytes(json.dumps({"kind": kind, "content": content}).encode())


def _serve(descriptor: int) -> None:
    """The helper: fork for each job."""
    if os.fork():
        return
    os.setsid()  # Ctrl-C does not reach it
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # forks are not waited for
    control = socket.socket(fileno=descriptor)
    while True:
        try:
            data, descriptors, _, _ = socket.recv_fds(control, 1 << 18, 1)
        except ConnectionError:
            return
        if not data:
            return
        job = json.loads(data)
        module = importlib.import_module(job["function"].split(":")[0])  # imported once for all jobs
        if os.fork() == 0:
            control.close()
            _run(Connection(descriptors[0]), getattr(module, job["function"].split(":")[1]), job)
        os.close(descriptors[0])


def _run(channel: Connection, function: Callable[..., Any], job: dict[str, Any]) -> NoReturn:
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.environ[MAX_REQUEST_BYTES] = str(job["limit_bytes"])
        _limit(job["seconds"], job["limit_bytes"])
        try:
            _say(channel, "result", function(_RemoteBytes(channel, job["name"], job["size"]), *job["arguments"]))
        except RequestLimitError:  # no damage: reading the file raises it again
            _say(channel, "result", None)
        except DataStackError as error:
            _say(channel, "error", str(error)[:4096])
        except MemoryError:
            _say(channel, "error", f"{job['name']!r} needs more than {job['limit_bytes']:,} bytes of memory to be read")
    finally:
        os._exit(0)  # any other error closes the connection, which the parent notices


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
