"""One GET request and its answer, which is checked."""

from __future__ import annotations

import contextlib
import http.client
import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final
from urllib.parse import unquote_to_bytes, urlsplit
from urllib.request import getproxies

from data_stack.exception import DataStackError, ResourceChangedError
from data_stack.io.redaction import (
    HIDDEN,
    hide,
    hide_credentials,
    is_secret_name,
    printable,
    redact,
)
from data_stack.io.web.direct_answer import Answer
from data_stack.io.web.errors import WebError
from data_stack.io.web.file_version import FileVersion
from data_stack.io.web.framing import Framing, content_encoding
from data_stack.io.web.limits import Limits, web_timeout
from data_stack.io.web.links import Origin, bare_url, follow, is_web, origin_of
from data_stack.io.web.ranges import ByteRange, SentRange, find_part_fault, sent_range
from data_stack.io.web.request_budget import RequestBudget
from data_stack.io.web.requested_pause import requested_pause_seconds

#: The most that is received at once of a body whose length is not known.
_PIECE_BYTES: Final = 1 << 20
#: The most that is received at once of a body whose length is known. The memory for it is reserved
#: before it comes.
_MAX_WHOLE_BYTES: Final = 64 << 20
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
#: Statuses below 500 with which a server asks for a retry: it waited too long for the request, or
#: received too many requests.
_RETRY_STATUSES: Final = (408, 429)
#: How much of a server's reason, such as "Not Found", is shown in a message.
_MAX_REASON_CHARACTERS: Final = 60
#: How much of the error of a library is shown in a message.
_MAX_ERROR_CHARACTERS: Final = 300


