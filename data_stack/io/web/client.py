"""Asks web servers: one GET request, repeated where that may help."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from data_stack.io.web.exchange import Exchange
from data_stack.io.web.limits import Limits, web_timeout
from data_stack.io.web.links import origin_of
from data_stack.io.web.ranges import ByteRange
from data_stack.io.web.retries import retrying

if TYPE_CHECKING:
    import requests

_Result = TypeVar("_Result")


def ask(
    url: str,
    receive: Callable[[Exchange], _Result],
    limits: Limits,
    *,
    seconds: float = 0.0,
    headers: Mapping[str, str] = MappingProxyType({}),
    own_headers: Mapping[str, str] = MappingProxyType({}),
    byte_range: ByteRange | None = None,
    may_be_encoded: bool = False,
    timeout_seconds: float | None = None,
    max_redirects: int = 5,
) -> _Result:
    """Send a GET request, and return what ``receive`` makes of the answer.

    The request is repeated after a transient error, as :func:`~data_stack.io.web.retrying` says.
    The arguments that are not described here are those of :class:`~data_stack.io.web.Exchange`.

    Args:
        url: the URL.
        receive: checks and reads an answer; called once for each request that was answered.
        limits: the limits of retries and pauses.
        seconds: time for pauses and retries. The last retry begins at most this long after
            ``timeout_seconds``.
        headers: headers for all servers.
        own_headers: headers for the server of ``url`` only, such as a token.
        byte_range: the part to ask for; None for the whole file.
        may_be_encoded: whether a whole file with a ``Content-Encoding`` is accepted.
        timeout_seconds: the longest silence of a server; None for
            :func:`~data_stack.io.web.web_timeout`.
        max_redirects: how many redirects are followed.

    Raises:
        WebError: the last request failed, or ``receive`` raised it.
    """
    if timeout_seconds is None:
        timeout_seconds = web_timeout()
    # How many bytes the last request received.
    n_received = 0

    def attempt(deadline: float) -> _Result:
        nonlocal n_received
        exchange = Exchange(
            url,
            headers=headers,
            own_headers=own_headers,
            byte_range=byte_range,
            may_be_encoded=may_be_encoded,
            timeout_seconds=timeout_seconds,
            limits=limits,
            deadline=deadline,
            max_redirects=max_redirects,
        )
        try:
            with exchange:
                return receive(exchange)
        finally:
            n_received = exchange.n_received

    def progress() -> int:
        return n_received

    deadline = time.monotonic() + timeout_seconds + seconds
    return retrying(attempt, limits, deadline=deadline, progress=progress)


def use_session(url: str, session: requests.Session) -> None:
    """Send all requests to the server of a URL through a session of the user.

    This holds for this process, and for those that are forked from it. The headers, ``auth``,
    ``cert``, ``verify``, ``proxies`` and cookies of the session are used for the scheme, host and
    port of the URL alone: none of them is sent to a server to which that one redirects. The
    adapters of the session are replaced, so that its requests have deadlines too::

        session = requests.Session()
        session.auth = ("reader", password)
        session.verify = "/etc/ssl/company.pem"
        data_stack.io.web.use_session("https://data.example.org", session)

    Args:
        url: any URL of the server.
        session: the session. It may be used for other requests as well.
    """
    # Imported here, so that data_stack is imported without requests.
    from data_stack.io.web.sessions import set_session

    set_session(origin_of(url), session)
