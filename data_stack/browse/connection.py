"""Limits the number and the idle time of connections."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from data_stack.exception import MissingDependencyError

try:
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError as error:
    raise MissingDependencyError("data-stack browse", "uvicorn", "browse") from error

#: A web browser opens six. The limit leaves most of the process's file descriptors to the dataset.
MAX_CONNECTIONS: Final = 64


class Connection(H11Protocol):
    """HTTP for one client.

    Any program of this machine can connect, even without the token. So a whole request must arrive within uvicorn's
    ``timeout_keep_alive`` after the connection or the last answer, and a new connection beyond the limit closes the one that has
    been idle for longest.
    """

    _timer: asyncio.TimerHandle | None = None
    _idle_since: float = 0.0

    def connection_made(self, transport: Any) -> None:
        """Start waiting for a request."""
        super().connection_made(transport)
        self._wait_for_request()
        if len(self.connections) > MAX_CONNECTIONS:
            peers: Any = self.connections  # all are of this class
            min(peers, key=lambda each: (each._is_answering(), each._idle_since)).transport.abort()

    def data_received(self, data: bytes) -> None:
        """Receive a part of a request."""
        super().data_received(data)
        if self._is_answering():
            self._stop_waiting()

    def on_response_complete(self) -> None:
        """Start waiting for the next request, unless it has already arrived."""
        super().on_response_complete()
        self._stop_waiting()
        if not self._is_answering():
            self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _is_answering(self) -> bool:
        """Whether the server answers a request, and the client reads the answer."""
        cycle: Any = self.cycle  # None before the first request
        return cycle is not None and not cycle.response_complete and not self.flow.write_paused

    def _wait_for_request(self) -> None:
        self._idle_since = self.loop.time()
        self._timer = self.loop.call_later(self.timeout_keep_alive, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
