"""Messages between processes, in which large values travel in unnamed shared memory."""

from __future__ import annotations

import errno
import functools
import io
import math
import mmap
import os
import pickle
import resource
import socket
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable
from typing import IO, Any, Final, NamedTuple

from data_stack.processes.pickling import dump, load
from data_stack.util.interrupts import is_from_signal_handler, suppress_own

#: A message begins with the length of its body.
_LENGTH_BYTES: Final = 8

#: Up to this size, a value is sent faster in a message than in shared memory.
SMALL_BYTES: Final = 1 << 14

#: Buffers begin at multiples of a cache line, as wide instructions of the processor need it.
_ALIGNMENT_BYTES: Final = 64

#: How many received values stay in shared memory that this process maps, each of which takes a
#: descriptor. Further values are copied.
_MAX_MAPS: Final = 128

#: Other programs that this process starts do not inherit a received descriptor.
_CLOSE_ON_EXEC: Final = getattr(socket, "MSG_CMSG_CLOEXEC", 0)

#: The pages of a new map are all there at once, rather than one fault for each of them.
POPULATE: Final = getattr(mmap, "MAP_POPULATE", 0)

#: The maps of shared memory in which values of this process lie, and maps that are freed already.
#: (A WeakSet would run Python code when a map is freed, and Python ignores a Ctrl-C there.)
_maps: list[weakref.ref[mmap.mmap]] = []


class _Span(NamedTuple):
    """Where a buffer lies in shared memory."""

    start: int
    stop: int
    is_read_only: bool


class Payload:
    """A pickled value with its buffers, to be sent.

    Small buffers are sent in one piece with the pickle. Large ones are written to memory that both
    processes share.

    Args:
        value: anything.
        max_bytes: the limit of all buffers together.

    Attributes:
        content: if the value is small, the pickle and its buffers; otherwise their spans in
            ``memory``, the pickle's first.
        memory: a file without a name, which :meth:`close` closes; None if the value is small.
        modules: the names of the modules of the functions and classes in the value.

    Raises:
        OSError: memory is exhausted, or the value is larger than ``max_bytes``.
        Exception: an object cannot be pickled.
    """

    content: list[Any]
    memory: IO[bytes] | None
    modules: set[str]

    def __init__(self, value: Any, max_bytes: float = math.inf) -> None:
        pickled = dump(value)
        self.modules = pickled.modules
        views = [pickled.content]
        views.extend(pickled.buffers)
        n_bytes = sum(view.nbytes for view in views)
        if n_bytes > max_bytes:
            raise OSError(errno.EFBIG, f"{n_bytes / 1e9:.1f} GB in memory are too large to send")
        self.memory = None
        if n_bytes <= SMALL_BYTES:
            self.content = [bytes(pickled.content)]
            for buffer in pickled.buffers:
                self.content.append(bytes(buffer) if buffer.readonly else bytearray(buffer))
            return
        spans = _lay_out(views)
        self.content = spans
        self.memory = _write_to_memory(views, spans)

    def close(self) -> None:
        """Close the memory; those who have received it keep it."""
        if self.memory is not None:
            with suppress_own(OSError):  # memory is exhausted
                self.memory.close()


class SharedMemory:
    """Memory of which both processes have a map from now on, to be sent.

    Args:
        memory: a file without a name; it is not closed.
        size: the number of its bytes.
    """

    #: The size, in place of the spans of a :class:`Payload`.
    content: int
    memory: IO[bytes]

    def __init__(self, memory: IO[bytes], size: int) -> None:
        self.content = size
        self.memory = memory


def align(position: int) -> int:
    """Return the first position from this one on where a buffer may begin."""
    n_units = math.ceil(position / _ALIGNMENT_BYTES)
    return n_units * _ALIGNMENT_BYTES


def _lay_out(views: list[memoryview]) -> list[_Span]:
    """Return spans for buffers one after the other, each from a multiple of the alignment on."""
    spans = []
    stop = 0
    for view in views:
        start = align(stop)
        stop = start + view.nbytes
        spans.append(_Span(start, stop, view.readonly))
    return spans


