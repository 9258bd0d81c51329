"""Sessions of requests, whose connections are kept alive, are a process's own, and can be cut by another thread."""

from __future__ import annotations

import functools
import os
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

import requests
from requests.adapters import HTTPAdapter
from requests.hooks import dispatch_hook
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

_CONNECTIONS: Final = 32

#: What the settings depend on.
_VARIABLES: Final = (
    *(name for each in ("http_proxy", "https_proxy", "all_proxy", "no_proxy") for name in (each, each.upper())),
    *("REQUEST_METHOD", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"),
)

#: The socket that serves the request of this thread is passed to ``line(socket, is_new)``.
_asking = threading.local()


class _Shown:
    """A connection that shows its socket before it is used: when it is connected, before TLS, and when it is used again."""

    sock: socket.socket | None

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "sock" and value is not None:
            _show(value, True)

    def request(self, *arguments: Any, **options: Any) -> None:
        if self.sock is not None:
            _show(self.sock, False)
        super().request(*arguments, **options)  # type: ignore[misc]  # of urllib3's connections


def _show(sock: socket.socket, is_new: bool) -> None:
    if (line := getattr(_asking, "line", None)) is not None:
        line(sock, is_new)


class _Connection(_Shown, HTTPConnection):
    pass


class _TLSConnection(_Shown, HTTPSConnection):
    pass


class _Pool(HTTPConnectionPool):
    ConnectionCls = _Connection


class _TLSPool(HTTPSConnectionPool):
    ConnectionCls = _TLSConnection


class _Adapter(HTTPAdapter):
    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **options)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _TLSPool}

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **options)
        if not proxy.lower().startswith("socks"):  # whose connections bring their own way to connect
            manager.pool_classes_by_scheme = {"http": _Pool, "https": _TLSPool}
        return manager


class _Sessions:
    """The sessions of this process: ours, and those of users by origin."""

    def __init__(self) -> None:
        self._ours, self._users = requests.Session(), dict[Any, requests.Session]()
        self._ours.headers.clear()
        self._ours.headers.update({"User-Agent": "data_stack", "Accept": "*/*"})
        self._mount(self._ours)
        # A connection of the parent serves the parent only.
        os.register_at_fork(after_in_child=self._mount_all)

    def use(self, origin: Any, session: requests.Session) -> None:
        self._mount(session)
        self._users[origin] = session

    def find(self, origin: Any) -> requests.Session | None:
        return self._users.get(origin)

    @property
    def ours(self) -> requests.Session:
        return self._ours

    def _mount_all(self) -> None:
        for session in (self._ours, *self._users.values()):
            self._mount(session)

    @staticmethod
    def _mount(session: requests.Session) -> None:
        for scheme in ("http://", "https://"):
            session.mount(scheme, _Adapter(pool_maxsize=_CONNECTIONS))


SESSIONS: Final = _Sessions()


def _settings(session: requests.Session, url: str) -> Any:
    """Proxies, certificates and authorities, of the session and the environment."""
    settings = session.merge_environment_settings(url, {}, True, None, None)
    if settings["verify"] is True:  # Python's own name for it, which requests does not know
        settings["verify"] = os.environ.get("SSL_CERT_FILE") or True
    return settings


@functools.lru_cache(64)
def _own_settings(origin: str, _environment: tuple[str | None, ...]) -> Any:
    # To find the proxies, Python reads all of the environment: a quarter of the time of a small request.
    return _settings(SESSIONS.ours, origin)


def _without_credentials(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


def send(
    url: str,
    origin: Any,
    headers: Mapping[str, str],
    auth: tuple[bytes, bytes] | None,
    timeout_seconds: float,
    line: Callable[[socket.socket, bool], None],
) -> requests.Response:
    """The answer to one GET request, with its body unread; redirects are not followed, and no cookies are kept.

    Raises:
        requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError: there was none.
    """
    users = SESSIONS.find(origin)
    session = users or SESSIONS.ours
    # Without an ``auth``, requests would send the password in ~/.netrc.
    given: Any = auth or (None if users else _without_credentials)
    request = session.prepare_request(requests.Request("GET", url, headers=dict(headers), auth=given))
    root = "/".join(str(request.url).split("/", 3)[:3])
    settings = _settings(users, root) if users else _own_settings(root, tuple(map(os.environ.get, _VARIABLES)))
    _asking.line = line
    try:
        # Session.send() would read the body of a redirect.
        answer = session.get_adapter(url).send(request, timeout=(timeout_seconds / 2, timeout_seconds), **settings)
        return dispatch_hook("response", request.hooks, answer, **settings)  # type: ignore[no-any-return, no-untyped-call]
    finally:
        _asking.line = None
