"""Reads files of a static web server by range."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from data_stack.exception import ResourceNotFoundError, StorageError, StorageUnavailableError
from data_stack.io.redaction import shorten
from data_stack.io.web import Exchange, Limits, WebError, ask

_LIMITS: Final = Limits(n_retries=3, backoff_seconds=0.3)


class WebFiles:
    """The files below a URL. Threads may share it; it pickles as the URL, and a forked process makes its own connections.

    Args:
        url: of the folder. A user and password in it are sent to its own host only, and never shown.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    def __repr__(self) -> str:
        return shorten(self.url)

    def __reduce__(self) -> tuple[Any, ...]:
        return WebFiles, (self.url,)

    def read(self, file: str, start: int, stop: int) -> bytes:
        """Bytes from ``start`` to ``stop`` of a file; fewer only at its end.

        It ends within :func:`~data_stack.io.web.web_timeout`, retries included, unless bytes come at the least rate or faster.

        Raises:
            ResourceNotFoundError: there is no such file.
            StorageUnavailableError: the server does not answer.
            StorageError: it does not serve ranges, or answers something else.
        """
        url, headers = f"{self.url}/{quote(file)}", {"Range": f"bytes={start}-{stop - 1}"}
        try:
            return ask(url, lambda answer: self._receive(answer, file, start, stop), _LIMITS, headers=headers)
        except WebError as error:
            kind = StorageUnavailableError if error.transient else StorageError
            raise kind(f"could not read {shorten(url)}: {error.reason}") from None

    def _receive(self, answer: Exchange, file: str, start: int, stop: int) -> bytes:
        if answer.status == 404:
            raise ResourceNotFoundError(file, repr(self))
        if answer.status == 416:
            return b""
        if answer.status == 200:
            raise WebError(
                "the server does not support ranges. Use a server that does, such as nginx, or copy the folder to this machine "
                "and load the copy"
            )
        sent = answer.content_range
        if answer.status != 206 or sent is None or sent[0] != start or sent[1] >= stop:
            raise WebError(f"{answer.describe_status()} instead of bytes {start} to {stop}")
        data = answer.read(stop - start)
        if len(data) != sent[1] + 1 - start:
            raise WebError(f"the connection was cut after {len(data):,} bytes", transient=True)
        return data
