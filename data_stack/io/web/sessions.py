"""How requests is used: sessions whose connections are a process's own and read in time."""

from __future__ import annotations

import contextlib
import http.client
import io
import os
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import requests
import urllib3
from requests.adapters import HTTPAdapter
from requests.hooks import dispatch_hook
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError

from data_stack.exception import DataStackError
from data_stack.io.web.framing import is_chunked, refuse_framing

#: A size has at most 16 digits; a few servers add extensions behind it.
_MAX_CHUNK_LINE_BYTES: Final = 4096
_CHUNK_SIZE: Final = re.compile(rb"[0-9a-fA-F]{1,16}")
#: What may follow the last chunk; it is discarded.
_MAX_TRAILER_BYTES: Final = 64 << 10
#: The most that is read of an answer that asks for a login, before the login.
_MAX_REFUSAL_BYTES: Final = 64 << 10
_CLOSED: Final = (
    http.client.RemoteDisconnected,
    ConnectionResetError,
    BrokenPipeError,
    ssl.SSLEOFError,
)


class _Asking(threading.local):
    """The time that this thread's request has left, and whether its connection served another one before."""

    tick: Callable[[int], float] | None = (
        None  # None: the user asks by a session that was passed to use()
    )
    is_reused = False


_asking = _Asking()


class _TimedFile(io.RawIOBase):
    """Reads a socket, each time for as long as ``tick`` says; it is told how many bytes came the time before."""

    def __init__(self, file: Any, sock: socket.socket, tick: Callable[[int], float]) -> None:
        self._file, self._sock, self._tick, self._n_read = file, sock, tick, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            self._sock.settimeout(self._tick(self._n_read))
            self._n_read = 0
            with contextlib.suppress(TimeoutError):
                self._n_read = self._sock.recv_into(buffer)
                return self._n_read

    def close(self) -> None:
        self._file.close()
        super().close()


class _BadFraming(http.client.HTTPException):
    """It cannot be known where the body of an answer begins and ends."""


class _TimedAnswer(http.client.HTTPResponse):
    """An answer that comes in time, and whose framing is read strictly.

    http.client takes 102 and 103 for the last answer, reads trailers without end, and any text that ``int()`` accepts as the size
    of a chunk.
    """

    fp: Any

    def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        if _asking.tick is not None:
            self.fp = io.BufferedReader(_TimedFile(self.fp, sock, _asking.tick))

    def begin(self) -> None:
        super().begin()
        # As requests shows them: those that were sent twice are joined.
        headers = {
            name: ", ".join(self.headers.get_all(name, []))
            for name in ("Transfer-Encoding", "Content-Length")
        }
        if _asking.tick is not None and (reason := refuse_framing(headers)) is not None:
            raise _BadFraming(reason)  # of some, urllib3 would leave the connection open
        if is_chunked(headers) and not self.chunked:  # http.client does not strip a space behind it
            self.chunked = True
            self.chunk_left = None
            self.length = None
            self.will_close = self._check_close()  # type: ignore[attr-defined]

    def _read_status(self) -> tuple[str, int, str]:
        """The first status that is no interim one; begin() itself skips only 100."""
        while True:
            version, status, reason = super()._read_status()  # type: ignore[misc]
            if not 101 < status < 200:
                return version, status, reason
            http.client.parse_headers(self.fp)

    def _read_next_chunk_size(self) -> int:
        line = self.fp.readline(_MAX_CHUNK_LINE_BYTES)
        size, _, _ = line.partition(b";")
        if not line.endswith(b"\n") or not _CHUNK_SIZE.fullmatch(size.strip()):
            self._close_conn()  # type: ignore[attr-defined]
            raise ValueError("not a size of a chunk")  # http.client makes it an IncompleteRead
        return int(size, 16)

    def _read_and_discard_trailer(self) -> None:
        n_left = _MAX_TRAILER_BYTES
        while n_left > 0:
            line = self.fp.readline(n_left)
            n_left -= len(line)
            if line in (b"\r\n", b"\n", b""):
                return
        self._close_conn()  # type: ignore[attr-defined]
        raise http.client.LineTooLong("trailer")


class _Timed:
    """A connection whose answers come in time."""

    sock: socket.socket | None
    timeout: Any
    response_class = _TimedAnswer

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.socket_options = _OptionsInTime(getattr(self, "socket_options", None) or ())

    def request(self, *arguments: Any, **options: Any) -> None:
        _asking.is_reused = self.sock is not None
        if self.sock is not None:
            self.sock.settimeout(self.timeout)
        super().request(*arguments, **options)  # type: ignore[misc]  # of urllib3's connections


class _OptionsInTime(tuple[Any, ...]):
    """Options that each new socket gets, unless the time is over: a host may have many addresses that do not answer."""

    def __iter__(self) -> Iterator[Any]:
        try:
            if _asking.tick is not None:
                _asking.tick(0)
        except DataStackError:
            raise TimeoutError from None  # after which urllib3 closes the socket
        return super().__iter__()


def _timed(pool: type[HTTPConnectionPool]) -> type[HTTPConnectionPool]:
    return type(
        "_Pool", (pool,), {"ConnectionCls": type("_Connection", (_Timed, pool.ConnectionCls), {})}
    )


_POOLS: Final = {"http": _timed(HTTPConnectionPool), "https": _timed(HTTPSConnectionPool)}


