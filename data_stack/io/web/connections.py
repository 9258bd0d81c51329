"""Connections of urllib3 that obey the deadline of a request, and read answers strictly.

Between ``requests`` and a socket stand a pool and a connection of urllib3, which pass on two
numbers: the timeout of connecting, and that of each read. A server that sends a byte now and then,
or a host with many addresses that do not answer, keeps both within their timeouts for ever. So each
step here asks the ``tick`` of its request how long it may wait.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import re
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.util.connection import allowed_gai_family

from data_stack.io.web.direct_answer import DirectAnswer, HeaderFields
from data_stack.io.web.framing import Framing
from data_stack.io.web.header_lines import read_fields

#: A thread that waits for a body wakes up once so many bytes have come. Otherwise it wakes up for
#: each packet, and takes the interpreter from other threads each time: 768 KiB that came 8 KiB at a
#: time took 2.0 ms of processor time, and 0.9 ms in this way. (16 threads that received ranges of
#: 1.4 MiB took 1.17 s a GiB, and 1.27 s with half of this number.)
_WAKE_UP_BYTES: Final = 512 << 10
#: Reads of at least this length are reads of a body whose length is known. Those of a header are as
#: long as the buffer of io.BufferedReader, 8 KiB, and may end earlier.
_MIN_BODY_READ_BYTES: Final = 32 << 10

#: A size has at most 16 digits; a few servers add extensions behind it.
_MAX_CHUNK_LINE_BYTES: Final = 4096
_CHUNK_SIZE: Final = re.compile(rb"[0-9a-fA-F]{1,16}")
#: What a request may name, and the headers that it may send.
_TARGET: Final = re.compile(r"[^\x00-\x20\x7f]+")
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(r"[^\x00\r\n]*")
#: The most that may follow the last chunk; it is discarded.
_MAX_TRAILER_BYTES: Final = 64 << 10


@dataclass
class TimedRequest:
    """A request while it is sent, as its connection sees it.

    Attributes:
        tick: called before each wait with the number of bytes that came since the last call.
            Returns how many seconds to wait before it is called again, or raises when the time of
            the request is over.
        uses_kept_connection: whether the request goes over a connection that served another request
            before. The connection sets it.
        is_direct: whether the connection sends the request by itself, and answers with a
            :class:`~data_stack.io.web.direct_answer.DirectAnswer`.
    """

    tick: Callable[[int], float]
    uses_kept_connection: bool = False
    is_direct: bool = False


#: The request that this thread sends through :func:`sending`. None: the user sends a request by a
#: session that was passed to ``use_session()``, and that request has its own timeouts.
_current_request: ContextVar[TimedRequest | None] = ContextVar("data_stack request", default=None)


@contextlib.contextmanager
def sending(request: TimedRequest) -> Iterator[None]:
    """Let the connections that this thread uses in the block obey a request.

    A pool of urllib3 chooses or makes the connection of a request, and passes nothing of ours on to
    it: not to the connection, nor to the tunnel through a proxy that it may open first. A pool is
    also shared by threads, so its attributes cannot hold the request either.
    """
    token = _current_request.set(request)
    try:
        yield
    finally:
        _current_request.reset(token)


def current_request() -> TimedRequest | None:
    """Return the request that this thread sends; None outside of :func:`sending`."""
    return _current_request.get()


class BadFramingError(http.client.HTTPException):
    """The headers of an answer do not say where its body begins and ends."""


class _TimedFile(io.RawIOBase):
    """Reads a socket, and waits for each read as long as ``tick`` says.

    Args:
        file: the file of the socket that http.client opened. It is not read, but closed with this
            one, as the socket stays open until its file is closed.
        sock: the socket.
        tick: see :class:`TimedRequest`.
    """

    def __init__(self, file: Any, sock: socket.socket, tick: Callable[[int], float]) -> None:
        self._file = file
        self._sock = sock
        self._tick = tick
        #: How many bytes came since ``tick`` was called.
        self._n_new_bytes = 0
        #: The timeout of the socket, whose setting is a call of the system; None before it is set.
        self._wait_seconds: float | None = None
        #: How many bytes must have come before the socket wakes its reader up; 0 if that is not
        #: known.
        self._n_wake_up_bytes = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._wake_up_after(choose_wake_up_bytes(len(buffer)))
        while True:
            wait_seconds = self._tick(self._n_new_bytes)
            if wait_seconds != self._wait_seconds:
                self._sock.settimeout(wait_seconds)
                self._wait_seconds = wait_seconds
            self._n_new_bytes = 0
            try:
                self._n_new_bytes = self._sock.recv_into(buffer)
            except TimeoutError:
                # Of a slow server, receive what has come. tick() raises if the time of the request
                # is over.
                self._wake_up_after(1)
                continue
            return self._n_new_bytes

    def close(self) -> None:
        # The next answer over this connection may be short.
        self._wake_up_after(1)
        self._file.close()
        super().close()

    def _wake_up_after(self, n_bytes: int) -> None:
        """Set how many bytes must have come before the socket wakes its reader up."""
        if n_bytes == self._n_wake_up_bytes:
            return
        # Windows knows no such option. A closed socket has none.
        with contextlib.suppress(OSError):
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, n_bytes)
        self._n_wake_up_bytes = n_bytes


def choose_wake_up_bytes(n_wanted_bytes: int) -> int:
    """Choose after how many bytes a thread wakes up that waits for a body.

    Half of the wanted bytes at most: the others may be in the buffers of TLS already.

    Args:
        n_wanted_bytes: how many bytes the thread asks for. If there are many, so many will come.
    """
    if n_wanted_bytes < _MIN_BODY_READ_BYTES:
        return 1
    return min(n_wanted_bytes // 2, _WAKE_UP_BYTES)


class _TimedResponse(http.client.HTTPResponse):
    """An answer that comes in time, and whose header and framing are read strictly.

    http.client takes the interim answers 102 and 103 for the last answer, ignores all headers
    behind a line that is none, reads trailers without end, and takes any text that ``int()``
    accepts for the size of a chunk.
    """

    #: What http.client reads the answer from.
    fp: Any
    #: The method of the request, as http.client notes it.
    _method: str
    #: The headers: those of the package email, or :class:`HeaderFields`, which take a tenth of the
    #: time.
    headers: Any
    #: Whether it becomes a :class:`~data_stack.io.web.direct_answer.DirectAnswer`.
    _is_direct: bool

    def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        super().__init__(sock, *arguments, **options)
        request = current_request()
        self._is_direct = request is not None and request.is_direct
        if request is not None:
            self.fp = io.BufferedReader(_TimedFile(self.fp, sock, request.tick))

    def begin(self) -> None:
        """Read the status and the headers, and note them as http.client does.

        Raises:
            BadHeaderError, BadFramingError, http.client.HTTPException: they cannot be read clearly.
        """
        if current_request() is None:
            super().begin()
            return

        version, self.status, reason = self._read_final_status()
        self.code = self.status
        self.reason = reason.strip()
        if not version.startswith(("HTTP/1.", "HTTP/0.9")):
            raise http.client.UnknownProtocol(version)
        self.version = 10 if version in ("HTTP/1.0", "HTTP/0.9") else 11

        fields = read_fields(self.fp)
        if self._is_direct:
            self.headers = HeaderFields(fields)
        else:
            self.headers = http.client.HTTPMessage()
            for name, value in fields:
                self.headers[name] = value
        self.msg = self.headers
        # This is checked again when the header is received, but urllib3 would leave the connection
        # of some answers with bad framing open.
        framing = Framing.from_fields(fields)
        fault = framing.find_fault()
        if fault is not None:
            raise BadFramingError(fault)
        self._note_framing(framing)

    def _note_framing(self, framing: Framing) -> None:
        """Note where the body ends, and whether the connection ends with it."""
        self.chunked = framing.is_chunked
        self.chunk_left = None
        self.length = framing.length
        self.will_close = self._check_close()  # type: ignore[attr-defined]  # of http.client
        has_body = self.status not in (204, 304) and self.status >= 200 and self._method != "HEAD"
        if not has_body:
            self.length = 0
        elif self.length is None and not self.chunked:
            # The body ends with the connection.
            self.will_close = True

    def _read_final_status(self) -> tuple[str, int, str]:
        """Return version, status and reason of the first answer that is not an interim one."""
        while True:
            version, status, reason = self._read_status()  # type: ignore[attr-defined]  # as above
            # 101 ends the use of HTTP.
            is_interim = 100 <= status < 200 and status != 101
            if not is_interim:
                return version, status, reason
            read_fields(self.fp)  # discards the header of the interim answer

    def _read_next_chunk_size(self) -> int:
        line = self.fp.readline(_MAX_CHUNK_LINE_BYTES)
        size, _, _ = line.partition(b";")
        if not line.endswith(b"\n") or not _CHUNK_SIZE.fullmatch(size.strip()):
            self._close_conn()  # type: ignore[attr-defined]  # of http.client
            raise ValueError("not a size of a chunk")  # http.client makes it an IncompleteRead
        return int(size, 16)

    def _read_and_discard_trailer(self) -> None:
        n_left = _MAX_TRAILER_BYTES
        while n_left > 0:
            line = self.fp.readline(n_left)
            n_left -= len(line)
            if line in (b"\r\n", b"\n", b""):
                return
        self._close_conn()  # type: ignore[attr-defined]  # of http.client
        raise http.client.LineTooLong("trailer")


class _TimedConnection(HTTPConnection):
    """A connection that is made in time, and whose answers come in time."""

    response_class = _TimedResponse

    def _new_conn(self) -> socket.socket:
        """Connect to the first address of the host that answers, while the request has time left.

        urllib3 would try all addresses of the host, each for the whole timeout.

        Raises:
            OSError: no address answers; the error is that of the last one.
        """
        request = current_request()
        if request is None:
            return super()._new_conn()

        # urllib3 keeps a trailing dot in ``_dns_host`` and drops it in ``host``: the resolver needs
        # it to leave search domains out, and certificates lack it. An IPv6 address has brackets.
        host = self._dns_host.strip("[]")
        failure = OSError("the host has no address")
        for family, kind, protocol, _, address in socket.getaddrinfo(
            host, self.port, allowed_gai_family(), socket.SOCK_STREAM
        ):
            request.tick(0)
            try:
                sock = self._connect_to(socket.socket(family, kind, protocol), address)
            except OSError as error:
                failure = error
                continue
            sys.audit("http.client.connect", self, self.host, self.port)  # as urllib3 does
            return sock
        raise failure

    def _connect_to(self, sock: socket.socket, address: Any) -> socket.socket:
        """Connect a socket, and return it; close it if that fails."""
        try:
            for option in self.socket_options or ():
                sock.setsockopt(*option)
            if isinstance(self.timeout, (int, float)):
                sock.settimeout(self.timeout)
            if self.source_address:
                sock.bind(self.source_address)
            sock.connect(address)
        except BaseException:
            sock.close()
            raise
        return sock

    def request(
        self,
        method: str,
        url: str,
        body: Any = None,
        headers: Any = None,
        **options: Any,
    ) -> None:
        request = current_request()
        if request is not None:
            request.uses_kept_connection = self.sock is not None
        if self.sock is not None:
            # The last wait for the answer before may have left a shorter timeout.
            self.sock.settimeout(self.timeout)
        if request is None or not request.is_direct:
            super().request(method, url, body, headers, **options)
            return
        # http.client and urllib3 put a request together by 50 calls.
        self.send(head_of_request(method, url, self._host_header(), headers or {}))

    def getresponse(self) -> Any:
        request = current_request()
        if request is None or not request.is_direct:
            return super().getresponse()
        response = _TimedResponse(self.sock, method="GET")
        try:
            response.begin()
        except BaseException:
            response.close()
            raise
        if response.will_close:
            # The response keeps the socket open until it is read.
            self.close()
        return DirectAnswer(response, response.headers)

    def _host_header(self) -> str:
        """Return the name and port of the server: https://www.rfc-editor.org/rfc/rfc9110#section-7.2."""
        host = self.host
        is_ipv6_address = ":" in host
        if is_ipv6_address:
            host = f"[{host.strip('[]')}]"
        if self.port == self.default_port:
            return host
        return f"{host}:{self.port}"


