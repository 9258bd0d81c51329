"""Resources from untrusted web servers: whole, resumed only where the file is certainly the same, and no error pages."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from urllib.parse import urlsplit

from data_stack.exception import ResourceChangedError
from data_stack.io.retriever.transfer import SourceError, Transfer, looks_like_page
from data_stack.io.web.errors import WebError
from data_stack.io.web.exchange import Exchange
from data_stack.io.web.framing import content_encoding, is_chunked
from data_stack.io.web.ranges import ByteRange, FileVersion, sent_range
from data_stack.io.web.retries import retrying


def fetch_http(source: str, transfer: Transfer) -> None:
    """Download an ``https://`` or ``http://`` URL, resuming interrupted transfers; see :mod:`data_stack.io.web`.

    A transfer is resumed only with a strong ETag that is unchanged; else it starts again. That includes transfers of earlier
    calls, if a digest verifies the whole.
    """
    validator = transfer.take_up()
    version = None if validator is None else FileVersion(etag=validator)

    def exchange(deadline: float) -> None:
        """Send one request, and receive the answer; WebError if it is wrong or incomplete."""
        nonlocal version
        if version is None and transfer.size:
            transfer.restart()
        missing = None
        if version is not None and transfer.size:
            missing = ByteRange(transfer.size, version=version, or_whole=True)
        answer = Exchange(
            source,
            byte_range=missing,
            may_be_encoded=transfer.has_digest,
            timeout_seconds=transfer.timeout_seconds,
            limits=transfer.limits,
            deadline=deadline,
        )
        transfer.interrupt = answer.cut
        transfer.check()
        expected = version
        version = None  # whatever goes wrong now, the next request is for the whole file
        with _resumed(transfer), answer:
            if answer.status not in (200, 206, 416):
                raise WebError(answer.describe_status())
            if transfer.size and answer.status != 200:
                _check_resumed(answer, transfer)
                version = expected
            else:
                if transfer.size:
                    transfer.restart()
                version = _check_whole(answer, transfer)
            _receive(answer, transfer, source)

    try:
        retrying(exchange, transfer.limits, progress=lambda: transfer.size, wait=transfer.wait)
    except WebError as error:
        raise SourceError(error.reason) from None


@contextlib.contextmanager
def _resumed(transfer: Transfer) -> Iterator[None]:
    """Let a transfer begin again if the server sends another part than the missing one, or a part of another version."""
    try:
        yield
    except ResourceChangedError as error:
        raise WebError(
            f"resumes with another version of the file: {error.actual}", transient=True
        ) from None
    except WebError as error:
        if error.status != 206:
            raise
        raise WebError(error.reason, transient=transfer.size > 0, status=206) from None


def _check_resumed(answer: Exchange, transfer: Transfer) -> None:
    """Check that the rest of the file ends where the whole was announced to.

    It does not after a 416: the file is shorter than our part.
    """
    sent = sent_range(answer.headers)
    if answer.status == 416 or sent is None or transfer.expected_size not in (None, sent.size):
        raise WebError("resumes with another part or file than requested", transient=True)


def _check_whole(answer: Exchange, transfer: Transfer) -> FileVersion | None:
    """Check the header of a whole file, and return its version if equal ones have equal bytes."""
    length = answer.length
    size = transfer.definition.size
    if answer.status != 200:
        raise WebError(f"{answer.describe_status()} instead of the whole file")
    if length is not None and length != size:
        if size is not None:
            raise WebError(f"announces {length:,} bytes, expected {size:,}")
        if length > transfer.limits.max_bytes:
            raise WebError(
                f"announces {length:,} bytes, more than the limit of {transfer.limits.max_bytes:,}"
            )
    transfer.expected_size = size if length is None else length
    transfer.encoding = content_encoding(answer.headers)
    transfer.has_end = length is not None or is_chunked(answer.headers)
    etag = answer.version.strong_etag
    transfer.keep(etag)
    return None if etag is None else FileVersion(etag=etag)


def _receive(answer: Exchange, transfer: Transfer, source: str) -> None:
    expected = "bytes" if transfer.expected_size is None else f"of {transfer.expected_size:,} bytes"
    try:
        for data in answer.chunks():
            transfer.write(data)
    except WebError as error:
        transfer.check()
        raise WebError(
            f"{error.reason} after {transfer.size:,} {expected}", error.transient
        ) from None
    if transfer.expected_size is not None and transfer.size < transfer.expected_size:
        raise WebError(f"the connection was cut after {transfer.size:,} {expected}", transient=True)
    if not transfer.has_digest:
        if transfer.size == 0 and transfer.definition.size is None:
            raise WebError("answers with an empty body")
        names = (transfer.definition.identifier.lower(), urlsplit(source).path.lower())
        if looks_like_page(transfer.head) and not any(
            name.endswith((".html", ".htm", ".xhtml")) for name in names
        ):
            raise WebError("answers with an HTML page")