def _write_to_memory(views: list[memoryview], spans: list[_Span]) -> IO[bytes]:
    """Return new memory that holds buffers at their spans.

    Raises:
        OSError: memory is exhausted.
    """
    memory = anonymous_memory()
    try:
        memory.truncate(spans[-1].stop)
        for view, span in zip(views, spans, strict=True):
            memory.seek(span.start)
            # Not through a map: there, a lack of memory would end the process, not raise an error.
            memory.write(view)
        memory.flush()
    except BaseException:
        with suppress_own(OSError):  # memory is exhausted
            memory.close()
        raise
    return memory


def anonymous_memory() -> IO[bytes]:
    """Return an empty file in memory, without a name in /dev/shm or any other folder."""
    if not hasattr(os, "memfd_create"):  # macOS
        return tempfile.TemporaryFile()
    # open(os.memfd_create(…)), but by C code alone. Otherwise Ctrl-C may come between the two
    # calls, and nobody would close the descriptor.
    descriptors = map(os.memfd_create, ["data_stack batches"])
    return next(map(open, descriptors, ["wb"]))


class Message(NamedTuple):
    """A received message.

    Attributes:
        head: its small value.
        load_payload: unpickles the value of the payload, or raises any error; returns the map of a
            :class:`SharedMemory`. None without payload.
    """

    head: Any
    load_payload: Callable[[], Any] | None


class Channel:
    """One end of a pair of connected Unix sockets.

    A message is a small value that can be pickled, its *head*, and a :class:`Payload`, a
    :class:`SharedMemory` or None.
    Threads may send.

    Args:
        connection: a connected stream socket; the channel closes it.
        timeout_seconds: how long sending, or reading the rest of a message, waits for the other
            end; None: without a limit.

    Attributes:
        is_ended: whether the other end is closed, or did not answer in time; neither raises an
            error.
    """

    is_ended: bool
    _connection: socket.socket
    #: Held while a message is sent, so that messages of threads do not mix.
    _send_lock: threading.Lock

    def __init__(self, connection: socket.socket, timeout_seconds: float | None = None) -> None:
        connection.settimeout(timeout_seconds)
        self.is_ended = False
        self._connection = connection
        self._send_lock = threading.Lock()

    def fileno(self) -> int:
        """Return the descriptor of the socket."""
        return self._connection.fileno()

    def send(self, head: Any, payload: Payload | SharedMemory | None = None) -> None:
        """Send a message, waiting until the other end has read what exceeds the socket's buffer."""
        content = None if payload is None else payload.content
        memory = None if payload is None else payload.memory
        body = pickle.dumps((head, content), protocol=5)
        frame = memoryview(len(body).to_bytes(_LENGTH_BYTES, "little") + body)
        with self._send_lock:
            try:
                if memory is not None:
                    n_sent = socket.send_fds(self._connection, [frame], [memory.fileno()])
                    frame = frame[n_sent:]
                self._connection.sendall(frame)
            except (OSError, ValueError) as error:  # ValueError: the socket is closed
                self.is_ended = True
                if is_from_signal_handler(error):
                    raise

    def receive(self, *, is_private: bool = False) -> Message | None:
        """Wait for the next message.

        Args:
            is_private: whether the other process does not see what this one writes to the arrays.

        Returns:
            The message; None if the other end is closed. The arrays of the payload lie in shared
            memory, or are copies if this process maps much shared memory already.

        Raises:
            OSError: too many files are open to receive the memory of a payload.
        """
        packet = _Packet()
        try:
            body = self._read_frame(packet)
            if packet.is_truncated:
                raise OSError(
                    errno.EMFILE,
                    "too many open files to receive arrays of a process; close some, or raise "
                    "`ulimit`",
                )
            if body is None:
                self.is_ended = True
                return None
            head, content = load(body)
            if content is None:
                return Message(head, None)
            memory = packet.own_memory()
            if memory is None:
                buffers = content
            elif isinstance(content, int):
                mapped = mmap.mmap(memory.fileno(), content, mmap.MAP_SHARED | POPULATE)
                return Message(head, lambda: mapped)
            else:
                buffers = _map_buffers(memory, content, is_private=is_private)
            return Message(head, functools.partial(load, buffers[0], buffers[1:]))
        finally:
            packet.close()

    def _read_frame(self, packet: _Packet) -> bytearray | None:
        """Return the body of the next message; None if the other end closes before its end."""
        body = bytearray()
        with suppress_own(OSError):
            packet.receive(self._connection)
            n_bytes = packet.body_length
            while len(body) < n_bytes:
                part = self._connection.recv(n_bytes - len(body))
                if not part:
                    return None
                body += part
            if n_bytes:
                return body
        return None

    def close(self) -> None:
        """Close this end."""
        self.is_ended = True
        self._connection.close()


