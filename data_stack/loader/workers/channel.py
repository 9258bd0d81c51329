"""Messages between this process and one that it started; what is large travels in shared memory that has no name."""

from __future__ import annotations

import array
import contextlib
import errno
import mmap
import os
import pickle
import resource
import socket
import tempfile
import threading
import weakref
from collections import deque
from typing import Any

import numpy as np

from data_stack.loader.workers.pickling import dump, load

__all__ = ["Channel", "Parcel"]

_LENGTH_BYTES = 8
_READ_BYTES = 1 << 16
_SMALL_BYTES = 1 << 14  # a message with so much is cheaper than shared memory
_ALIGNMENT_BYTES = 64  # a cache line; wide instructions want no less
_MOST_MAPS = 64  # of batches that the receiver keeps; each takes a descriptor

#: Shared memory in which values of this process lie.
_maps: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()


class Parcel:
    """A value on its way: small ones in one piece, large ones in memory that both processes have.

    Attributes:
        content: the pickle and its buffers, if they are small; otherwise where they lie in the memory of ``descriptor``, each as
            start, stop, and whether it may not be written to.
        descriptor: of the memory; the parcel closes it.
    """

    def __init__(self, content: Any, descriptor: int | None = None) -> None:
        self.content, self.descriptor = content, descriptor

    @classmethod
    def of(cls, value: Any) -> Parcel:
        """Pack a value.

        Raises:
            OSError: there is no room.
            Exception: whatever an object raises instead of being pickled.
        """
        pickled, buffers = dump(value)
        views = [pickled, *buffers]
        if sum(view.nbytes for view in views) <= _SMALL_BYTES:
            return cls([bytes(view) if view.readonly or view is pickled else bytearray(view) for view in views])
        spans, end = [], 0
        for view in views:
            start = -(-end // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
            end = start + view.nbytes
            spans.append((start, end, view.readonly))
        parcel = cls(spans, _anonymous_memory(end))
        for view, (start, _, _) in zip(views, spans, strict=True):
            rest = view.cast("B") if view.nbytes else view
            while rest.nbytes:
                n_written = os.pwrite(parcel.descriptor or 0, rest, start)
                rest, start = rest[n_written:], start + n_written
        return parcel

    def open(self, *, is_private: bool = False) -> Any:
        """The value. Its arrays lie in the shared memory, or are copies if many others do.

        Args:
            is_private: whether what is written to them stays in this process.

        Raises:
            Exception: whatever an object raises instead of coming to life.
        """
        if self.descriptor is None:
            return load(self.content[0], self.content[1:])
        size = self.content[-1][1]
        if is_private or len(_maps) < min(_MOST_MAPS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4):
            options = (
                {"access": mmap.ACCESS_COPY} if is_private else {"flags": mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)}
            )
            mapped = mmap.mmap(self.descriptor, size, **options)
            if not is_private:
                _maps.add(mapped)
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
        """Let go of the memory."""
        if self.descriptor is not None:
            descriptor, self.descriptor = self.descriptor, None
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()


class Channel:
    """One end of a pair of connected Unix sockets.

    A message is a small value that pickles, its *head*, and a :class:`Parcel` or None. Threads may send.

    Args:
        connection: a connected stream socket; the channel closes it.
        send_seconds: how long sending waits for the other end to read; None: as long as that is there.

    Attributes:
        is_ended: whether the other end is closed, or did not read. Nothing raises because of that.
    """

    def __init__(self, connection: socket.socket, send_seconds: float | None = None) -> None:
        connection.settimeout(send_seconds)
        self._connection = connection
        self._sending = threading.Lock()
        self._incoming = bytearray()
        self._descriptors: deque[int] = deque()
        self.is_ended = False

    def fileno(self) -> int:
        return self._connection.fileno()

    def send(self, head: Any, parcel: Parcel | None = None) -> None:
        """Send a message; it waits for the other end to read what it cannot keep. The parcel stays the caller's."""
        content = None if parcel is None else (parcel.content, parcel.descriptor is not None)
        body = pickle.dumps((head, content), protocol=5)
        frame = memoryview(len(body).to_bytes(_LENGTH_BYTES, "little") + body)
        with self._sending, contextlib.suppress(ValueError):  # of a socket that is closed
            try:
                if parcel is not None and parcel.descriptor is not None:
                    frame = frame[socket.send_fds(self._connection, [frame], [parcel.descriptor]) :]
                self._connection.sendall(frame)
            except OSError:
                self.is_ended = True

    def receive(self) -> list[tuple[Any, Parcel | None]]:
        """The messages that have arrived, once there is something to read; waits for that.

        Raises:
            OSError: too many files are open for what was sent.
        """
        try:
            data, ancillary, flags, _ = self._connection.recvmsg(
                _READ_BYTES, socket.CMSG_SPACE(4 * array.array("i").itemsize), getattr(socket, "MSG_CMSG_CLOEXEC", 0)
            )
        except OSError:
            data, ancillary, flags = b"", [], 0
        for _, _, content in ancillary:
            received = array.array("i")
            received.frombytes(content[: len(content) - len(content) % received.itemsize])
            self._descriptors.extend(received)
        self._incoming += data
        self.is_ended |= not data
        if flags & socket.MSG_CTRUNC:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return self._messages()

    def close(self) -> None:
        """Close this end, and all descriptors that have arrived in it."""
        self.is_ended = True
        self._connection.close()
        while self._descriptors:
            os.close(self._descriptors.popleft())

    def _messages(self) -> list[tuple[Any, Parcel | None]]:
        messages: list[tuple[Any, Parcel | None]] = []
        start = 0
        while (body := start + _LENGTH_BYTES) <= len(self._incoming):
            stop = body + int.from_bytes(self._incoming[start:body], "little")
            if stop > len(self._incoming):
                break
            head, content = load(self._incoming[body:stop])
            messages.append(
                (head, None if content is None else Parcel(content[0], self._descriptors.popleft() if content[1] else None))
            )
            start = stop
        del self._incoming[:start]
        return messages


def _anonymous_memory(n_bytes: int) -> int:
    """A descriptor of ``n_bytes`` zeros; nothing of it is in /dev/shm or any other folder. The caller closes it."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("data_stack batches", os.MFD_CLOEXEC)
    else:  # macOS: a file that has no name any more
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    try:
        os.ftruncate(descriptor, n_bytes)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
