"""Sessions of ``requests``: our own, and those that users give for a server."""

from __future__ import annotations

import contextlib
import functools
import io
import os
from collections.abc import Callable, Mapping
from typing import Any, Final

import requests
import urllib3
from requests.adapters import HTTPAdapter
from requests.hooks import dispatch_hook

from data_stack.io.web.connections import TIMED_POOLS, TimedRequest, current_request, sending
from data_stack.io.web.failures import is_closed_by_server
from data_stack.io.web.links import Origin

#: The most that is read of an answer that asks for a login, before the login.
_MAX_REFUSAL_BYTES: Final = 64 << 10
#: How many idle connections to a host are kept.
_MAX_KEPT_CONNECTIONS: Final = 32


class _TimedAdapter(HTTPAdapter):
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

        answer = _send_over_live_connection(send_once, timed_request)
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


def _send_over_live_connection(
    send_once: Callable[[], requests.Response], timed_request: TimedRequest
) -> requests.Response:
    """Send a request, again as long as it meets kept connections that the server has closed.

    A server may close a kept connection at any time. Each try uses up one of them, and the last try
    makes a new connection.
    """
    while True:
        timed_request.tick(0)
        timed_request.uses_kept_connection = False
        try:
            return send_once()
        except requests.ConnectionError as error:
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


def _mount_adapters(session: requests.Session) -> None:
    """Give a session new adapters, and so new connections."""
    for scheme in ("http://", "https://"):
        session.mount(scheme, _TimedAdapter(pool_maxsize=_MAX_KEPT_CONNECTIONS))


def _new_session() -> requests.Session:
    """Return a session whose requests have our own headers instead of those of requests."""
    session = requests.Session()
    session.headers.clear()
    session.headers.update({"User-Agent": "data_stack", "Accept": "*/*"})
    _mount_adapters(session)
    return session


#: The session for all servers for which the user gives none.
_our_session: Final = _new_session()
#: The sessions of the user by scheme, host and port.
_user_sessions: Final = dict[Origin, requests.Session]()


def _drop_connections_of_parent() -> None:
    """Give all sessions new connections in a forked process: the old ones serve the parent."""
    _mount_adapters(_our_session)
    for session in _user_sessions.values():
        _mount_adapters(session)


os.register_at_fork(after_in_child=_drop_connections_of_parent)


def set_session(origin: Origin, session: requests.Session) -> None:
    """Send requests to an origin through a session of the user, whose adapters are replaced."""
    _mount_adapters(session)
    _user_sessions[origin] = session


def send(
    url: str,
    origin: Origin,
    *,
    headers: Mapping[str, str],
    auth: Any,
    timeout_seconds: float,
    tick: Callable[[int], float],
) -> requests.Response:
    """Send one GET request; redirects are not followed, and no cookies are kept.

    Args:
        url: the URL, without user and password.
        origin: the scheme, host and port of the URL.
        headers: the headers.
        auth: user and password, or another ``auth`` of requests; None for the ``auth`` of the
            user's session, or for none if there is no such session.
        timeout_seconds: limit of each read. Connecting to an address may take half of it.
        tick: how long to wait; see :class:`~data_stack.io.web.connections.TimedRequest`.

    Returns:
        The answer, with its body unread.

    Raises:
        WebError: raised by ``tick``.
        requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError: no answer
        came.
    """
    user_session = _user_sessions.get(origin)
    session = _our_session if user_session is None else user_session
    if auth is None and user_session is None:
        # Without an ``auth``, requests would send the password in ~/.netrc.
        auth = _send_no_password
    request = session.prepare_request(
        requests.Request("GET", url, headers=dict(headers), auth=auth)
    )
    settings = _settings_for(session, str(request.url))
    settings["timeout"] = (timeout_seconds / 2, timeout_seconds)

    tick(0)
    with sending(TimedRequest(tick)):
        # Not Session.send(), which would read the body of a redirect.
        answer = session.get_adapter(url).send(request, **settings)
        # Logins send further requests from their hooks, in the same time.
        dispatch: Any = dispatch_hook  # it has no types
        final_answer: requests.Response = dispatch("response", request.hooks, answer, **settings)
        return final_answer


def _send_no_password(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Leave a request as it is; an ``auth`` of requests may add headers."""
    return request


def _settings_for(session: requests.Session, url: str) -> dict[str, Any]:
    """Return the settings of a session for a URL, completed from the environment.

    They are the proxies, the client's certificate and the certificate authorities.
    """
    # The verify= of the session is passed, so that it comes before the environment's.
    settings: Any = session.merge_environment_settings(url, {}, True, session.verify, None)
    if settings["verify"] is True:
        # The name that Python itself uses, and that requests does not know.
        settings["verify"] = os.environ.get("SSL_CERT_FILE") or True
    return dict(settings)
