"""Lets only the user's own browser in: a token, loopback names, no foreign page, nothing but reading."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final
from urllib.parse import parse_qs

__all__ = ["Guard"]

_Scope = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
_Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_App = Callable[[_Scope, _Receive, _Send], Awaitable[None]]

_HOSTS: Final = frozenset(("127.0.0.1", "localhost", "[::1]"))
#: What a page of ours, or the address bar, sends; other pages send ``cross-site`` or ``same-site``.
_OWN_SITES: Final = frozenset(("", "same-origin", "none"))
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; media-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)


class Guard:
    """ASGI middleware that refuses requests before ``app`` sees them, and adds headers to its answers.

    The token comes in the URL of the first page, which sets a cookie, or in an ``Authorization: Bearer`` header. Host and Origin
    must be names of this machine, so that a web site whose name resolves to 127.0.0.1 (DNS rebinding) reads nothing; the port may
    be another one, as it is behind ``ssh -L``.

    Args:
        app: answers the requests that pass.
        token: the secret.
    """

    def __init__(self, app: _App, token: str) -> None:
        self._app, self._token = app, token

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        if scope["type"] != "http":
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        given = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[-1]
        # Cookies are shared by all ports of a host. The port of this one is what the client sees, be it through ``ssh -L``.
        name = f"data_stack_{headers.get('host', '').rpartition(':')[2]}"
        refusal = _refusal(scope["method"], headers) or self._check_token(headers, given, name)

        async def send_guarded(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
                if given and refusal is None:
                    cookie = f"{name}={self._token}; HttpOnly; SameSite=Strict; Path=/"
                    message["headers"].append((b"set-cookie", cookie.encode()))
            await send(message)

        if refusal is None:
            await self._app(scope, receive, send_guarded)
            return
        status, text = refusal
        kind = [(b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store")]
        await send_guarded({"type": "http.response.start", "status": status, "headers": kind})
        await send({"type": "http.response.body", "body": text.encode()})

    def _check_token(self, headers: MutableMapping[str, str], given: str, name: str) -> tuple[int, str] | None:
        cookies = dict(pair.strip().partition("=")[::2] for pair in headers.get("cookie", "").split(";"))
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        candidates = (given, bearer, cookies.get(name, ""))
        if any(hmac.compare_digest(each.encode(), self._token.encode()) for each in candidates):
            return None
        return 403, "The token is missing or wrong. Open the whole URL that data-stack browse printed.\n"


def _refusal(method: str, headers: MutableMapping[str, str]) -> tuple[int, str] | None:
    """Status and text of a refusal that does not depend on the token; None if the request passes."""
    if method not in ("GET", "HEAD"):
        return 405, "Only GET and HEAD are answered.\n"
    host = headers.get("host", "")
    if _name_of(host) not in _HOSTS:
        return 403, "The Host of a request must be 127.0.0.1 or localhost.\n"
    if headers.get("origin", f"http://{host}") != f"http://{host}" or headers.get("sec-fetch-site", "") not in _own_sites(
        headers
    ):
        return 403, "Requests of other pages are refused.\n"
    return None


def _name_of(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name.lower() if colon and port.isdigit() else host.lower()


def _own_sites(headers: MutableMapping[str, str]) -> frozenset[str]:
    """The values of Sec-Fetch-Site that pass; a link in another page may open this one."""
    is_link = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    return _OWN_SITES | {"cross-site", "same-site"} if is_link else _OWN_SITES
