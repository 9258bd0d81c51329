"""Serves the pages of a browser on this machine until Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hmac
import secrets
import socket
import threading
import webbrowser
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from data_stack.browse.browser import Browser
from data_stack.exception import ConfigError, DatasetOutOfBoundsError, MissingDependencyError

try:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.middleware.base import BaseHTTPMiddleware
    from starlette.requests import Request
    from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
    from starlette.routing import BaseRoute, Mount, Route
    from starlette.staticfiles import StaticFiles
    from starlette.types import ASGIApp
    from uvicorn.protocols.http.h11_impl import H11Protocol
except ImportError as error:
    raise MissingDependencyError("data-stack browse", str(error.name).partition(".")[0], "browse") from error

_HOSTS: Final = frozenset(("127.0.0.1", "localhost", "[::1]"))
#: Sent by our own pages and by the address bar; other pages send ``cross-site`` or ``same-site``.
_OWN_SITES: Final = frozenset(("", "same-origin", "none"))
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}


class Guard(BaseHTTPMiddleware):
    """Refuses requests before ``app`` sees them, and adds headers to the answers, which are not cached by default.

    The token comes in the URL of the first page, which sets a cookie, or in an ``Authorization: Bearer`` header. Host and Origin
    must be names of this machine, so that a web site whose name resolves to 127.0.0.1 (DNS rebinding) reads nothing. Any port is
    allowed, because ``ssh -L`` may forward another one.

    Args:
        app: answers the requests that pass.
        token: the secret.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        super().__init__(app)
        self._token = token

    async def dispatch(self, request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        # All ports of a host share cookies, so the name contains the port that the client sees, also through ``ssh -L``.
        cookie = f"data_stack_{request.headers.get('host', '').rpartition(':')[2]}"
        given = request.query_params.get("token", "")
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        refusal = _refuse(request)
        if refusal is None and not any(map(self._is_token, (given, bearer, request.cookies.get(cookie, "")))):
            text = "The token is missing or wrong. Open the whole URL that data-stack browse printed.\n"
            refusal = PlainTextResponse(text, 403)
        response = refusal or await call_next(request)
        if given and refusal is None:
            response.set_cookie(cookie, self._token, httponly=True, samesite="strict")
        response.headers.update(_HEADERS)
        response.headers.setdefault("cache-control", "no-store")
        return response

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self._token.encode())


def _refuse(request: Request) -> Response | None:
    """The refusal of a request by method, Host or Origin; None if the request passes."""
    if request.method not in ("GET", "HEAD"):
        return PlainTextResponse("Only GET and HEAD are answered.\n", 405)
    host, headers = request.headers.get("host", ""), request.headers
    name, colon, port = host.rpartition(":")
    if (name if colon and port.isdigit() else host).lower() not in _HOSTS:
        return PlainTextResponse("The Host of a request must be 127.0.0.1 or localhost.\n", 403)
    # a link on another page may open this one
    is_link = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    is_ours = is_link or headers.get("sec-fetch-site", "") in _OWN_SITES
    if headers.get("origin", f"http://{host}") != f"http://{host}" or not is_ours:
        return PlainTextResponse("Requests from other pages are refused.\n", 403)
    return None


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


_STATIC: Final = Path(__file__).with_name("static")
#: The URL of a picture contains a number of this run, so that pictures of another dataset on the same port are never reused.
_KEPT: Final = {"cache-control": "private, max-age=86400, immutable"}


def make_app(browser: Browser, token: str) -> Guard:
    """An ASGI application that answers requests with the token."""
    questions: dict[str, Callable[[Mapping[str, str]], Any]] = {
        "/api/overview": lambda _: browser.overview(),
        "/api/samples": lambda given: browser.samples(
            _number(given, "split"), given.get("where", ""), _number(given, "start"), _number(given, "count", "60")
        ),
        "/api/histograms": lambda given: browser.histograms(
            _number(given, "split"),
            given.get("where", ""),
            [_as_number("columns", each) for each in given.get("columns", "").split(",") if each],
        ),
        "/api/sample": lambda given: browser.sample(_number(given, "split"), _number(given, "position")),
        "/api/compare": lambda given: browser.compare(given.get("name", "")),
        "/api/duplicates": lambda given: browser.duplicates(
            _number(given, "column", "-1"), starts=_choice(given, "run", "01") == "1"
        ),
        "/picture": lambda given: Response(
            browser.picture(
                _number(given, "split"),
                _number(given, "position"),
                _number(given, "column"),
                _choice(given, "size", ("small", "large")) == "large",
            ),
            media_type="image/png",
            headers=_KEPT,
        ),
    }
    routes: list[BaseRoute] = [Route(path, _answer(question)) for path, question in questions.items()]
    routes.append(Route("/", lambda request: FileResponse(_STATIC / "index.html")))
    routes.append(Mount("/", StaticFiles(directory=_STATIC)))
    return Guard(Starlette(routes=routes), token)


def _answer(question: Callable[[Any], Any]) -> Callable[[Request], Response]:
    def endpoint(request: Request) -> Response:
        try:
            answer = question(request.query_params)
            return answer if isinstance(answer, Response) else JSONResponse(answer)
        except Exception as error:  # noqa: BLE001  # foreign code reads the samples; the page shows the error
            return _failure(error)

    return endpoint


def _failure(error: Exception) -> Response:
    status = 404 if isinstance(error, DatasetOutOfBoundsError) else 400 if isinstance(error, ConfigError) else 500
    return JSONResponse({"error": f"{error}"[:2000] or type(error).__name__}, status)


def _number(given: Mapping[str, str], name: str, default: str = "") -> int:
    return _as_number(name, given.get(name, default))


def _as_number(name: str, text: str) -> int:
    if not (text.isascii() and text.removeprefix("-").isdigit() and len(text) < 20):
        raise ConfigError(f"{name} must be an integer, got {text!r:.40}")
    return int(text)


def _choice(given: Mapping[str, str], name: str, choices: Sequence[str]) -> str:
    text = given.get(name, choices[0])
    if text not in tuple(choices):
        raise ConfigError(f"{name} must be {' or '.join(choices)}, got {text!r:.40}")
    return text


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
