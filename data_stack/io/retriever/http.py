"""Downloads resources from untrusted web servers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from urllib.parse import urlsplit

from data_stack.exception import ResourceChangedError
from data_stack.io.retriever.transfer import SourceError, Transfer, looks_like_page
from data_stack.io.web import ByteRange, Exchange, FileVersion, WebError, retrying
from data_stack.io.web.framing import content_encoding

#: Names of resources that may be pages.
_PAGE_SUFFIXES = (".html", ".htm", ".xhtml")


def fetch_http(source: str, transfer: Transfer) -> None:
    """Download an ``https://`` or ``http://`` URL, resuming interrupted transfers.

    A transfer is resumed only if the file has an unchanged strong ETag; otherwise it starts again.
    A transfer of an earlier call is resumed as well, if a digest verifies the whole.
    :mod:`data_stack.io.web` says what else is checked.

    Raises:
        SourceError: the server did not send the resource.
    """
    download = _Download(source, transfer)
    try:
        retrying(
            download.request,
            transfer.limits,
            progress=lambda: transfer.size,
            wait=transfer.wait,
        )
    except WebError as error:
        raise SourceError(error.reason) from None


class _Download:
    """The requests for one resource. Each goes on where the one before was interrupted.

    Args:
        source: the URL.
        transfer: receives the bytes.
    """

    _source: str
    _transfer: Transfer
    #: The version of the file whose beginning has arrived; None if it cannot be resumed.
    _version: FileVersion | None

    def __init__(self, source: str, transfer: Transfer) -> None:
        self._source = source
        self._transfer = transfer
        self._version = None
        validator = transfer.take_up()
        if validator is not None:
            self._version = FileVersion(etag=validator)

    def request(self, deadline: float) -> None:
        """Send one request, and receive the answer.

        Raises:
            WebError: the answer is wrong or incomplete.
        """
        transfer = self._transfer
        missing_part = None
        if transfer.size > 0:
            if self._version is None:
                transfer.restart()
            else:
                missing_part = ByteRange(transfer.size, version=self._version, or_whole=True)
        exchange = Exchange(
            self._source,
            byte_range=missing_part,
            may_be_encoded=transfer.has_digest,
            timeout_seconds=transfer.timeout_seconds,
            limits=transfer.limits,
            deadline=deadline,
        )
        # Another thread may end the transfer from now on, or may have ended it just before.
        transfer.interrupt = exchange.cut
        transfer.check()

        # If anything goes wrong before the header is checked, the next request is for the whole
        # file.
        resumed_version = self._version
        self._version = None
        with self._retrying_wrong_parts(), exchange:
            if exchange.status not in (200, 206, 416):
                raise WebError(exchange.describe_status())
            is_rest = transfer.size > 0 and exchange.status != 200
            if is_rest:
                self._check_rest(exchange)
                self._version = resumed_version
            else:
                if transfer.size > 0:
                    transfer.restart()
                self._check_whole(exchange)
                self._note_header(exchange)
            self._receive(exchange)

    @contextlib.contextmanager
    def _retrying_wrong_parts(self) -> Iterator[None]:
        """Let the transfer begin again after an answer with another part or version.

        The error becomes a transient one, and the next request is for the whole file.
        """
        try:
            yield
        except ResourceChangedError as error:
            raise WebError(
                f"resumes with another version of the file: {error.actual}", transient=True
            ) from None
        except WebError as error:
            if error.status != 206:
                raise
            was_resumed = self._transfer.size > 0
            raise WebError(error.reason, transient=was_resumed, status=206) from None

    def _check_rest(self, exchange: Exchange) -> None:
        """Check that the rest of the file ends where the whole file was announced to end.

        Status 416 means that the file is not longer than the part that has arrived.
        """
        is_of_expected_file = False
        sent = exchange.sent_range
        if sent is not None:
            expected_size = self._transfer.expected_size
            is_of_expected_file = expected_size is None or expected_size == sent.file_size
        if exchange.status == 416 or not is_of_expected_file:
            raise WebError("resumes with another part or file than requested", transient=True)

    def _check_whole(self, exchange: Exchange) -> None:
        """Check that an answer is a whole file, of the right length as far as it is announced."""
        transfer = self._transfer
        if exchange.status != 200:
            raise WebError(f"{exchange.describe_status()} instead of the whole file")

        length = exchange.length
        defined_size = transfer.definition.size
        if length is not None and defined_size is not None and length != defined_size:
            raise WebError(f"announces {length:,} bytes, expected {defined_size:,}")
        max_bytes = transfer.limits.max_bytes
        if length is not None and defined_size is None and length > max_bytes:
            raise WebError(f"announces {length:,} bytes, more than the limit of {max_bytes:,}")

    def _note_header(self, exchange: Exchange) -> None:
        """Note what the header of a whole file says about it."""
        transfer = self._transfer
        length = exchange.length
        transfer.expected_size = length
        if length is None:
            transfer.expected_size = transfer.definition.size
        transfer.encoding = content_encoding(exchange.headers)
        transfer.has_end = length is not None or exchange.framing.is_chunked

        # Only equal strong ETags promise equal bytes, so that the transfer can be resumed.
        etag = exchange.version.strong_etag
        transfer.keep(etag)
        if etag is not None:
            self._version = FileVersion(etag=etag)

    def _receive(self, exchange: Exchange) -> None:
        """Receive the body, and check that it is complete and no error page."""
        transfer = self._transfer
        expected_size = transfer.expected_size
        # "… after 5 bytes", or "… after 5 of 10 bytes".
        of_expected = "bytes"
        if expected_size is not None:
            of_expected = f"of {expected_size:,} bytes"
        try:
            for data in exchange.chunks():
                transfer.write(data)
        except WebError as error:
            transfer.check()
            raise WebError(
                f"{error.reason} after {transfer.size:,} {of_expected}", transient=error.transient
            ) from None
        if expected_size is not None and transfer.size < expected_size:
            raise WebError(
                f"the connection was cut after {transfer.size:,} {of_expected}", transient=True
            )
        if not transfer.has_digest:
            self._check_plausible()

    def _check_plausible(self) -> None:
        """Check that a file without a digest is neither empty nor an error page."""
        transfer = self._transfer
        if transfer.size == 0 and transfer.definition.size is None:
            raise WebError("answers with an empty body")
        if looks_like_page(transfer.head) and not self._may_be_page():
            raise WebError("answers with an HTML page")

    def _may_be_page(self) -> bool:
        """Return whether the resource is a page by its name or its URL."""
        identifier = self._transfer.definition.identifier
        path = urlsplit(self._source).path
        return identifier.lower().endswith(_PAGE_SUFFIXES) or path.lower().endswith(_PAGE_SUFFIXES)
