"""Resources from untrusted web servers.

Plain clients never time out a header sent one byte at a time, may join two versions of a file when they resume, read the body of
a redirect whole, send cookies or netrc passwords to another host, and show the password of a URL in errors. So each exchange here
has its own connection, which the supervising thread cuts when it stalls, and redirects are followed explicitly.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import os
import random
import re
import socket
import ssl
import time
from collections.abc import Iterator
from typing import Final
from urllib.parse import SplitResult, quote, unquote_to_bytes, urljoin, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

import certifi

from data_stack.exception import StorageError
from data_stack.io.retriever.transfer import SourceError, Transfer, looks_like_page, printable, redact, shorten

_READ_BYTES: Final = 1 << 20
_MAX_REDIRECTS: Final = 5
#: Limit of requests for one resource.
_MAX_REQUESTS: Final = 100
_REDIRECTS: Final = {301, 302, 303, 307, 308}
_TRANSIENT: Final = {408, 429}
_PORTS: Final = {"http": 80, "https": 443}
_STRONG_ETAG: Final = re.compile(r'"[\x21\x23-\x7e\x80-\xff]*"')
_CONTENT_RANGE: Final = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")
#: Characters of a URL besides letters and digits, percent-encoded or not.
_URL_CHARACTERS: Final = "!#$%&'()*+,/:;=?@[]~"


def fetch_http(source: str, transfer: Transfer) -> None:
    """Download an ``https://`` or ``http://`` URL, resuming interrupted transfers.

    A transfer is resumed only with a strong ETag that is unchanged; else it starts again. That includes transfers of earlier
    calls, if a digest verifies the whole. TLS certificates are always verified, by ``REQUESTS_CA_BUNDLE`` if set. Proxies come
    from the environment. User and password of the URL are sent only to its own scheme, host and port.
    """
    download = _Download(source, transfer)
    limits = transfer.limits
    furthest, n_failures, before = 0, 0, ""
    for _ in range(_MAX_REQUESTS):
        started = time.monotonic()
        try:
            download.exchange()
            return
        except SourceError as error:
            failure = error
        except StorageError:
            raise
        except (http.client.HTTPException, OSError, ValueError) as error:
            failure = download.failure(error)
        if not failure.transient:
            break
        # Progress, unless it is very slow, resets the count of failures.
        enough = limits.least_bytes_per_second * (time.monotonic() - started)
        n_failures = 0 if transfer.size - furthest > enough else n_failures + 1
        furthest, before = max(furthest, transfer.size), failure.reason
        if n_failures > limits.n_retries:
            break
        backoff = limits.backoff_seconds * 2.0 ** max(0, n_failures - 1) * random.uniform(0.5, 1.0)  # noqa: S311  # jitter
        try:
            transfer.wait(min(max(backoff, failure.retry_after or 0.0), limits.max_wait_seconds))
        except SourceError as error:
            failure = error
            break
    reason = "; then ".join(dict.fromkeys(filter(None, (before, failure.reason))))
    raise SourceError(redact(reason, source, *filter(None, [_proxy(urlsplit(source))])))


class _Download:
    """The download of one source, in one or more exchanges."""

    def __init__(self, source: str, transfer: Transfer) -> None:
        parts = urlsplit(source)
        if not parts.hostname:
            raise SourceError("the URL names no host")
        self._transfer = transfer
        self._url = _bare(parts)
        self._origin = _origin(self._url)
        self._authorization = _basic_authorization(parts)
        self._etag = transfer.take_up()
        self._line: socket.socket

    def exchange(self) -> None:
        """Send one request, and receive the answer.

        Raises:
            SourceError: the answer is wrong or incomplete.
        """
        transfer = self._transfer
        if self._etag is None and transfer.size:
            transfer.restart()
        with transfer.interruptible(self._cut), self._ask(transfer.size) as response:
            self._check_status(response)
            length = _length(response)
            if transfer.size and response.status == 206:
                self._check_resumed(response, length)
            else:
                if transfer.size:
                    transfer.restart()
                self._check_whole(response, length)
            self._receive(response, length)

    def failure(self, error: Exception) -> SourceError:
        """The SourceError for an exception of a library."""
        try:
            self._transfer.check()
        except SourceError as ended:
            return ended
        said, transient = f"{type(error).__name__}: {error}", True
        if isinstance(error, ssl.SSLCertVerificationError):
            said, transient = f"its TLS certificate is refused: {error.verify_message}", False
        elif isinstance(error, socket.gaierror):
            said, transient = f"the host cannot be found: {error.strerror}", error.errno == socket.EAI_AGAIN
        elif isinstance(error, TimeoutError):
            said = f"no answer within {self._transfer.timeout_seconds:g} s"
        elif isinstance(error, http.client.IncompleteRead):
            said = f"the connection was cut after {self._progress()}"
        elif isinstance(error, OSError) and error.strerror:
            said = error.strerror[0].lower() + error.strerror[1:]
        elif isinstance(error, (ValueError, http.client.InvalidURL)):
            transient = False  # an invalid URL
        return SourceError(said[:300], transient)

    # ------------------------------------------------------------------ asking

    @contextlib.contextmanager
    def _ask(self, offset: int) -> Iterator[http.client.HTTPResponse]:
        """The answer to one request, after redirects, with its body unread."""
        url = self._url
        for _ in range(_MAX_REDIRECTS + 1):
            headers = {"User-Agent": "data_stack", "Accept": "*/*", "Accept-Encoding": "identity", "Connection": "close"}
            if self._authorization and _origin(url) == self._origin:
                headers["Authorization"] = self._authorization
            if offset and self._etag:
                headers |= {"Range": f"bytes={offset}-", "If-Range": self._etag}
            parts = urlsplit(url)
            with contextlib.closing(self._connect(parts, headers)) as connection, contextlib.closing(self._line):
                target = url if _is_relayed(parts) else urlunsplit(("", "", parts.path or "/", parts.query, ""))
                headers["Host"] = parts.netloc.encode("idna").decode()
                connection.request("GET", quote(target, safe=_URL_CHARACTERS), headers=headers)
                with contextlib.closing(connection.getresponse()) as response:
                    if response.status not in _REDIRECTS:
                        yield response
                        return
                    url = self._redirect(url, response.headers.get("Location"))
        raise SourceError(f"redirects more than {_MAX_REDIRECTS} times")

    def _connect(self, parts: SplitResult, headers: dict[str, str]) -> http.client.HTTPConnection:
        """A connection to the host of a URL or to its proxy, encrypted where the URL says so."""
        host, port = str(parts.hostname), parts.port or _PORTS[parts.scheme]
        seconds, proxy = self._transfer.timeout_seconds, _proxy(parts)
        if proxy is None:
            connection = http.client.HTTPConnection(host, port, timeout=seconds / 2)  # an address may not answer at all
        else:
            proxy_parts = urlsplit(proxy)
            if proxy_parts.scheme != "http" or not proxy_parts.hostname:
                raise SourceError("the proxy of the environment is not of the form http://HOST:PORT")
            connection = http.client.HTTPConnection(proxy_parts.hostname, proxy_parts.port or 80, timeout=seconds / 2)
            authorization = _basic_authorization(proxy_parts)
            own_headers = {"Proxy-Authorization": authorization} if authorization else {}
            if parts.scheme == "https":
                connection.set_tunnel(host, port, own_headers)
            else:
                headers |= own_headers
        connection.connect()
        connection.sock.settimeout(seconds)
        # A duplicate to cut the connection: another thread must not use the TLS socket, but may shut down the plain one.
        self._line = connection.sock.dup()
        try:
            self._transfer.check()  # it may have ended just before there was a socket to cut
            if parts.scheme == "https":
                connection.sock = _tls_context().wrap_socket(connection.sock, server_hostname=host)
        except BaseException:
            self._line.close()
            connection.close()
            raise
        return connection

    def _cut(self) -> None:
        """End all waiting for the server; called by another thread."""
        with contextlib.suppress(OSError, AttributeError):  # not connected yet, or closed
            self._line.shutdown(socket.SHUT_RDWR)

    def _redirect(self, url: str, location: str | None) -> str:
        if not location:
            raise SourceError("redirects, but does not say where to")
        with contextlib.suppress(UnicodeError):
            location = location.encode("latin-1").decode("utf-8")
        target = urljoin(url, location)
        parts = urlsplit(target)
        refused = None
        if parts.scheme not in ("http", "https"):
            refused = f"which is no web address ({parts.scheme}:)"
        elif parts.scheme == "http" and urlsplit(url).scheme == "https":
            refused = "which is not encrypted, while the source is"
        elif not parts.hostname:
            refused = "which names no host"
        if refused:
            raise SourceError(f"redirects to {shorten(target)[:200]}, {refused}")
        return _bare(parts)

    # ------------------------------------------------------------------ judging the answer

    def _check_status(self, response: http.client.HTTPResponse) -> None:
        status = response.status
        if status in (200, 206):
            return
        if status == 416:
            # The file is shorter than our part, so it changed: start again.
            self._etag = None
            raise SourceError("cannot resume", transient=True)
        reason = printable(response.reason or "")[:60].strip()
        said = f"answers {status} {reason or http.client.responses.get(status, '')}".strip()
        transient = status in _TRANSIENT or status >= 500
        raise SourceError(said, transient, _retry_after(response) if transient else None)

    def _check_resumed(self, response: http.client.HTTPResponse, length: int | None) -> None:
        """Check that a 206 continues at our offset in the same version of the file."""
        offset, expected = self._transfer.size, self._transfer.expected_size
        match = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", "").strip())
        fits = match is not None and int(match[1]) == offset
        if fits and match is not None and match[3] != "*":
            total = int(match[3])
            fits = int(match[2]) == total - 1 and expected in (None, total) and length in (None, total - offset)
        elif fits:
            fits = expected is not None and match is not None and int(match[2]) == expected - 1
        if not fits or response.headers.get("ETag", self._etag) != self._etag:
            self._etag = None
            raise SourceError("resumes with another part or file than it was asked for", transient=True)

    def _check_whole(self, response: http.client.HTTPResponse, length: int | None) -> None:
        transfer, definition = self._transfer, self._transfer.definition
        encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in ("", "identity") and not transfer.has_digest:
            raise SourceError(f"answers encoded as {printable(encoding)[:40]}, which was not requested")
        if response.status == 206:
            raise SourceError("answers with a part of the file instead of the whole")
        if length is not None and length != definition.size:
            if definition.size is not None:
                raise SourceError(f"announces {length:,} bytes, expected {definition.size:,}")
            if length > transfer.limits.max_bytes:
                raise SourceError(f"announces {length:,} bytes, more than the limit of {transfer.limits.max_bytes:,}")
        transfer.expected_size = definition.size if length is None else length
        etag = response.headers.get("ETag", "").strip()
        self._etag = etag if _STRONG_ETAG.fullmatch(etag) and response.status == 200 else None
        transfer.keep(self._etag)

    def _receive(self, response: http.client.HTTPResponse, length: int | None) -> None:
        transfer, n_received = self._transfer, 0
        while data := response.read1(_READ_BYTES):
            n_received += len(data)
            transfer.write(data)
        transfer.check()  # without an announced length, a connection that we cut looks complete
        expected = transfer.expected_size
        if (length is not None and n_received != length) or (expected is not None and transfer.size < expected):
            raise SourceError(f"the connection was cut after {self._progress()}", transient=True)
        if not transfer.has_digest:
            if transfer.size == 0 and transfer.definition.size is None:
                raise SourceError("answers with nothing at all")
            if looks_like_page(transfer.head) and not self._may_be_page():
                raise SourceError("answers with an HTML page")

    def _may_be_page(self) -> bool:
        names = (self._transfer.definition.identifier, urlsplit(self._url).path)
        return any(name.lower().endswith((".html", ".htm", ".xhtml")) for name in names)

    def _progress(self) -> str:
        expected = self._transfer.expected_size
        return f"{self._transfer.size:,} " + ("bytes" if expected is None else f"of {expected:,} bytes")


# ---------------------------------------------------------------------- small questions


def _bare(parts: SplitResult) -> str:
    """A URL without user, password and fragment."""
    return urlunsplit((parts.scheme.lower(), parts.netloc.rpartition("@")[2], parts.path, parts.query, ""))


def _origin(url: str) -> tuple[str, str | None, int]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme, 0)


def _basic_authorization(parts: SplitResult) -> str | None:
    userinfo, mark, _ = parts.netloc.rpartition("@")
    if not mark:
        return None
    user, _, password = userinfo.partition(":")
    return "Basic " + base64.b64encode(unquote_to_bytes(user) + b":" + unquote_to_bytes(password)).decode("ascii")


def _proxy(parts: SplitResult) -> str | None:
    """The proxy that the environment names for a URL."""
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.netloc.rpartition("@")[2]) or proxy_bypass(parts.hostname or ""):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _is_relayed(parts: SplitResult) -> bool:
    """Whether a proxy asks the server in our place, instead of passing our bytes on."""
    return parts.scheme == "http" and _proxy(parts) is not None


def _tls_context() -> ssl.SSLContext:
    authorities = os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE") or certifi.where()
    if os.path.isdir(authorities):
        return ssl.create_default_context(capath=authorities)
    return ssl.create_default_context(cafile=authorities)


def _length(response: http.client.HTTPResponse) -> int | None:
    """The announced length of the body in bytes; None if none was, or if the body comes in chunks."""
    announced = response.headers.get("Content-Length", "").strip()
    if "chunked" in response.headers.get("Transfer-Encoding", "").lower() or not re.fullmatch(r"[0-9]{1,18}", announced):
        return None
    return int(announced)


def _retry_after(response: http.client.HTTPResponse) -> float | None:
    """Seconds the server asks us to wait; None if it does not, or names a date."""
    value = response.headers.get("Retry-After", "").strip()
    return float(value) if re.fullmatch(r"[0-9]{1,12}", value) else None
