"""Messages and descriptors between the consumer's process and a worker, over a socket on which neither ever waits to send."""

from __future__ import annotations

import array
import os
import pickle
import socket
import threading
from collections import deque
from typing import Any

from data_stack.loader.workers.parcels import contents_of

__all__ = ["Channel"]

_LENGTH_BYTES = 8
_READ_BYTES = 1 << 16
_ANCILLARY_BYTES = socket.CMSG_SPACE(4 * array.array("i").itemsize)
_CLOSE_ON_EXEC = getattr(socket, "MSG_CMSG_CLOEXEC", 0)  # Linux


class Channel:
    """One end of a pair of connected Unix sockets.

    A message is any value that pickles: both ends are of this program. What does not fit into the socket is kept, and sent by
    :meth:`flush` once there is room, so two ends that send much to each other do not wait for each other. Threads may send.

    Args:
        connection: a connected stream socket; the channel closes it.

    Attributes:
        is_ended: whether the other end is closed. Nothing raises because of that.
        descriptors: those that have arrived, in their order. Whoever takes one out closes it.
        has_lost_descriptors: whether some could not be received, since too many files are open.
    """

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._outgoing: deque[tuple[memoryview, list[int]]] = deque()
        self._sending = threading.Lock()
        self._incoming = bytearray()
        self.is_ended = False
        self.descriptors: deque[int] = deque()
        self.has_lost_descriptors = False

    def fileno(self) -> int:
        return self._connection.fileno()

    @property
    def has_outgoing(self) -> bool:
        """Whether :meth:`flush` has something to send."""
        return bool(self._outgoing)

    def send(self, message: Any, descriptors: tuple[int, ...] = ()) -> None:
        """Send a message, now or in :meth:`flush`; ``descriptors`` are closed here once they are sent."""
        body = pickle.dumps(message, protocol=5)
        frame = b"".join((len(body).to_bytes(_LENGTH_BYTES, "little"), body))
        with self._sending:
            self._outgoing.append((memoryview(frame), list(descriptors)))
            self._flush()

    def flush(self) -> None:
        """Send as much as the socket takes without waiting."""
        if self._outgoing:
            with self._sending:
                self._flush()

    def _flush(self) -> None:
        while self._outgoing and not self.is_ended:
            rest, descriptors = self._outgoing.popleft()
            try:
                if descriptors:
                    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
                    n_sent = self._connection.sendmsg([rest], rights)
                else:
                    n_sent = self._connection.send(rest)
            except BlockingIOError:
                self._outgoing.appendleft((rest, descriptors))
                return
            except OSError:
                self.is_ended = True
                _close(descriptors)
                return
            _close(descriptors)
            if n_sent < len(rest):
                self._outgoing.appendleft((rest[n_sent:], []))

    def receive(self) -> list[Any]:
        """All messages that have arrived; does not wait."""
        while not self.is_ended:
            try:
                data, ancillary, flags, _ = self._connection.recvmsg(_READ_BYTES, _ANCILLARY_BYTES, _CLOSE_ON_EXEC)
            except BlockingIOError:
                break
            except OSError:
                self.is_ended = True
                break
            for level, kind, content in ancillary:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    received = array.array("i")
                    received.frombytes(content[: len(content) - len(content) % received.itemsize])
                    self.descriptors.extend(received)
            self.has_lost_descriptors |= bool(flags & socket.MSG_CTRUNC)
            self._incoming += data
            if not data:
                self.is_ended = True
        return self._messages()

    def close(self) -> None:
        """Close this end, and all descriptors that are on their way."""
        self.is_ended = True
        self._connection.close()
        while self._outgoing:
            _close(self._outgoing.popleft()[1])
        while self.descriptors:
            os.close(self.descriptors.popleft())

    def _messages(self) -> list[Any]:
        messages = []
        start = 0
        while (body := start + _LENGTH_BYTES) <= len(self._incoming):
            stop = body + int.from_bytes(self._incoming[start:body], "little")
            if stop > len(self._incoming):
                break
            messages.append(contents_of(self._incoming[body:stop], ()))
            start = stop
        del self._incoming[:start]
        return messages


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
