"""Refuses requests that do not come from the user's own web browser."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from typing import Final

from data_stack.exception import MissingDependencyError

try:
    from starlette.middleware.base import BaseHTTPMiddleware
    from starlette.requests import Request
    from starlette.responses import PlainTextResponse, Response
    from starlette.types import ASGIApp
except ImportError as error:
    raise MissingDependencyError("data-stack browse", "starlette", "browse") from error

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