class _Packet:
    """The first bytes of a message, with the descriptor that came with them.

    Ctrl-C may come between any two bytecodes: between a call of ``recvmsg`` and the assignment of
    its result, so that nobody knows the descriptor and it stays open. So C code alone stores the
    results, and :meth:`close` closes a descriptor that has no owner yet.
    """

    #: What ``recvmsg`` returned, once: data, ancillary data, flags, address.
    _results: list[tuple[bytes, list[tuple[int, int, bytes]], int, Any]]

    #: The owner of the descriptor, once.
    _files: list[io.FileIO]

    def __init__(self) -> None:
        self._results = []
        self._files = []

    def receive(self, connection: socket.socket) -> None:
        """Wait for the length of the next message."""
        ancillary_bytes = socket.CMSG_SPACE(4)
        self._results.extend(
            map(connection.recvmsg, [_LENGTH_BYTES], [ancillary_bytes], [_CLOSE_ON_EXEC])
        )
        self.own_memory()

    @property
    def body_length(self) -> int:
        """The number of bytes of the body; 0 if the other end has closed."""
        data, _, _, _ = self._results[0]
        return int.from_bytes(data, "little")

    @property
    def is_truncated(self) -> bool:
        """Whether a descriptor was lost because too many files are open."""
        if not self._results:
            return False
        _, _, flags, _ = self._results[0]
        return bool(flags & socket.MSG_CTRUNC)

    def own_memory(self) -> io.FileIO | None:
        """Make a file of the descriptor, which then closes it.

        Returns:
            The file; None if no descriptor came.
        """
        if self._results and not self._files:
            _, ancillary, _, _ = self._results[0]
            handles = [int.from_bytes(data, sys.byteorder) for _, _, data in ancillary]
            self._files.extend(map(io.FileIO, handles))
        return self._files[0] if self._files else None

    def close(self) -> None:
        """Close the descriptor, whether it has an owner or not; a map of the memory stays."""
        self.own_memory()
        for file in self._files:
            file.close()


def _map_buffers(memory: io.FileIO, spans: list[_Span], *, is_private: bool) -> list[memoryview]:
    """Return the buffers in a memory: views of a map of the memory, or of a copy."""
    if is_private:
        flags = mmap.MAP_PRIVATE
    else:
        flags = mmap.MAP_SHARED | POPULATE
    mapped = mmap.mmap(memory.fileno(), spans[-1].stop, flags)
    view = memoryview(mapped)
    if not is_private and not keep_map(mapped):
        view = memoryview(bytearray(mapped))
    buffers = []
    for span in spans:
        buffer = view[span.start : span.stop]
        buffers.append(buffer.toreadonly() if span.is_read_only else buffer)
    return buffers


def keep_map(mapped: mmap.mmap) -> bool:
    """Return whether one more map may be kept without using up this process's descriptors."""
    _maps[:] = [reference for reference in _maps if reference() is not None]
    max_descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if len(_maps) >= min(_MAX_MAPS, max_descriptors // 4):
        return False
    _maps.append(weakref.ref(mapped))
    return True