def head_of_request(method: str, target: str, host: str, headers: Mapping[str, str]) -> bytes:
    """Return the bytes of a request without a body.

    Args:
        method: the method, such as ``"GET"``.
        target: the path and query, encoded.
        host: the name and port of the server, unless ``headers`` have them.
        headers: the other headers.

    Raises:
        ValueError: a name or a value would begin another line, or cannot be encoded. The error does
            not show the value, which may be a secret.
    """
    if not _TARGET.fullmatch(target):
        raise ValueError("the URL has control characters or spaces")
    lines = [f"{method} {target} HTTP/1.1"]
    if not any(name.lower() == "host" for name in headers):
        lines.append(f"Host: {host}")
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise ValueError(f"the header {name!r} cannot be sent: it has control characters")
        lines.append(f"{name}: {value}")
    lines.append("\r\n")
    try:
        return "\r\n".join(lines).encode("latin-1")
    except UnicodeEncodeError:
        raise ValueError("a header has characters that are not of Latin-1") from None


class _TimedHTTPSConnection(_TimedConnection, HTTPSConnection):
    """A :class:`_TimedConnection` over TLS."""


class _TimedPool(HTTPConnectionPool):
    """A pool to which a :class:`~data_stack.io.web.direct_answer.DirectAnswer` returns."""

    def take_back(self, connection: HTTPConnection) -> None:
        """Keep a connection for the next request."""
        self._put_conn(connection)


class _TimedHTTPPool(_TimedPool):
    """A pool of :class:`_TimedConnection`."""

    ConnectionCls = _TimedConnection


class _TimedHTTPSPool(_TimedPool, HTTPSConnectionPool):
    """A pool of :class:`_TimedHTTPSConnection`."""

    ConnectionCls = _TimedHTTPSConnection


#: The pools of such connections, for the ``pool_classes_by_scheme`` of a manager of pools.
TIMED_POOLS: Final = {"http": _TimedHTTPPool, "https": _TimedHTTPSPool}
