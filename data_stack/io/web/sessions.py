"""Sends requests: by our own session, or by those that users give for a server."""

from __future__ import annotations

import base64
import functools
import os
from collections.abc import Callable, Mapping
from typing import Any, Final

import requests
import urllib3
from requests.hooks import dispatch_hook

from data_stack.io.log_secrets import hide_secrets_in_logs_of
from data_stack.io.web.adapters import mount_adapters, send_over_live_connection
from data_stack.io.web.connections import TimedRequest, sending
from data_stack.io.web.direct_answer import Answer
from data_stack.io.web.links import Origin
from data_stack.io.web.routes import Routes, settings_for, target_of

#: What our requests have in place of the headers of requests.
_OUR_HEADERS: Final = {"User-Agent": "data_stack", "Accept": "*/*"}

#: urllib3 repeats nothing, and raises each error as it is.
_NO_RETRIES: Final = urllib3.Retry(False, redirect=False)

#: The routes to all servers for which the user gives no session.
_our_routes: Final = Routes(requests.Session())
#: The sessions of the user by scheme, host and port.
_user_sessions: Final = dict[Origin, requests.Session]()


def _drop_connections_of_parent() -> None:
    """Give all sessions new connections in a forked process: the old ones serve the parent."""
    _our_routes.drop_connections()
    for session in _user_sessions.values():
        mount_adapters(session)


os.register_at_fork(after_in_child=_drop_connections_of_parent)

# It logs the URL of each request, with its signature.
hide_secrets_in_logs_of("urllib3.connectionpool")


def set_session(origin: Origin, session: requests.Session) -> None:
    """Send requests to an origin through a session of the user, whose adapters are replaced."""
    mount_adapters(session)
    _user_sessions[origin] = session


def send(
    url: str,
    origin: Origin,
    *,
    headers: Mapping[str, str],
    auth: tuple[bytes, bytes] | None,
    timeout_seconds: float,
    tick: Callable[[int], float],
) -> Answer:
    """Send one GET request; redirects are not followed, and no cookies are kept.

    Args:
        url: the URL, without user and password.
        origin: the scheme, host and port of the URL.
        headers: the headers.
        auth: user and password; None for the ``auth`` of the user's session, or for none if there
            is no such session.
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
    tick(0)
    timed_request = TimedRequest(tick)
    with sending(timed_request):
        if user_session is None:
            return _send_by_route(url, headers, auth, timeout_seconds, timed_request)
        return _send_by_session(user_session, url, headers, auth, timeout_seconds)


def _send_by_route(
    url: str,
    headers: Mapping[str, str],
    auth: tuple[bytes, bytes] | None,
    timeout_seconds: float,
    timed_request: TimedRequest,
) -> Answer:
    """Send a request for which the user gives no session.

    The connections of requests are used without requests: its preparation of a request and its
    answer take as much processor time again.
    """
    target = target_of(url)
    route = _our_routes.route_to(target.server)
    timed_request.is_direct = route.pool.proxy is None
    sent_headers = _merge_headers(_OUR_HEADERS, headers)
    if auth is not None:
        sent_headers = _merge_headers(sent_headers, {"Authorization": _basic_login(*auth)})
    send_once = functools.partial(
        route.pool.urlopen,
        "GET",
        route.name_of(target),
        headers=sent_headers,
        timeout=_timeout_of(timeout_seconds),
        retries=_NO_RETRIES,
        redirect=False,
        # A proxy is asked for the URLs of other hosts.
        assert_same_host=False,
        preload_content=False,
        decode_content=False,
    )
    return send_over_live_connection(send_once, timed_request)


def _send_by_session(
    session: requests.Session,
    url: str,
    headers: Mapping[str, str],
    auth: tuple[bytes, bytes] | None,
    timeout_seconds: float,
) -> Answer:
    """Send a request by a session of the user.

    Its settings are read for each request, as the user may change them at any time.
    """
    request = session.prepare_request(
        requests.Request("GET", url, headers=dict(headers), auth=auth)
    )
    settings = settings_for(session, str(request.url))
    settings["timeout"] = (timeout_seconds / 2, timeout_seconds)

    # Not Session.send(), which would read the body of a redirect.
    answer = session.get_adapter(url).send(request, **settings)
    # Logins send further requests from their hooks, in the same time.
    dispatch: Any = dispatch_hook  # it has no types
    final_answer: requests.Response = dispatch("response", request.hooks, answer, **settings)
    return final_answer.raw


@functools.lru_cache(maxsize=16)
def _timeout_of(seconds: float) -> urllib3.Timeout:
    return urllib3.Timeout(connect=seconds / 2, read=seconds)


def _merge_headers(*groups: Mapping[str, str]) -> dict[str, str]:
    """Return headers of several groups. A later one replaces one whose name differs in case."""
    headers: dict[str, tuple[str, str]] = {}
    for group in groups:
        for name, value in group.items():
            headers[name.lower()] = (name, value)
    return dict(headers.values())


def _basic_login(user: bytes, password: bytes) -> str:
    """Return the ``Authorization`` of a user: https://www.rfc-editor.org/rfc/rfc7617."""
    return f"Basic {base64.b64encode(user + b':' + password).decode()}"
