"""Resources from untrusted web servers: whole, resumed only where the file is certainly the same, and no error pages."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from data_stack.io.retriever.transfer import SourceError, Transfer, looks_like_page
from data_stack.io.url import printable
from data_stack.io.web import Exchange, WebError, retrying


def fetch_http(source: str, transfer: Transfer) -> None:
    """Download an ``https://`` or ``http://`` URL, resuming interrupted transfers; see :mod:`data_stack.io.web`.

    A transfer is resumed only with a strong ETag that is unchanged; else it starts again. That includes transfers of earlier
    calls, if a digest verifies the whole.
    """
    etag = transfer.take_up()

    def exchange(deadline: float) -> None:
        """Send one request, and receive the answer; WebError if it is wrong or incomplete."""
        nonlocal etag
        if etag is None and transfer.size:
            transfer.restart()
        headers = (
            {"Range": f"bytes={transfer.size}-", "If-Range": etag} if etag and transfer.size else {}
        )
        seconds, limits = transfer.timeout_seconds, transfer.limits
        answer = Exchange(
            source, headers=headers, timeout_seconds=seconds, limits=limits, deadline=deadline
        )
        transfer.interrupt = answer.cut
        transfer.check()
        with answer:
            if answer.status not in (200, 206, 416):
                raise WebError(answer.describe_status())
            known, etag = etag, None
            if transfer.size and answer.status != 200:
                _check_resumed(answer, transfer, known)
                etag = known
            else:
                if transfer.size:
                    transfer.restart()
                etag = _check_whole(answer, transfer)
            _receive(answer, transfer, source)

    try:
        retrying(exchange, transfer.limits, progress=lambda: transfer.size, wait=transfer.wait)
    except WebError as error:
        raise SourceError(error.reason) from None


def _check_resumed(answer: Exchange, transfer: Transfer, etag: str | None) -> None:
    """Check that the answer continues at our offset in the same version of the file, which else begins again.

    It does not after a 416: the file is shorter than our part.
    """
    offset, expected = transfer.size, transfer.expected_size
    first, last, total = answer.content_range or (-1, -1, None)
    total = expected if total is None else total
    fits = (
        answer.status == 206
        and first == offset
        and total is not None
        and last == total - 1
        and expected in (None, total)
    )
    if (
        not fits
        or answer.length not in (None, last + 1 - offset)
        or answer.headers.get("ETag", etag) != etag
    ):
        raise WebError("resumes with another part or file than requested", transient=True)


def _check_whole(answer: Exchange, transfer: Transfer) -> str | None:
    """Check the header of a whole file, and return its strong ETag."""
    length, size = answer.length, transfer.definition.size
    encoding = answer.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("", "identity") and not transfer.has_digest:
        raise WebError(f"answers encoded as {printable(encoding)[:40]}, which was not requested")
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
    etag = answer.headers.get("ETag", "").strip()
    strong = etag if re.fullmatch(r'"[\x21\x23-\x7e\x80-\xff]*"', etag) else None
    transfer.keep(strong)
    return strong


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
