"""Adapters that let sessions of ``requests`` send over connections with deadlines."""

from __future__ import annotations

import contextlib
import functools
import io
from collections.abc import Callable
from typing import Any, Final, TypeVar

import requests
import urllib3
from requests.adapters import HTTPAdapter

from data_stack.io.web.connections import TIMED_POOLS, TimedRequest, current_request
from data_stack.io.web.failures import is_closed_by_server

_Answer = TypeVar("_Answer")

#: The most that is read of an answer that asks for a login, before the login.
_MAX_REFUSAL_BYTES: Final = 64 << 10
#: How many idle connections to a host are kept.
_MAX_KEPT_CONNECTIONS: Final = 32


class TimedAdapter(HTTPAdapter):
    """Sends requests over connections that obey :func:`~data_stack.io.web.connections.sending`."""

    def send(
        self,
        request: requests.PreparedRequest,
        stream: bool = False,
        timeout: Any = None,
        verify: Any = True,
        cert: Any = None,
        proxies: Any = None,
    ) -> requests.Response:
        send_once = functools.partial(
            super().send,
            request,
            stream=stream,
            timeout=timeout,
            verify=verify,
            cert=cert,
            proxies=proxies,
        )
        timed_request = current_request()
        if timed_request is None:
            return send_once()

        answer = send_over_live_connection(send_once, timed_request)
        # The hook of a login reads the body of the refusal whole, and sends its own requests.
        has_login_hook = bool(request.hooks.get("response"))
        if has_login_hook and answer.status_code in (401, 407):
            answer.raw = _read_beginning(answer.raw)
        return answer

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **options)
        self.poolmanager.pool_classes_by_scheme = TIMED_POOLS

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **options)
        # A SOCKS proxy has its own connections, which know the way through it.
        if not proxy.lower().startswith("socks"):
            manager.pool_classes_by_scheme = TIMED_POOLS
        return manager


def mount_adapters(session: requests.Session) -> None:
    """Give a session new adapters, and so new connections."""
    for scheme in ("http://", "https://"):
        session.mount(scheme, TimedAdapter(pool_maxsize=_MAX_KEPT_CONNECTIONS))


def send_over_live_connection(
    send_once: Callable[[], _Answer], timed_request: TimedRequest
) -> _Answer:
    """Send a request, again as long as it meets kept connections that the server has closed.

    A server may close a kept connection at any time. Each try uses up one of them, and the last try
    makes a new connection.

    Args:
        send_once: sends the request, and returns the answer.
        timed_request: the request, as its connection sees it.
    """
    while True:
        timed_request.tick(0)
        timed_request.uses_kept_connection = False
        try:
            return send_once()
        except (requests.ConnectionError, urllib3.exceptions.HTTPError) as error:
            if not timed_request.uses_kept_connection or not is_closed_by_server(error):
                raise


def _read_beginning(raw: urllib3.BaseHTTPResponse) -> urllib3.HTTPResponse:
    """Replace an answer by one whose body is the first 64 KiB of its body, not decoded.

    The given answer is closed.
    """
    body = bytearray()
    with contextlib.closing(raw):
        while len(body) < _MAX_REFUSAL_BYTES:
            n_missing = _MAX_REFUSAL_BYTES - len(body)
            piece = raw.read1(n_missing, decode_content=False)
            if not piece:
                break
            body += piece

    headers = urllib3.HTTPHeaderDict(raw.headers)
    for name in ("Content-Encoding", "Content-Length", "Transfer-Encoding"):
        headers.discard(name)
    return urllib3.HTTPResponse(
        io.BytesIO(body),
        headers,
        raw.status,
        reason=raw.reason,
        preload_content=False,
        # requests takes cookies from it.
        original_response=getattr(raw, "_original_response", None),
    )
