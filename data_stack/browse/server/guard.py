"""Decides which requests are answered, and adds the headers that protect the pages."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from typing import Final

from starlette.datastructures import Headers
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp

#: What the pages may load: nothing from elsewhere, no script or style within a page.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "media-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
#: The headers of all answers.
_HEADERS: Final = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}

#: The names of this machine, as they stand in the Host of a request.
_NAMES_OF_THIS_MACHINE: Final = ("127.0.0.1", "localhost", "[::1]")

#: Values of the header Sec-Fetch-Site that are accepted: an old browser sends no such header, our
#: pages send ``same-origin``, and the address bar ``none``. Other pages send ``cross-site`` or
#: ``same-site``.
_ACCEPTED_SITES: Final = ("", "same-origin", "none")

_HOW_TO_OPEN: Final = (
    "The token is missing or wrong. Open the whole URL that data-stack browse printed.\n"
)


class Guard(BaseHTTPMiddleware):
    """Refuses requests before ``app`` sees them, and adds headers to the answers.

    The token comes in the URL of the first page, which sets a cookie, or in an
    ``Authorization: Bearer`` header. Host and Origin must be names of this machine, so that a web
    site whose name resolves to 127.0.0.1 (DNS rebinding) reads nothing. Any port is allowed,
    because ``ssh -L`` may forward another one.

    Answers are not cached, unless ``app`` says so.

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
        reason = _why_refused(request)
        if request.method not in ("GET", "HEAD"):
            response: Response = PlainTextResponse("Only GET and HEAD are answered.\n", 405)
        elif reason is not None:
            response = PlainTextResponse(reason, 403)
        elif not self._has_token(request):
            response = PlainTextResponse(_HOW_TO_OPEN, 403)
        else:
            response = await call_next(request)
            if request.query_params.get("token"):
                cookie = _name_of_cookie(request)
                response.set_cookie(cookie, self._token, httponly=True, samesite="strict")
        response.headers.update(_HEADERS)
        response.headers.setdefault("cache-control", "no-store")
        return response

    def _has_token(self, request: Request) -> bool:
        """Return whether the URL, a header or a cookie of a request has the token.

        ``hmac.compare_digest`` takes the same time for any wrong token, so that the time of an
        answer does not reveal how much of a guess is right.
        """
        given_tokens = (
            request.query_params.get("token", ""),
            request.headers.get("authorization", "").removeprefix("Bearer "),
            request.cookies.get(_name_of_cookie(request), ""),
        )
        secret = self._token.encode()
        return any(hmac.compare_digest(given.encode(), secret) for given in given_tokens)


def _name_of_cookie(request: Request) -> str:
    """Return the name of the cookie that holds the token.

    All ports of a host share cookies, so the name contains the port. It is the port that the client
    sees, also through ``ssh -L``.
    """
    _, _, port = request.headers.get("host", "").rpartition(":")
    return f"data_stack_{port}"


def _why_refused(request: Request) -> str | None:
    """Return why the Host or the Origin of a request is refused; None if the request passes."""
    host = request.headers.get("host", "")
    if _without_port(host).lower() not in _NAMES_OF_THIS_MACHINE:
        return "The Host of a request must be 127.0.0.1 or localhost.\n"
    our_origin = f"http://{host}"
    has_other_origin = request.headers.get("origin", our_origin) != our_origin
    if has_other_origin or not _is_accepted_sender(request.headers):
        return "Requests from other pages are refused.\n"
    return None


def _without_port(host: str) -> str:
    """Return ``"[::1]"`` of ``"[::1]:8000"``, and ``"localhost"`` of ``"localhost"``."""
    name, colon, port = host.rpartition(":")
    has_port = colon and port.isdigit()
    return name if has_port else host


def _is_accepted_sender(headers: Headers) -> bool:
    """Return whether our pages, the address bar, or a link on another page sent a request."""
    opens_page = headers.get("sec-fetch-mode") == "navigate"
    is_whole_tab = headers.get("sec-fetch-dest") == "document"
    is_link = opens_page and is_whole_tab
    return is_link or headers.get("sec-fetch-site", "") in _ACCEPTED_SITES