class Exchange:
    """One GET request and the redirects that it meets.

    It is a context manager: entering it sends the request and receives the header; the body is read
    by :meth:`chunks`, :meth:`read` or :meth:`read_into`. Another thread may :meth:`cut` it.

    ``timeout_seconds`` limits the time until the header of the last answer has arrived: redirects
    and the requests of a login count too. After that, it limits how long the body may come at less
    than the minimal rate of ``limits``. Connections are kept alive, and used again if the body was
    read to its end.

    These are errors: a body that is longer or shorter than announced, another part than
    ``byte_range``, a part of another version of the file, and a ``Content-Encoding`` that was not
    allowed.

    Args:
        url: ``https`` or ``http``. Its user and password are sent to its own scheme, host and port
            only, and never shown.
        headers: headers for all servers. A ``Range`` among them is checked as ``byte_range`` is.
        own_headers: headers for the scheme, host and port of ``url`` only, such as a token. Like
            the password they are not sent to other servers to which ``url`` redirects.
        byte_range: the part to ask for; None for the whole file.
        may_be_encoded: whether a whole file with a ``Content-Encoding`` is accepted. It is not
            decoded: a digest must tell whether the bytes are right.
        timeout_seconds: the longest silence of a server; None for :func:`web_timeout`.
        limits: the minimal rate of the body; the other limits are not used here.
        deadline: monotonic time by which the header must have arrived.
        max_redirects: how many redirects are followed.

    Attributes:
        url: the URL of the answer, after redirects, without credentials.
        status: the HTTP status. A status that asks for a retry (408, 429, 500 and above) is raised
            as a WebError instead.
        headers: the headers of the answer, found by their names in any case.
        framing: where the body ends, by the headers.
        sent_range: the part of the file that the answer announces; None if it announces none.
        redirects: the headers of each redirect that was followed.
        timeout_seconds: the longest silence of a server.
    """

    url: str
    status: int
    headers: Mapping[str, str]
    framing: Framing
    sent_range: SentRange | None
    redirects: list[Mapping[str, str]]
    timeout_seconds: float
    #: The URL that the caller gave. Its credentials are hidden in messages.
    _url_with_credentials: str
    #: The scheme, host and port to which credentials are sent.
    _origin: Origin
    #: User and password of the URL; None if it has none.
    _auth: tuple[bytes, bytes] | None
    _headers: dict[str, str]
    _own_headers: dict[str, str]
    _byte_range: ByteRange | None
    _may_be_encoded: bool
    _max_redirects: int
    _budget: RequestBudget
    #: The announced length of the body; None if none was announced.
    _expected_bytes: int | None
    #: How many bytes of the body were read.
    _n_read: int
    #: The answer, while the exchange is entered.
    _answer: Answer

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str] = MappingProxyType({}),
        own_headers: Mapping[str, str] = MappingProxyType({}),
        byte_range: ByteRange | None = None,
        may_be_encoded: bool = False,
        timeout_seconds: float | None = None,
        limits: Limits = Limits(),  # noqa: B008  # frozen
        deadline: float = math.inf,
        max_redirects: int = 5,
    ) -> None:
        self._url_with_credentials = url
        self._own_headers = dict(own_headers)
        self._may_be_encoded = may_be_encoded
        self._max_redirects = max_redirects
        self._expected_bytes = None
        self._n_read = 0
        self.redirects = []

        if timeout_seconds is None:
            timeout_seconds = web_timeout()
        self.timeout_seconds = timeout_seconds
        self._budget = RequestBudget(timeout_seconds, limits.min_bytes_per_second, deadline)

        self._headers = {"Accept-Encoding": "identity", **headers}
        if byte_range is None:
            byte_range = ByteRange.requested_by(headers)
        else:
            self._headers.update(byte_range.headers())
        self._byte_range = byte_range

        with self._errors_as_web_errors():
            parts = urlsplit(url)
            if not is_web(url) or not parts.hostname:
                raise WebError("the URL names no host")
            self.url = bare_url(parts)
            self._origin = origin_of(url)
            self._auth = _credentials_in(parts.netloc)

    def __enter__(self) -> Exchange:
        with self._errors_as_web_errors():
            self._answer = self._send_and_follow_redirects()
        self.status = self._answer.status
        self.headers = self._answer.headers
        self.framing = Framing.from_headers(self.headers)
        self.sent_range = sent_range(self.headers)
        try:
            self._check_header()
        except DataStackError:
            self._answer.close()
            raise
        self._expected_bytes = self.length
        self._budget.begin_body(is_chunked=self.framing.is_chunked)
        return self

    def __exit__(self, *_: object) -> None:
        self._answer.close()

    # ------------------------------------------------------------------ the header

    @property
    def content_range(self) -> tuple[int, int, int | None] | None:
        """First and last byte of the part that the answer announces, and the size of the file.

        None if it announces no part. The size is None if the server does not know it.
        """
        sent = self.sent_range
        if sent is None:
            return None
        return sent.start, sent.stop - 1, sent.file_size

    @property
    def length(self) -> int | None:
        """The announced length of the body in bytes.

        None if none was announced, or if a whole file comes in chunks.
        """
        if self.status == 206 and self.sent_range is not None:
            return self.sent_range.n_bytes  # even if it comes in chunks
        if self.status in (204, 304):
            return 0
        return self.framing.length

    @property
    def version(self) -> FileVersion:
        """The version of the file, as far as the headers of the answer tell it."""
        if self.sent_range is None:
            file_size = self.framing.length
        else:
            file_size = self.sent_range.file_size
        return FileVersion.from_headers(self.headers, file_size)

    def describe_status(self) -> str:
        """Return status and reason for messages, such as ``"answers 404 Not Found"``."""
        # Hidden before it is cut: what is left of a secret would not be recognized.
        whole_reason = self._without_secrets(printable(str(self._answer.reason or "")))
        reason = whole_reason[:_MAX_REASON_CHARACTERS].strip()
        if not reason:
            reason = http.client.responses.get(self.status, "")
        return f"answers {self.status} {reason}".strip()

    # ------------------------------------------------------------------ the body

    @property
    def n_received(self) -> int:
        """How many bytes of the body were received so far, as far as that is known.

        Those of a piece that was not received whole count, unless the body comes in chunks.
        """
        return self._budget.n_content_bytes

    def chunks(self) -> Iterator[bytes]:
        """Yield the body in the pieces in which it comes, not decompressed.

        The time that the caller takes for a piece is not counted as the server's.

        Raises:
            WebError: the connection was cut, the server is overdue, or the body has another length
                than announced.
        """
        while True:
            with self._errors_as_web_errors():
                data = self._answer.read1(_PIECE_BYTES, decode_content=False)
            self._count(len(data))
            if not data:
                return
            with self._budget.paused():
                yield data

    def read(self, max_bytes: int) -> bytes:
        """Return the whole body.

        Raises:
            WebError: the body is longer than ``max_bytes``, or as for :meth:`chunks`.
        """
        pieces = list[bytes]()
        n_left = max_bytes
        piece_bytes = self._piece_bytes()
        while True:
            with self._errors_as_web_errors():
                # Unlike read1(), read() receives into the bytes that it returns, without a copy.
                data = self._answer.read(min(n_left + 1, piece_bytes), decode_content=False)
            self._count(len(data))
            if not data:
                break
            pieces.append(data)
            n_left -= len(data)
            if n_left < 0:
                raise WebError(f"sends more than the limit of {max_bytes:,} bytes")
            if self._n_read == self.framing.length:
                break  # http.client reads no further
        if len(pieces) == 1:
            return pieces[0]  # without a copy
        return b"".join(pieces)

    def read_beginning(self, max_bytes: int) -> bytes:
        """Return the first bytes of the body; a longer one is not received to its end.

        Args:
            max_bytes: how many bytes to return at most.

        Raises:
            WebError: as for :meth:`chunks`.
        """
        beginning = bytearray()
        for piece in self.chunks():
            beginning += piece
            if len(beginning) >= max_bytes:
                break
        return bytes(beginning[:max_bytes])

    def read_into(self, buffer: memoryview) -> None:
        """Receive the whole body.

        Args:
            buffer: what it fills. Its length is that of the body, as announced.

        Raises:
            WebError: as for :meth:`chunks`.
            ValueError: the body has another length, or none was announced.
        """
        if self._expected_bytes != len(buffer):
            raise ValueError(f"a buffer of {len(buffer):,} bytes for {self._expected_bytes} bytes")
        n_filled = 0
        while n_filled < len(buffer):
            with self._errors_as_web_errors():
                n_new_bytes = self._answer.readinto(buffer[n_filled:])
            # The end raises an error, as bytes are missing.
            self._count(n_new_bytes)
            n_filled += n_new_bytes
        is_read_to_its_end = self._n_read == self.framing.length
        if not is_read_to_its_end:
            # Behind the last byte, a body in chunks has an end of its own.
            with self._errors_as_web_errors():
                excess = self._answer.read(1, decode_content=False)
            self._count(len(excess))

    def cut(self) -> None:
        """Make the thread that waits for the server fail. Any thread may call this."""
        self._budget.cut()

    # ------------------------------------------------------------------ inside

    def _piece_bytes(self) -> int:
        """Return how many bytes to receive at once: the whole body if its length is known."""
        if self._expected_bytes is None or self.framing.is_chunked:
            return _PIECE_BYTES
        return min(max(1, self._expected_bytes), _MAX_WHOLE_BYTES)

    def _send_and_follow_redirects(self) -> Answer:
        """Return the answer after redirects, with its body unread."""
        # Imported here, so that data_stack is imported without requests.
        from data_stack.io.web.sessions import send

        for _ in range(self._max_redirects + 1):
            origin = origin_of(self.url)
            headers = dict(self._headers)
            auth = None
            if origin == self._origin:
                headers.update(self._own_headers)
                auth = self._auth
            answer = send(
                self.url,
                origin,
                headers=headers,
                auth=auth,
                timeout_seconds=self.timeout_seconds,
                tick=self._budget.tick,
            )
            if answer.status not in _REDIRECTS:
                return answer
            answer.close()
            self.redirects.append(answer.headers)
            self.url = follow(self.url, _location_in(answer.headers))
        raise WebError(f"redirects more than {self._max_redirects} times")

    def _check_header(self) -> None:
        """Check that the header answers what was asked for.

        Raises:
            WebError: it does not, or the server asks for a retry.
            ResourceChangedError: it is a part of another version of the file.
        """
        asks_for_a_retry = self.status in _RETRY_STATUSES or self.status >= 500
        if asks_for_a_retry:
            raise WebError(
                self.describe_status(),
                transient=True,
                retry_after=requested_pause_seconds(self.headers),
                status=self.status,
            )
        fault = self.framing.find_fault()
        if fault is not None:
            raise WebError(fault, status=self.status)
        if self.status not in (200, 206):
            return  # the caller decides what the status means

        encoding = content_encoding(self.headers)
        may_be_encoded = self._may_be_encoded and self.status == 200
        if encoding is not None and not may_be_encoded:
            raise WebError(
                f"answers encoded as {encoding}, which was not requested", status=self.status
            )
        if self.status == 206:
            self._check_part()

    def _check_part(self) -> None:
        """Check that an answer with status 206 is the part that was asked for."""
        if self._byte_range is None:
            raise WebError(f"{self.describe_status()} instead of the whole file", status=206)
        fault = find_part_fault(
            self._byte_range, self.sent_range, self.framing.length, self.headers
        )
        if fault is not None:
            raise WebError(fault, status=206)
        expected = self._byte_range.version
        if expected is not None and not expected.agrees_with(self.version):
            raise ResourceChangedError(
                hide_credentials(self._url_with_credentials), str(expected), str(self.version)
            )

    def _count(self, n_new_bytes: int) -> None:
        """Count bytes of the body; 0 is its end.

        Raises:
            WebError: the body is longer or shorter than announced.
        """
        self._n_read += n_new_bytes
        self._budget.note_content(self._n_read)
        if self._expected_bytes is None:
            return
        if self._n_read > self._expected_bytes:
            raise WebError(f"sends more than the {self._expected_bytes:,} bytes that it announces")
        is_end = n_new_bytes == 0
        if is_end and self._n_read < self._expected_bytes:
            raise WebError("the connection was cut", transient=True)

    @contextlib.contextmanager
    def _errors_as_web_errors(self) -> Iterator[None]:
        """Raise errors of the block as WebError, without the credentials of the URL.

        Other errors of data_stack pass as they are.
        """
        try:
            yield
        except WebError as error:
            # The same error is raised, so that its status and its other facts stay.
            error.reason = self._without_secrets(error.reason)
            error.args = (error.reason, *error.args[1:])
            raise
        except DataStackError:
            raise
        except Exception as error:
            # Imported here, so that data_stack is imported without urllib3.
            from data_stack.io.web.failures import describe_failure

            failure = describe_failure(error, self.timeout_seconds)
            if failure is None:
                raise
            # An error may name a proxy, whose URL may hold a password.
            reason = redact(self._without_secrets(failure.reason), *getproxies().values())
            # The error of the library is dropped, as it shows the credentials.
            raise WebError(reason[:_MAX_ERROR_CHARACTERS], failure.is_transient) from None

    def _without_secrets(self, text: str) -> str:
        """Return a text of a server or library without what logs in."""
        for name, value in self._own_headers.items():
            # Behind "Bearer " or "Basic ".
            secret = value.rpartition(" ")[2]
            if secret and is_secret_name(name):
                text = hide(text, secret, HIDDEN)
        return redact(text, self._url_with_credentials)


def _credentials_in(authority: str) -> tuple[bytes, bytes] | None:
    """Return user and password in the authority of a URL, decoded; None if it has none."""
    userinfo, separator, _ = authority.rpartition("@")
    if not separator:
        return None
    user, _, password = userinfo.partition(":")
    return unquote_to_bytes(user), unquote_to_bytes(password)


def _location_in(headers: Mapping[str, str]) -> str:
    """Return the URL to which a redirect leads, as written.

    Raises:
        WebError: the headers have no ``Location``.
    """
    location = headers.get("Location", "")
    # http.client decodes headers as Latin-1, but servers send URLs in UTF-8.
    with contextlib.suppress(UnicodeError):
        location = location.encode("latin-1").decode("utf-8")
    if not location:
        raise WebError("redirects without a Location header")
    return location
