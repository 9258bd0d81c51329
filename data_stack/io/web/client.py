"""GET requests with retries."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from data_stack.io.web.ranges import ByteRange as ByteRange

if TYPE_CHECKING:
    import requests

from data_stack.io.web.exchange import Exchange
from data_stack.io.web.limits import Limits, web_timeout
from data_stack.io.web.links import origin_of
from data_stack.io.web.retries import retrying

_Result = TypeVar("_Result")


def use_session(url: str, session: requests.Session) -> None:
    """Ask the server of a URL through a session of requests, in this process and those forked from it.

    Its headers, ``auth``, ``cert``, ``verify``, ``proxies`` and cookies are used for that scheme, host and port alone: nothing of
    it is sent to servers to which that one redirects. Its adapters are replaced, so that its requests have deadlines too::

        session = requests.Session()
        session.auth, session.verify = ("reader", password), "/etc/ssl/company.pem"
        data_stack.io.web.use_session("https://data.example.org", session)
    """
    from data_stack.io.web.sessions import use

    use(origin_of(url), session)


def ask(
    url: str,
    receive: Callable[[Exchange], _Result],
    limits: Limits,
    *,
    seconds: float = 0.0,
    **options: Any,
) -> _Result:
    """What ``receive`` makes of the answer to a GET request, which is repeated as :func:`retrying` says.

    Args:
        url: as for :class:`Exchange`.
        receive: checks and reads an answer.
        limits: of the retries and pauses.
        seconds: beyond which nothing is retried, after :func:`web_timeout`.
        options: of the exchange.

    Raises:
        WebError: as for :func:`retrying`.
    """
    n_received = 0

    def attempt(deadline: float) -> _Result:
        nonlocal n_received
        exchange = Exchange(url, limits=limits, deadline=deadline, **options)
        try:
            with exchange as answer:
                return receive(answer)
        finally:
            n_received = exchange.n_received

    deadline = time.monotonic() + web_timeout() + seconds
    return retrying(attempt, limits, deadline=deadline, progress=lambda: n_received)
