"""Serves the pages of a browser on this machine until Ctrl-C."""

from __future__ import annotations

import contextlib
import errno
import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable
from typing import Final

from data_stack.browse.app import make_app
from data_stack.browse.browser import Browser
from data_stack.exception import ConfigError, MissingDependencyError

try:
    import uvicorn
except ImportError as error:
    raise MissingDependencyError("data-stack browse", "uvicorn", "browse") from error

_HOST: Final = "127.0.0.1"
_SHUTDOWN_SECONDS: Final = 2


def serve(browser: Browser, *, port: int = 0, opens: bool = True, announce: Callable[[str], None] = print) -> None:
    """Serve on 127.0.0.1 until Ctrl-C.

    Args:
        browser: what is shown.
        port: 0 for any free one.
        opens: whether to open the page in the user's web browser.
        announce: is called with the URL once the port is bound; the URL holds the token.

    Raises:
        ConfigError: the port is taken, or not the user's to bind.
    """
    token = secrets.token_urlsafe(24)
    with _bind(port) as listener:
        url = f"http://{_HOST}:{listener.getsockname()[1]}/?token={token}"
        config = uvicorn.Config(
            make_app(browser, token),
            log_level="error",
            access_log=False,
            lifespan="off",
            ws="none",
            server_header=False,
            timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        )
        announce(url)
        if opens:
            # A browser in the terminal keeps its caller waiting. The socket listens already, so the page waits for the server.
            threading.Thread(target=webbrowser.open, args=(url,), daemon=True).start()
        with contextlib.suppress(KeyboardInterrupt):  # raised again by uvicorn, once it has ended
            uvicorn.Server(config).run(sockets=[listener])


def _bind(port: int) -> socket.socket:
    try:
        return socket.create_server((_HOST, port))
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        why = "is taken by another program" if error.errno == errno.EADDRINUSE else "needs more rights"
        raise ConfigError(f"port {port} {why}; choose another one, or leave --port out for any free one") from error
