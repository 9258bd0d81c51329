"""One GET request and its answer."""

from __future__ import annotations

import contextlib
import http.client
import math
import re
import time
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_to_bytes, urlsplit
from urllib.request import getproxies

from data_stack.exception import DataStackError, ResourceChangedError
from data_stack.io.redaction import printable, redact, shorten
from data_stack.io.web.framing import announced_length, content_encoding, refuse_framing
from data_stack.io.web.ranges import ByteRange as ByteRange
from data_stack.io.web.ranges import FileVersion, refuse_part, sent_range

if TYPE_CHECKING:
    import requests

from data_stack.io.web.errors import WebError
from data_stack.io.web.limits import Limits, web_timeout
from data_stack.io.web.links import bare_url, follow, is_web, origin_of

#: The most that is received at once.
_PIECE_BYTES: Final = 1 << 20
#: The most that one request may bring before its content: headers, interim answers, redirects and refusals before a login.
_MAX_HEADER_BYTES: Final = 8 << 20
#: The most that a body may bring besides its content, for which 8 bytes on the wire for each of the content are allowed as well:
#: more than a piece, as content counts when all of its piece is there.
_MAX_FRAMING_BYTES: Final = 4 << 20


class Exchange:
    """One GET request and the redirects that follow: a context manager; the body is unread at first. Another thread may cut it.

    The header of the last answer arrives within ``timeout_seconds``, with all requests of a login.
    The server is overdue after as much time without bytes. Each byte of the body prolongs the time by
    as much as it takes at the least rate, never beyond ``timeout_seconds`` from then: a server that
    sends a byte now and then is overdue as early as a silent one. Connections are kept alive, and used
    again if the body was read to its end.

    An answer is what was asked for, or an error: the body ends where it was announced, a part is the
    one of ``byte_range`` in the same version of the file, and only what may be encoded is encoded.

    Args:
        url: ``https`` or ``http``. Its user and password are sent to its own scheme, host and port
            only, and never shown.
        headers: sent to all servers. A ``Range`` among them is checked as ``byte_range`` is.
        own_headers: such as a token: sent to the same servers as the password.
        byte_range: the part to ask for; None for the whole file.
        may_be_encoded: whether a whole file with a ``Content-Encoding`` is accepted. It is not decoded:
            a digest must tell whether the bytes are right.
        timeout_seconds: None for :func:`web_timeout`.
        limits: of the rate.
        deadline: monotonic time by which the header must have arrived.
        max_redirects: how many are followed.

    Attributes:
        url: of the answer, after redirects, without credentials.
        status: of HTTP; one that asks for a retry (408, 429, 500 and above) is raised instead.
        headers: of the answer; names in any case.
        redirects: the headers of the redirects before.
        n_received: bytes of the body received so far.
    """

    status: int
    headers: Mapping[str, str]

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
        self._source = url
        self._max_redirects = max_redirects
        self._byte_range = byte_range or ByteRange.requested_by(headers)
        self._may_be_encoded = may_be_encoded
        self._headers = {"Accept-Encoding": "identity", **headers}
        if byte_range is not None:
            self._headers.update(byte_range.headers())
        self._own_headers = dict(own_headers)
        self.timeout_seconds = web_timeout() if timeout_seconds is None else timeout_seconds
        self._due = min(time.monotonic() + self.timeout_seconds, deadline)
        self._least = limits.least_bytes_per_second
        self._is_cut = False
        self._is_body = False
        self._expected_bytes: int | None = None
        self._n_on_the_wire = 0
        self.n_received = 0
        self.redirects: list[Mapping[str, str]] = []
        self._auth: tuple[bytes, bytes] | None = None
        with self._translated():
            parts = urlsplit(url)
            if not is_web(url) or not parts.hostname:
                raise WebError("the URL names no host")
            self.url, self._origin = bare_url(parts), origin_of(url)
            userinfo, mark, _ = parts.netloc.rpartition("@")
            if mark:
                user, _, password = userinfo.partition(":")
                self._auth = unquote_to_bytes(user), unquote_to_bytes(password)

    def __enter__(self) -> Exchange:
        with self._translated():
            answer = self._ask()
        self.status = answer.status_code
        self.headers = answer.headers
        self._raw = answer.raw
        self._close = answer.close
        try:
            self._check()
        except DataStackError:
            self._close()
            raise
        self._expected_bytes = self.length
        self._is_body = True
        self._n_on_the_wire = 0
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def cut(self) -> None:
        """Make what waits for the server fail; called by another thread."""
        self._is_cut = True

    @property
    def content_range(self) -> tuple[int, int, int | None] | None:
        """First and last byte of an answer with status 206, and the size of the whole; None if the server announces none."""
        sent = sent_range(self.headers)
        return None if sent is None else (sent.start, sent.stop - 1, sent.size)

    @property
    def length(self) -> int | None:
        """The announced length of the body in bytes; None if none was, or if a whole file comes in chunks."""
        sent = sent_range(self.headers)
        if self.status == 206 and sent is not None:
            return sent.stop - sent.start  # even if it comes in chunks
        if self.status in (204, 304):
            return 0
        return announced_length(self.headers)

    @property
    def version(self) -> FileVersion:
        """The version of the file, as far as the answer tells it."""
        sent = sent_range(self.headers)
        size = announced_length(self.headers) if sent is None else sent.size
        return FileVersion.of(self.headers, size)

    def describe_status(self) -> str:
        """Status and reason, for messages."""
        reason = printable(str(self._raw.reason or ""))[:60].strip() or http.client.responses.get(
            self.status, ""
        )
        return redact(f"answers {self.status} {reason}".strip(), self._source)

    def chunks(self) -> Iterator[bytes]:
        """The body as it comes, as it was sent: not decompressed. The time that the caller takes is not the server's.

        Raises:
            WebError: the connection was cut, the server is overdue, or it sends another number of bytes than announced.
        """
        while True:
            with self._translated():
                data = self._raw.read1(1 << 20, decode_content=False)
            self._count(data)
            if not data:
                return
            left = self._due - time.monotonic()
            yield data
            self._due = time.monotonic() + left

    def read(self, max_bytes: int) -> bytes:
        """The whole body.

        Raises:
            WebError: it is longer than ``max_bytes``, or as for :meth:`chunks`.
        """
        pieces = list[bytes]()
        left = max_bytes
        while True:
            with self._translated():
                # Not as it comes: the bytes of a range are received where they stay.
                data = self._raw.read(min(left + 1, _PIECE_BYTES), decode_content=False)
            self._count(data)
            if not data:
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)
            pieces.append(data)
            left -= len(data)
            if left < 0:
                raise WebError(f"sends more than the limit of {max_bytes:,} bytes")

    # ------------------------------------------------------------------ inside

    def _check(self) -> None:
        """Check that the header answers what was asked.

        Raises:
            WebError: it does not, or the server asks for a retry.
            ResourceChangedError: it is a part of another version of the file.
        """
        if self.status in (408, 429) or self.status >= 500:
            pause = _asked_pause(self.headers)
            raise WebError(self.describe_status(), True, pause, self.status)
        if (reason := refuse_framing(self.headers)) is not None:
            raise WebError(reason, status=self.status)
        if self.status not in (200, 206):
            return
        encoding = content_encoding(self.headers)
        if encoding is not None and (self.status == 206 or not self._may_be_encoded):
            raise WebError(
                f"answers encoded as {encoding}, which was not requested", status=self.status
            )
        if self.status == 200:
            return
        if self._byte_range is None:
            raise WebError(f"{self.describe_status()} instead of the whole file", status=206)
        if (reason := refuse_part(self._byte_range, self.headers)) is not None:
            raise WebError(reason, status=206)
        expected = self._byte_range.version
        if expected is not None and not expected.is_kept_by(self.version):
            raise ResourceChangedError(shorten(self._source), str(expected), str(self.version))

    def _count(self, data: bytes) -> None:
        """Count bytes of the body; ``b""`` is its end.

        Raises:
            WebError: the body is longer or shorter than announced.
        """
        self.n_received += len(data)
        if self._expected_bytes is None:
            return
        if self.n_received > self._expected_bytes:
            raise WebError(f"sends more than the {self._expected_bytes:,} bytes that it announces")
        if not data and self.n_received < self._expected_bytes:
            raise WebError("the connection was cut", transient=True)

    def _ask(self) -> requests.Response:
        """The answer after redirects."""
        from data_stack.io.web.sessions import send

        for _ in range(self._max_redirects + 1):
            origin = origin_of(self.url)
            is_own = origin == self._origin
            headers = self._headers | (self._own_headers if is_own else {})
            answer = send(
                self.url,
                origin,
                headers,
                self._auth if is_own else None,
                self.timeout_seconds,
                self._tick,
            )
            if answer.status_code not in {301, 302, 303, 307, 308}:
                return answer
            answer.close()
            self.redirects.append(answer.headers)
            location = answer.headers.get("Location", "")
            with contextlib.suppress(UnicodeError):
                location = location.encode("latin-1").decode("utf-8")
            if not location:
                raise WebError("redirects without a Location header")
            self.url = follow(self.url, location)
        raise WebError(f"redirects more than {self._max_redirects} times")

    def _tick(self, n_bytes: int) -> float:
        """Seconds to wait for the next bytes, before it is asked again; ``n_bytes`` came since it was asked last.

        Raises:
            WebError: the server is overdue, or the request was cut.
        """
        if self._is_cut:
            raise WebError("interrupted")
        now = time.monotonic()
        self._n_on_the_wire += n_bytes
        if self._is_body:
            # Sizes and extensions of chunks are no progress, and count for no limit of the caller.
            most = _MAX_FRAMING_BYTES + 8 * self.n_received
            self._due = min(now + self.timeout_seconds, self._due + n_bytes / self._least)
        else:
            most = _MAX_HEADER_BYTES
        if self._n_on_the_wire > most:
            what = "around the content" if self._is_body else "before the content"
            raise WebError(f"sends more than {most:,} bytes {what}")
        left = self._due - now
        if left <= 0:
            reason = "stalled: too little came" if self._is_body else "no answer"
            raise WebError(f"{reason} within {self.timeout_seconds:g} s", transient=True)
        # After this time, a waiting request notices that it was cut.
        return min(left, 0.1)

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        """Raise the errors of libraries as WebError."""
        try:
            yield
        except WebError as error:
            error.args = (redact(error.reason, self._source), *error.args[1:])
            error.reason = error.args[0]
            raise
        except DataStackError:
            raise
        except Exception as error:
            from data_stack.io.web.sessions import explain

            if (explained := explain(error, self.timeout_seconds)) is None:
                raise
            raise WebError(
                redact(explained[0][:300], self._source, *getproxies().values()), explained[1]
            ) from None


def _asked_pause(headers: Mapping[str, str]) -> float | None:
    """Seconds that a server asks to wait: https://www.rfc-editor.org/rfc/rfc9110#field.retry-after, or ``t`` of RateLimit."""
    value = headers.get("Retry-After", "").strip() or "".join(
        re.findall(r";\s*t=(\d{1,12})\b", headers.get("RateLimit", ""))[:1]
    )
    if re.fullmatch(r"[0-9]{1,12}", value):
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None
