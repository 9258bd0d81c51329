"""Messages between this process and one that it started; large values travel in unnamed shared memory."""

from __future__ import annotations

import errno
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
from typing import Any

import numpy as np

from data_stack.processes.pickling import dump, load

_LENGTH_BYTES = 8
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)
_SMALL_BYTES = 1 << 14  # up to this size a message is cheaper than shared memory
_ALIGNMENT_BYTES = 64  # a cache line, which wide instructions need
_MAX_MAPS = 64  # of batches that the receiver keeps; each takes a descriptor

#: Shared memory that holds values of this process, or did. (A WeakSet runs code when a map is freed, which swallows Ctrl-C.)
_maps: list[weakref.ref[mmap.mmap]] = []


class Parcel:
    """A pickled value with its buffers: small ones in one piece, large ones in memory that both processes share.

    Attributes:
        content: the pickle and its buffers, if they are small; otherwise their spans in the memory of ``descriptor``: start,
            stop, and whether it is read-only.
        descriptor: of the memory; the parcel closes it.
    """

    def __init__(self, content: Any, descriptor: int | None = None) -> None:
        self.content, self.descriptor = content, descriptor

    @classmethod
    def of(cls, value: Any, max_bytes: float = math.inf) -> Parcel:
        """Pack a value.

        Raises:
            OSError: memory is exhausted, or the value is larger than ``max_bytes``.
            Exception: an object cannot be pickled.
        """
        pickled, buffers = dump(value)
        views = [pickled, *buffers]
        n_bytes = sum(view.nbytes for view in views)
        if n_bytes > max_bytes:
            raise OSError(errno.EFBIG, f"{n_bytes / 1e9:.1f} GB in memory are too large to send")
        if n_bytes <= _SMALL_BYTES:
            return cls([bytes(view) if view.readonly or view is pickled else bytearray(view) for view in views])
        spans, end = [], 0
        for view in views:
            start = -(-end // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
            end = start + view.nbytes
            spans.append((start, end, view.readonly))
        parcel = cls(spans, _anonymous_memory(end))
        with open(parcel.descriptor or 0, "wb", closefd=False) as file:  # not by a map: a lack of memory must be an error
            for view, (start, _, _) in zip(views, spans, strict=True):
                file.seek(start)
                file.write(view)
        return parcel

    def open(self, *, is_private: bool = False) -> Any:
        """Unpickle the value. Its arrays lie in the shared memory, or are copies if many arrays do already.

        Args:
            is_private: whether writes to the arrays stay in this process.

        Raises:
            Exception: an object cannot be unpickled.
        """
        if self.descriptor is None:
            return load(self.content[0], self.content[1:])
        size = self.content[-1][1]
        if is_private or _n_maps() < min(_MAX_MAPS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4):
            options = (
                {"access": mmap.ACCESS_COPY} if is_private else {"flags": mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)}
            )
            mapped = mmap.mmap(self.descriptor, size, **options)
            if not is_private:
                _maps.append(weakref.ref(mapped))
            memory = memoryview(mapped)
        else:
            memory = np.empty(size, dtype=np.uint8).data
            os.preadv(self.descriptor, [memory], 0)
        self.close()
        views = [
            memory[start:stop].toreadonly() if is_read_only else memory[start:stop] for start, stop, is_read_only in self.content
        ]
        return load(views[0], views[1:])

    def close(self) -> None:
        """Close the memory."""
        if self.descriptor is not None:
            descriptor, self.descriptor = self.descriptor, None
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()


def _n_maps() -> int:
    _maps[:] = [each for each in _maps if each() is not None]
    return len(_maps)


class Channel:
    """One end of a pair of connected Unix sockets.

    A message is a small value that pickles, its *head*, and a :class:`Parcel` or None. Threads may send.

    Args:
        connection: a connected stream socket; the channel closes it.
        timeout_seconds: how long sending, or reading the rest of a message, waits for the other end; None: without a limit.

    Attributes:
        is_ended: whether the other end is closed, or did not answer in time; neither raises an error.
    """

    def __init__(self, connection: socket.socket, timeout_seconds: float | None = None) -> None:
        connection.settimeout(timeout_seconds)
        self._connection = connection
        self._sending = threading.Lock()
        self.is_ended = False

    def fileno(self) -> int:
        return self._connection.fileno()

    def send(self, head: Any, parcel: Parcel | None = None) -> None:
        """Send a message, waiting until the other end has read what does not fit into the socket's buffer."""
        body = pickle.dumps((head, None if parcel is None else parcel.content), protocol=5)
        frame = memoryview(len(body).to_bytes(_LENGTH_BYTES, "little") + body)
        descriptors = [] if parcel is None or parcel.descriptor is None else [parcel.descriptor]
        with self._sending:
            try:
                if descriptors:
                    frame = frame[socket.send_fds(self._connection, [frame], descriptors) :]
                self._connection.sendall(frame)
            except (OSError, ValueError):  # ValueError: the socket is closed
                self.is_ended = True

    def receive(self) -> tuple[Any, Parcel | None] | None:
        """Wait for the next message; None if the other end is closed.

        Raises:
            OSError: too many files are open to receive the parcel's memory.
        """
        memory, received, body = Parcel(None), list[Any](), bytearray()
        try:
            try:  # without bytecode between the call and the list, where Ctrl-C could lose the descriptor
                received.extend(map(self._connection.recvmsg, [_LENGTH_BYTES], [socket.CMSG_SPACE(4)], [_CLOSE_ON_EXEC]))
            finally:
                if received and received[0][1]:
                    memory.descriptor = int.from_bytes(received[0][1][0][2], sys.byteorder)
            n_bytes = int.from_bytes(received[0][0], "little")
            while n_bytes > len(body) and (part := self._connection.recv(n_bytes - len(body))):
                body += part
            self.is_ended |= len(body) < max(1, n_bytes)
        except OSError:
            self.is_ended = True
        if received and received[0][2] & socket.MSG_CTRUNC:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        if self.is_ended:
            return None
        head, memory.content = load(body)
        return head, None if memory.content is None else memory

    def close(self) -> None:
        """Close this end."""
        self.is_ended = True
        self._connection.close()


def _anonymous_memory(n_bytes: int) -> int:
    """A descriptor of ``n_bytes`` zeros, without a name in /dev/shm or any other folder. The caller closes it."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("data_stack batches", os.MFD_CLOEXEC)
    else:  # macOS: a file whose name was removed
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    try:
        os.ftruncate(descriptor, n_bytes)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
