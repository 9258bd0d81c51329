"""Files of a web server, read in parts."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from data_stack.exception import (
    ResourceChangedError,
    ResourceNotFoundError,
    StorageError,
    StorageUnavailableError,
)
from data_stack.io.redaction import shorten
from data_stack.io.web.client import ask
from data_stack.io.web.errors import WebError
from data_stack.io.web.exchange import Exchange
from data_stack.io.web.limits import Limits
from data_stack.io.web.ranges import ByteRange, FileVersion, sent_range, size_beyond
from data_stack.util.forks import fork_lock


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
        """Bytes from ``start`` to ``stop`` of a file as it is now; fewer only at its end. See :meth:`WebFile.read`."""
        return self.open(file).read(start, stop)

    def open(self, file: str) -> WebFile:
        """A file to read in parts, all of one version. Nothing is asked yet."""
        return WebFile(self, file)


class WebFile:
    """A file of a web server, whose parts are all of one version. Threads may share it.

    The first answer tells the version: its ETag, or else its Last-Modified, and its size. A later answer of another one is an
    error. Of a server that tells no version, only the size can be compared.

    Args:
        files: the folder.
        file: path in it.
    """

    _version: FileVersion | None

    def __init__(self, files: WebFiles, file: str) -> None:
        self._files = files
        self._file = file
        self._version = None
        self._lock = fork_lock()

    def read(self, start: int, stop: int) -> bytes:
        """Bytes from ``start`` to ``stop``; fewer only at the end of the file.

        It ends within :func:`~data_stack.io.web.web_timeout`, retries included, unless bytes come at the least rate or faster.

        Raises:
            ResourceNotFoundError: there is no such file.
            ResourceChangedError: the file is of another version than the parts that were read before.
            StorageUnavailableError: the server does not answer.
            StorageError: it does not serve ranges, or answers something else.
        """
        url = f"{self._files.url}/{quote(self._file)}"
        asked = ByteRange(start, stop, self._version)
        try:
            return ask(
                url,
                lambda answer: self._receive(answer, asked),
                Limits(n_retries=3),
                byte_range=asked,
            )
        except WebError as error:
            kind = StorageUnavailableError if error.transient else StorageError
            raise kind(f"could not read {shorten(url)}: {error.reason}") from None

    def _receive(self, answer: Exchange, asked: ByteRange) -> bytes:
        if answer.status == 404:
            raise ResourceNotFoundError(self._file, repr(self._files))
        known = asked.version
        if answer.status == 412 and known is not None:
            raise ResourceChangedError(self._file, str(known), "another version")
        if answer.status == 416:
            size = size_beyond(answer.headers)
            if known is not None and (known.size or 0) > asked.start:
                n_now = "fewer" if size is None else f"{size:,}"
                raise ResourceChangedError(self._file, str(known), f"{n_now} bytes")
            return b""
        if answer.status == 200:
            raise WebError(
                "the server does not support ranges. Use one that does, such as nginx, or load a copy of the folder"
            )
        sent = sent_range(answer.headers)
        if answer.status != 206 or sent is None:
            raise WebError(
                f"{answer.describe_status()} instead of bytes {asked.start} to {asked.stop}"
            )
        self._check_version(answer.version)
        return answer.read(sent.stop - sent.start)

    def _check_version(self, version: FileVersion) -> None:
        """Compare with the first answer: of two threads that read for the first time, one is the first."""
        with self._lock:
            if self._version is None:
                self._version = version
            first = self._version
        if not first.is_kept_by(version):
            raise ResourceChangedError(self._file, str(first), str(version))
