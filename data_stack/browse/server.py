"""Serves the pages of a browser on this machine until Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import hmac
import inspect
import json
import logging
import secrets
import socket
import threading
import webbrowser
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import FrameType
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
    raise MissingDependencyError(
        "data-stack browse", str(error.name).partition(".")[0], "browse"
    ) from error

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

    async def dispatch(
        self, request: Request, call_next: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        # All ports of a host share cookies, so the name contains the port that the client sees, also through ``ssh -L``.
        cookie = f"data_stack_{request.headers.get('host', '').rpartition(':')[2]}"
        given = request.query_params.get("token", "")
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        tokens = (given, bearer, request.cookies.get(cookie, ""))
        refusal = _refuse(request)
        if refusal is None and not any(
            hmac.compare_digest(each.encode(), self._token.encode()) for each in tokens
        ):
            text = "The token is missing or wrong. Open the whole URL that data-stack browse printed.\n"
            refusal = PlainTextResponse(text, 403)
        response = refusal or await call_next(request)
        if given and refusal is None:
            response.set_cookie(cookie, self._token, httponly=True, samesite="strict")
        response.headers.update(_HEADERS)
        response.headers.setdefault("cache-control", "no-store")
        return response


def _refuse(request: Request) -> Response | None:
    """The refusal of a request by method, Host or Origin; None if the request passes."""
    if request.method not in ("GET", "HEAD"):
        return PlainTextResponse("Only GET and HEAD are answered.\n", 405)
    host, headers = request.headers.get("host", ""), request.headers
    name, colon, port = host.rpartition(":")
    if (name if colon and port.isdigit() else host).lower() not in (
        "127.0.0.1",
        "localhost",
        "[::1]",
    ):
        return PlainTextResponse("The Host of a request must be 127.0.0.1 or localhost.\n", 403)
    # a link on another page may open this one
    is_link = (
        headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    )
    # Sent by our own pages and by the address bar; other pages send ``cross-site`` or ``same-site``.
    is_ours = is_link or headers.get("sec-fetch-site", "") in ("", "same-origin", "none")
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

    _timer: asyncio.TimerHandle  # closes the connection
    _idle_since: float

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
            self._timer.cancel()

    def on_response_complete(self) -> None:
        """Start waiting for the next request, unless it has already arrived."""
        super().on_response_complete()
        self._timer.cancel()
        if not self._is_answering():
            self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._timer.cancel()
        super().connection_lost(exc)

    def _is_answering(self) -> bool:
        """Whether the server answers a request, and the client reads the answer."""
        cycle: Any = self.cycle  # None before the first request
        return cycle is not None and not cycle.response_complete and not self.flow.write_paused

    def _wait_for_request(self) -> None:
        self._idle_since = self.loop.time()
        self._timer = self.loop.call_later(self.timeout_keep_alive, self.transport.abort)


_STATIC: Final = Path(__file__).with_name("static")


_CHOICES: Final = {"size": ("small", "large"), "run": ("0", "1")}


def make_app(browser: Browser, token: str) -> Guard:
    """An ASGI application that answers requests with the token."""
    questions = (
        browser.overview,
        browser.samples,
        browser.histograms,
        browser.sample,
        browser.compare,
        browser.duplicates,
    )
    threads = _DaemonThreads(MAX_CONNECTIONS)
    routes: list[BaseRoute] = [
        Route(f"/api/{question.__name__}", _endpoint(question, threads)) for question in questions
    ]
    routes.append(Route("/picture", _endpoint(browser.picture, threads)))
    routes.append(Route("/", lambda request: FileResponse(_STATIC / "index.html")))
    routes.append(Mount("/", StaticFiles(directory=_STATIC)))
    return Guard(Starlette(routes=routes), token)


class _TextResponse(JSONResponse):
    """JSON in ASCII: names of files may hold bytes that are no UTF-8, which Starlette cannot encode."""

    def render(self, content: Any) -> bytes:
        """The body of the answer."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


