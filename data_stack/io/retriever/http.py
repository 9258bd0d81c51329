"""Resources from untrusted web servers: whole, resumed only where the file is certainly the same, and no error pages."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

from data_stack.io.retriever.transfer import SourceError, Transfer, looks_like_page
from data_stack.io.url import printable
from data_stack.io.web import Exchange, WebError, retrying

_STRONG_ETAG: Final = re.compile(r'"[\x21\x23-\x7e\x80-\xff]*"')


def fetch_http(source: str, transfer: Transfer) -> None:
    """Download an ``https://`` or ``http://`` URL, resuming interrupted transfers; see :mod:`data_stack.io.web`.

    A transfer is resumed only with a strong ETag that is unchanged; else it starts again. That includes transfers of earlier
    calls, if a digest verifies the whole.
    """
    download = _Download(source, transfer)
    try:
        retrying(download.exchange, transfer.limits, progress=lambda: transfer.size, wait=transfer.wait)
    except WebError as error:
        raise SourceError(error.reason) from None


class _Download:
    """The download of one source, in one or more exchanges."""

    def __init__(self, source: str, transfer: Transfer) -> None:
        self._source, self._transfer = source, transfer
        self._etag = transfer.take_up()

    def exchange(self, deadline: float) -> None:
        """Send one request, and receive the answer.

        Raises:
            WebError: the answer is wrong or incomplete.
        """
        transfer = self._transfer
        if self._etag is None and transfer.size:
            transfer.restart()
        headers = {"Range": f"bytes={transfer.size}-", "If-Range": self._etag} if self._etag and transfer.size else {}
        seconds, limits = transfer.timeout_seconds, transfer.limits
        answer = Exchange(self._source, headers=headers, timeout_seconds=seconds, limits=limits, deadline=deadline)
        transfer.interrupt = answer.cut
        transfer.check()
        with answer:
            if answer.status not in (200, 206, 416):
                raise WebError(answer.describe_status())
            if transfer.size and answer.status != 200:
                self._check_resumed(answer)
            else:
                if transfer.size:
                    transfer.restart()
                self._check_whole(answer)
            self._receive(answer)

    def _check_resumed(self, answer: Exchange) -> None:
        """Check that the answer continues at our offset in the same version of the file, which else begins again.

        It does not after a 416: the file is shorter than our part.
        """
        offset, expected = self._transfer.size, self._transfer.expected_size
        first, last, total = answer.content_range or (-1, -1, None)
        total = expected if total is None else total
        fits = answer.status == 206 and first == offset and total is not None and last == total - 1 and expected in (None, total)
        if not fits or answer.length not in (None, last + 1 - offset) or answer.headers.get("ETag", self._etag) != self._etag:
            self._etag = None
            raise WebError("resumes with another part or file than requested", transient=True)

    def _check_whole(self, answer: Exchange) -> None:
        transfer, length, size = self._transfer, answer.length, self._transfer.definition.size
        encoding = answer.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in ("", "identity") and not transfer.has_digest:
            raise WebError(f"answers encoded as {printable(encoding)[:40]}, which was not requested")
        if answer.status != 200:
            raise WebError(f"{answer.describe_status()} instead of the whole file")
        if length is not None and length != size:
            if size is not None:
                raise WebError(f"announces {length:,} bytes, expected {size:,}")
            if length > transfer.limits.max_bytes:
                raise WebError(f"announces {length:,} bytes, more than the limit of {transfer.limits.max_bytes:,}")
        transfer.expected_size = size if length is None else length
        etag = answer.headers.get("ETag", "").strip()
        self._etag = etag if _STRONG_ETAG.fullmatch(etag) else None
        transfer.keep(self._etag)

    def _receive(self, answer: Exchange) -> None:
        transfer = self._transfer
        try:
            for data in answer.chunks():
                transfer.write(data)
        except WebError as error:
            transfer.check()
            raise WebError(f"{error.reason} after {self._progress()}", error.transient) from None
        if transfer.expected_size is not None and transfer.size < transfer.expected_size:
            raise WebError(f"the connection was cut after {self._progress()}", transient=True)
        if not transfer.has_digest:
            if transfer.size == 0 and transfer.definition.size is None:
                raise WebError("answers with an empty body")
            names = (transfer.definition.identifier.lower(), urlsplit(self._source).path.lower())
            if looks_like_page(transfer.head) and not any(name.endswith((".html", ".htm", ".xhtml")) for name in names):
                raise WebError("answers with an HTML page")

    def _progress(self) -> str:
        expected = self._transfer.expected_size
        return f"{self._transfer.size:,} " + ("bytes" if expected is None else f"of {expected:,} bytes")