class _Adapter(HTTPAdapter):
    def send(
        self, request: requests.PreparedRequest, *arguments: Any, **options: Any
    ) -> requests.Response:
        if _asking.tick is None:
            return super().send(request, *arguments, **options)
        while True:
            _asking.tick(0)
            _asking.is_reused = False
            try:
                answer = super().send(request, *arguments, **options)
                break
            except requests.ConnectionError as error:
                # A server may close a kept connection at any time; the next try takes another one, at last a new one.
                was_closed = any(isinstance(cause, _CLOSED) for cause in causes_of(error))
                if not (_asking.is_reused and was_closed):
                    raise
        # A login reads the body of the refusal whole, and then sends its next request through here as well.
        is_login = bool(request.hooks.get("response")) and answer.status_code in (401, 407)
        if is_login:
            answer.raw = _read_beginning(answer.raw)
        return answer

    def init_poolmanager(self, *arguments: Any, **options: Any) -> None:
        super().init_poolmanager(*arguments, **options)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        manager = super().proxy_manager_for(proxy, **options)
        if not proxy.lower().startswith("socks"):  # their connections have their own way to connect
            manager.pool_classes_by_scheme = _POOLS
        return manager


def _read_beginning(raw: urllib3.BaseHTTPResponse) -> urllib3.HTTPResponse:
    """An answer with at most the first 64 KiB of the body of another one, which are not decoded."""
    body = bytearray()
    with contextlib.closing(raw):
        while len(body) <= _MAX_REFUSAL_BYTES:
            piece = raw.read1(_MAX_REFUSAL_BYTES + 1 - len(body), decode_content=False)
            if not piece:
                break
            body += piece
    headers = urllib3.HTTPHeaderDict(raw.headers)
    headers.discard("Content-Encoding")
    headers.discard("Content-Length")
    headers.discard("Transfer-Encoding")
    return urllib3.HTTPResponse(
        io.BytesIO(body[:_MAX_REFUSAL_BYTES]),
        headers,
        raw.status,
        reason=raw.reason,
        preload_content=False,
        original_response=getattr(
            raw, "_original_response", None
        ),  # of which requests takes cookies
    )


_ours: Final = requests.Session()
_ours.headers.clear()
_ours.headers.update({"User-Agent": "data_stack", "Accept": "*/*"})
_of_users: Final = dict[Any, requests.Session]()


def use(origin: Any, session: requests.Session) -> None:
    """Send requests to an origin through a session of the user."""
    _mount(session)
    _of_users[origin] = session


def _mount(*sessions: requests.Session) -> None:
    for session in sessions or (_ours, *_of_users.values()):
        for scheme in ("http://", "https://"):
            session.mount(scheme, _Adapter(pool_maxsize=32))


_mount(_ours)
os.register_at_fork(after_in_child=_mount)  # a connection of the parent serves the parent only


def send(
    url: str,
    origin: Any,
    headers: Mapping[str, str],
    auth: Any,
    timeout_seconds: float,
    tick: Callable[[int], float],
) -> requests.Response:
    """The answer to one GET request, with its body unread; redirects are not followed, and no cookies are kept.

    Raises:
        WebError, requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError: there was none.
    """
    users = _of_users.get(origin)
    session = users or _ours
    # Without an ``auth``, requests would send the password in ~/.netrc.
    given = auth or (None if users else lambda request: request)
    request = session.prepare_request(
        requests.Request("GET", url, headers=dict(headers), auth=given)
    )
    # Given here, the session's own authorities come before those of the environment.
    settings: Any = session.merge_environment_settings(
        str(request.url), {}, True, session.verify, None
    )
    if settings["verify"] is True:  # Python's own name for it, which requests does not know
        settings["verify"] = os.environ.get("SSL_CERT_FILE") or True
    settings["timeout"] = (timeout_seconds / 2, timeout_seconds)
    tick(0)
    _asking.tick = tick
    try:
        # Session.send() would read the body of a redirect.
        answer = session.get_adapter(url).send(request, **settings)
        # Logins send further requests from here, which have the same time.
        return dispatch_hook("response", request.hooks, answer, **settings)  # type: ignore[no-any-return, no-untyped-call]
    finally:
        _asking.tick = None


def causes_of(error: BaseException) -> Iterator[BaseException]:
    """An error, and those that it was raised for: requests and urllib3 wrap them several times."""
    waiting, seen = [error], set[int]()
    while waiting:
        each = waiting.pop()
        if id(each) not in seen:
            seen.add(id(each))
            yield each
            inner = (*each.args, getattr(each, "reason", None), each.__cause__, each.__context__)
            waiting.extend(cause for cause in inner if isinstance(cause, BaseException))


def explain(error: Exception, timeout_seconds: float) -> tuple[str, bool] | None:
    """The message of a library's error, and whether a retry may help; None for an error of our own code."""
    if not isinstance(error, (OSError, ValueError, http.client.HTTPException, HTTPError)):
        return None
    causes = list(causes_of(error))
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its TLS certificate is refused: {cause.verify_message}", False
        if isinstance(cause, socket.gaierror):
            return f"the host cannot be found: {cause.strerror}", cause.errno == socket.EAI_AGAIN
        if isinstance(cause, http.client.IncompleteRead):
            return "the connection was cut", True
        if isinstance(cause, _BadFraming):
            return str(cause), False
    for cause in causes:
        if isinstance(cause, TimeoutError):
            return f"no answer within {timeout_seconds:g} s", True
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror[0].lower() + cause.strerror[1:], True
    return f"{type(causes[-1]).__name__}: {causes[-1]}", not isinstance(error, ValueError)
