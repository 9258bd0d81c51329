"""Limits the time and the number of connections of the server."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol

#: The maximum number of connections. A web browser opens six of them. The limit leaves most of the
#: file descriptors of the process to the dataset.
MAX_CONNECTIONS: Final = 64


class Connection(H11Protocol):
    """HTTP for one client.

    Any program of this machine can connect, even without the token. So a whole request must arrive
    within uvicorn's ``timeout_keep_alive`` after the connection or the last answer, and a new
    connection beyond the limit closes the one that has been idle for longest.
    """

    #: Closes the connection when no request arrives in time.
    _timer: asyncio.TimerHandle

    #: When the connection began to wait for a request, by the clock of the event loop.
    _idle_since: float

    def connection_made(self, transport: Any) -> None:
        """Start waiting for a request."""
        super().connection_made(transport)
        self._wait_for_request()
        if len(self.connections) > MAX_CONNECTIONS:
            all_connections: Any = self.connections  # all are of this class
            least_needed = min(all_connections, key=_order_of_closing)
            least_needed.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Receive a part of a request."""
        super().data_received(data)
        if self.is_answering():
            self._timer.cancel()

    def on_response_complete(self) -> None:
        """Start waiting for the next request, unless it has already arrived."""
        super().on_response_complete()
        self._timer.cancel()
        if not self.is_answering():
            self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._timer.cancel()
        super().connection_lost(exc)

    def is_answering(self) -> bool:
        """Return whether the server answers a request, and the client reads the answer."""
        cycle: Any = self.cycle  # None before the first request
        if cycle is None or cycle.response_complete:
            return False
        return not self.flow.write_paused

    def _wait_for_request(self) -> None:
        """Close the connection unless a request arrives in time."""
        self._idle_since = self.loop.time()
        self._timer = self.loop.call_later(self.timeout_keep_alive, self.transport.abort)


def _order_of_closing(connection: Connection) -> tuple[bool, float]:
    """Return the key by which connections are closed: idle ones first, the longest idle first."""
    return connection.is_answering(), connection._idle_since
