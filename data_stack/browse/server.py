"""Serves the pages of a browser on this machine until Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable
from typing import Any, Final

from data_stack.browse.app import make_app
from data_stack.browse.browser import Browser
from data_stack.browse.connection import MAX_CONNECTIONS, Connection
from data_stack.exception import ConfigError, MissingDependencyError

try:
    import uvicorn
except ImportError as error:
    raise MissingDependencyError("data-stack browse", "uvicorn", "browse") from error

_HOST: Final = "127.0.0.1"
_SHUTDOWN_SECONDS: Final = 2
_IDLE_SECONDS: Final = 5
_MAX_REPORTS: Final = 8


def serve(browser: Browser, *, port: int = 0, opens: bool = True, announce: Callable[[str], None] = print) -> None:
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
        url = f"http://{_HOST}:{listener.getsockname()[1]}/?token={token}"
        announce(url)
        if opens:
            # In a thread, because a text browser blocks its caller. The socket listens already, so the page waits for the server.
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
        with contextlib.suppress(KeyboardInterrupt):  # uvicorn raises it again when it ends
            Server(browser, token).run(sockets=[listener])


class Server(uvicorn.Server):
    """Limits the number of connections and of logged errors.

    Args:
        browser: the splits to show.
        token: required by every request.
        idle_seconds: idle connections are closed after this time.
    """

    def __init__(self, browser: Browser, token: str, idle_seconds: int = _IDLE_SECONDS) -> None:
        config = uvicorn.Config(
            make_app(browser, token),
            http=Connection,
            loop="asyncio",
            log_level="error",
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            timeout_keep_alive=idle_seconds,
            timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
            backlog=MAX_CONNECTIONS,  # asyncio accepts this many at once, before a connection can close another one
        )
        super().__init__(config)
        self._n_reported = 0

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until Ctrl-C."""
        asyncio.get_running_loop().set_exception_handler(self._report)
        await super().serve(sockets)

    def _report(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # A process without free file descriptors fails to accept a connection many times a second.
        self._n_reported += 1
        if self._n_reported <= _MAX_REPORTS:
            loop.default_exception_handler(context)


def _bind(port: int) -> socket.socket:
    try:
        return socket.create_server((_HOST, port))
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        why = "is taken by another program" if error.errno == errno.EADDRINUSE else "needs more rights"
        raise ConfigError(f"port {port} {why}; choose another one, or omit --port for any free port") from error
