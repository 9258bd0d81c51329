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
    """Return what ``receive`` makes of the answer to a GET request.

    The request is repeated as :func:`~data_stack.io.web.retrying` says.

    Args:
        url: as for :class:`~data_stack.io.web.Exchange`.
        receive: checks and reads an answer.
        limits: the limits of retries and pauses.
        seconds: how long after :func:`~data_stack.io.web.web_timeout` the last retry may begin.
        headers: as for :class:`~data_stack.io.web.Exchange`.
        own_headers: as for :class:`~data_stack.io.web.Exchange`.
        byte_range: as for :class:`~data_stack.io.web.Exchange`.
        may_be_encoded: as for :class:`~data_stack.io.web.Exchange`.
        timeout_seconds: as for :class:`~data_stack.io.web.Exchange`.
        max_redirects: as for :class:`~data_stack.io.web.Exchange`.

    Raises:
        WebError: as for :func:`~data_stack.io.web.retrying`.
    """
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

    deadline = time.monotonic() + web_timeout() + seconds
    return retrying(attempt, limits, deadline=deadline, progress=lambda: n_received)


def use_session(url: str, session: requests.Session) -> None:
    """Ask the server of a URL through a session of requests.

    This holds for this process, and for those that are forked from it. The headers, ``auth``,
    ``cert``, ``verify``, ``proxies`` and cookies of the session are used for the scheme, host and
    port of the URL alone: none of them is sent to a server to which that one redirects. The
    adapters of the session are replaced, so that its requests have deadlines too::

        session = requests.Session()
        session.auth = ("reader", password)
        session.verify = "/etc/ssl/company.pem"
        data_stack.io.web.use_session("https://data.example.org", session)
    """
    # Imported here, so that data_stack is imported without requests.
    from data_stack.io.web.sessions import set_session

    set_session(origin_of(url), session)