class _DaemonThreads:
    """Runs functions in threads that neither the event loop nor the program waits for when it ends.

    The threads of ``asyncio`` and ``anyio`` are waited for, so Ctrl-C would take as long as the slowest sample that is read.

    Args:
        n_threads: the most functions that run at a time.
    """

    def __init__(self, n_threads: int) -> None:
        self._n_free = asyncio.Semaphore(n_threads)

    async def run(self, function: Callable[[], Any]) -> Any:
        """What a function returns, which raises nothing."""
        loop = asyncio.get_running_loop()
        outcome = loop.create_future()

        def set_outcome(value: Any) -> None:
            if not outcome.done():  # else the request was cancelled
                outcome.set_result(value)

        def run() -> None:
            value = function()
            with contextlib.suppress(RuntimeError):  # the loop was closed
                loop.call_soon_threadsafe(set_outcome, value)

        async with self._n_free:
            threading.Thread(target=run, daemon=True).start()
            return await outcome


def _endpoint(
    question: Callable[..., Any], threads: _DaemonThreads
) -> Callable[[Request], Awaitable[Response]]:
    """Answers a request by a method, whose arguments are the parameters of the URL; others are ignored."""
    declared = inspect.signature(question).parameters
    required = {name: "" for name, each in declared.items() if each.default is each.empty}

    def answer_request(request: Request) -> Response:
        try:
            given = required | {
                name: text for name, text in request.query_params.items() if name in declared
            }
            answer = question(
                **{
                    name: _parse(name, text, declared[name].annotation)
                    for name, text in given.items()
                }
            )
            if not isinstance(answer, bytes):
                return _TextResponse(answer)
            # The URL of a picture contains a number of this run, so that those of another dataset on the port are never reused.
            kept = {"cache-control": "private, max-age=86400, immutable"}
            return Response(answer, media_type="image/png", headers=kept)
        except Exception as error:  # noqa: BLE001  # foreign code reads the samples; the page shows the error
            status = (
                404
                if isinstance(error, DatasetOutOfBoundsError)
                else 400
                if isinstance(error, ConfigError)
                else 500
            )
            return _TextResponse({"error": f"{error}"[:2000] or type(error).__name__}, status)

    async def endpoint(request: Request) -> Response:
        response: Response = await threads.run(functools.partial(answer_request, request))
        return response

    return endpoint


def _parse(name: str, text: str, kind: str) -> Any:
    """A parameter of the type that an argument declares."""
    if text not in (choices := _CHOICES.get(name, (text,))):
        raise ConfigError(f"{name} must be {' or '.join(choices)}, got {text!r:.40}")
    if kind == "str":
        return text
    if kind == "Sequence[int]":
        return [_parse(name, each, "int") for each in text.split(",") if each]
    if not (text.isascii() and text.removeprefix("-").isdigit() and len(text) < 20):
        raise ConfigError(f"{name} must be an integer, got {text!r:.40}")
    return int(text)


_HOST: Final = "127.0.0.1"


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

    _n_reported = 0

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
            # asyncio accepts as many at once, before a connection can close another one
            backlog=MAX_CONNECTIONS,
        )
        super().__init__(config)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End at once: a request that reads a slow sample is not waited for."""
        self.force_exit = True
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # it would report the request
        super().handle_exit(sig, frame)

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until Ctrl-C."""
        asyncio.get_running_loop().set_exception_handler(self._report)
        await super().serve(sockets)

    def _report(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        # A process without free file descriptors fails to accept a connection many times a second.
        self._n_reported += 1
        if self._n_reported <= 8:
            loop.default_exception_handler(context)


def _bind(port: int) -> socket.socket:
    try:
        return socket.create_server((_HOST, port))
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        why = (
            "is taken by another program"
            if error.errno == errno.EADDRINUSE
            else "needs more rights"
        )
        raise ConfigError(
            f"port {port} {why}; choose another one, or omit --port for any free port"
        ) from error
