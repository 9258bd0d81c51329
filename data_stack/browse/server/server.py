"""Serves the pages of a browser on this machine until Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

import uvicorn

from data_stack.browse.browser import Browser
from data_stack.browse.server.application import make_app
from data_stack.browse.server.connection import MAX_CONNECTIONS, Connection
from data_stack.exception import ConfigError

_HOST: Final = "127.0.0.1"

#: The maximum number of errors of the event loop that are logged. A process without free file
#: descriptors fails to accept a connection many times a second.
_MAX_REPORTED_ERRORS: Final = 8


def serve(
    browser: Browser, *, port: int = 0, opens: bool = True, announce: Callable[[str], None] = print
) -> None:
    """Serve on 127.0.0.1 until Ctrl-C.

    Args:
        browser: the splits to show.
        port: 0 for any free port.
        opens: whether to open the page in the user's web browser.
        announce: called with the URL, which contains the token, once the port is bound.

    Raises:
        ConfigError: the port is taken, or the user may not bind it.
    """
    token = secrets.token_urlsafe(24)
    with _bind(port) as listener:
        _, bound_port = listener.getsockname()
        url = f"http://{_HOST}:{bound_port}/?token={token}"
        announce(url)
        if opens:
            # In a thread, because a text browser blocks its caller. The socket listens already, so
            # the page waits for the server.
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
        # uvicorn raises KeyboardInterrupt again when it ends.
        with contextlib.suppress(KeyboardInterrupt):
            Server(browser, token).run(sockets=[listener])


def _bind(port: int) -> socket.socket:
    """Open a socket that listens on a port of this machine.

    Raises:
        ConfigError: the port is taken, or the user may not bind it.
    """
    try:
        return socket.create_server((_HOST, port))
    except OSError as error:
        reasons = {
            errno.EADDRINUSE: "is taken by another program",
            errno.EACCES: "needs more rights",
        }
        if error.errno not in reasons:
            raise
        raise ConfigError(
            f"port {port} {reasons[error.errno]}; choose another one, "
            f"or omit --port for any free port"
        ) from error


class Server(uvicorn.Server):
    """Limits the number of connections and of logged errors.

    Args:
        browser: the splits to show.
        token: required by every request.
        idle_seconds: idle connections are closed after this time.
    """

    #: The number of errors of the event loop that were logged.
    _n_reported: int

    def __init__(self, browser: Browser, token: str, idle_seconds: int = 5) -> None:
        config = uvicorn.Config(
            make_app(browser, token),
            http=Connection,
            loop="asyncio",
            ws="none",
            lifespan="off",
            log_level="error",
            access_log=False,
            server_header=False,
            timeout_keep_alive=idle_seconds,
            # asyncio accepts this many connections at once, before one of them can close another.
            backlog=MAX_CONNECTIONS,
        )
        super().__init__(config)
        self._n_reported = 0

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End at once: a request that reads a slow sample is not waited for."""
        self.force_exit = True
        # uvicorn would report the request as an error.
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        super().handle_exit(sig, frame)

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until Ctrl-C."""
        asyncio.get_running_loop().set_exception_handler(self._report)
        await super().serve(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close all connections, and stop."""
        # From Python 3.12.1 on, a server waits for its connections. That of a request which reads a
        # slow sample would stay open.
        if self.force_exit:
            connections: set[Any] = set(self.server_state.connections)
            for connection in connections:
                connection.transport.abort()
        await super().shutdown(sockets)

    def _report(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log the first errors of the event loop."""
        self._n_reported += 1
        if self._n_reported <= _MAX_REPORTED_ERRORS:
            loop.default_exception_handler(context)
