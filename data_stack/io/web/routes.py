"""Finds the connections that lead to a server: directly, or through a proxy."""

from __future__ import annotations

import functools
import os
import time
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import requests
from urllib3.connectionpool import HTTPConnectionPool

from data_stack.io.web.adapters import mount_adapters

#: The name that Python itself uses for a file of certificate authorities; requests ignores it.
_PYTHON_CA_VARIABLE: Final = "SSL_CERT_FILE"
#: The variables of the environment that decide about proxies and certificate authorities. (With
#: REQUEST_METHOD a program is a CGI script, whose HTTP_PROXY comes from a stranger.)
_VARIABLES: Final = (
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "REQUEST_METHOD",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    _PYTHON_CA_VARIABLE,
)
#: Windows and macOS have settings of proxies besides the environment. A change of those holds after
#: this time.
_MAX_AGE_SECONDS: Final = 60.0
#: How many servers are remembered.
_MAX_ROUTES: Final = 64


class Target(NamedTuple):
    """What a URL names, encoded for a request.

    Attributes:
        server: the URL of the server, such as ``"https://example.org:8443/"``.
        path: the path and query.
        url: the whole URL.
    """

    server: str
    path: str
    url: str


@functools.lru_cache(maxsize=256)
def target_of(url: str) -> Target:
    """Return what a URL names. Many requests are for parts of one file.

    Args:
        url: the URL, without user and password.

    Raises:
        ValueError: requests cannot send a request to this URL.
    """
    request = requests.PreparedRequest()
    request.prepare_url(url, None)
    encoded_url = str(request.url)
    parts = urlsplit(encoded_url)
    return Target(f"{parts.scheme}://{parts.netloc}/", request.path_url, encoded_url)


@dataclass(frozen=True, slots=True)
class Route:
    """How requests get to a server.

    Attributes:
        pool: the connections to the server, or to its proxy.
        is_forwarded: whether a proxy forwards the requests, so that they name the whole URL.
        environment: the variables of the environment that led to this route.
        found_at: the monotonic time at which it was found.
    """

    pool: HTTPConnectionPool
    is_forwarded: bool
    environment: tuple[str | None, ...]
    found_at: float

    def name_of(self, target: Target) -> str:
        """Return how a request names its target."""
        return target.url if self.is_forwarded else target.path


class Routes:
    """The routes of a session of ours. Threads may share it.

    requests reads the whole environment for each request, which takes 0.4 ms of processor time: as
    much as the rest of the request. So a route is found once for a server, and again when a
    variable for proxies or certificate authorities changes.

    Args:
        session: the session, which nothing else uses.
    """

    _session: requests.Session
    #: By the URL of the server.
    _routes: dict[str, Route]

    def __init__(self, session: requests.Session) -> None:
        self._session = session
        self._routes = {}
        mount_adapters(session)

    def route_to(self, server: str) -> Route:
        """Return the route to a server.

        Args:
            server: the URL of the server; see :class:`Target`.

        Raises:
            requests.RequestException, OSError, ValueError: the settings of the environment are
            wrong, such as a file of certificate authorities that does not exist.
        """
        now = time.monotonic()
        environment = _relevant_environment()
        route = self._routes.get(server)
        if route is not None:
            is_recent = now - route.found_at < _MAX_AGE_SECONDS
            if is_recent and route.environment == environment:
                return route

        route = self._find_route(server, environment, now)
        if len(self._routes) >= _MAX_ROUTES:
            self._routes.clear()
        self._routes[server] = route
        return route

    def drop_connections(self) -> None:
        """Begin without connections and routes, in a forked process: they serve the parent."""
        mount_adapters(self._session)
        self._routes = {}

    def _find_route(self, server: str, environment: tuple[str | None, ...], now: float) -> Route:
        settings = settings_for(self._session, server)
        verify = settings["verify"]
        certificate = settings["cert"]
        proxies = settings["proxies"]
        request = requests.PreparedRequest()
        request.prepare_url(server, None)

        # What HTTPAdapter.send() does for each request.
        adapter: Any = self._session.get_adapter(server)
        pool = adapter.get_connection_with_tls_context(
            request, verify, proxies=proxies, cert=certificate
        )
        adapter.cert_verify(pool, server, verify, certificate)
        is_forwarded = adapter.request_url(request, proxies) != request.path_url
        return Route(pool, is_forwarded, environment, now)


def settings_for(session: requests.Session, url: str) -> dict[str, Any]:
    """Return the settings of a session for a URL, completed from the environment.

    They are the proxies, the client's certificate and the certificate authorities.
    """
    # The verify= of the session is passed, so that it comes before the environment's.
    settings: Any = session.merge_environment_settings(url, {}, True, session.verify, None)
    if settings["verify"] is True:
        settings["verify"] = os.environ.get(_PYTHON_CA_VARIABLE) or True
    return dict(settings)


def _relevant_environment() -> tuple[str | None, ...]:
    """Return the values of the variables on which a route depends."""
    return tuple(map(os.environ.get, _VARIABLES))
