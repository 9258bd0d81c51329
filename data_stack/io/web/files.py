"""Files of a web server, read in parts."""

from __future__ import annotations

from typing import Any, Final
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

_LIMITS: Final = Limits(n_retries=3)


class WebFiles:
    """The files below a URL.

    Threads may share it. It pickles as the URL, and a forked process makes its own connections.

    Args:
        url: the URL of the folder. A user and password in it are sent to its own host only, and
            never shown.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    def __repr__(self) -> str:
        return shorten(self.url)

    def __reduce__(self) -> tuple[Any, ...]:
        return WebFiles, (self.url,)

    def read(self, file: str, start: int, stop: int) -> bytes:
        """Return a part of a file as it is now; see :meth:`WebFile.read`."""
        return self.open(file).read(start, stop)

    def open(self, file: str) -> WebFile:
        """Return a file to read in parts, all of one version. No request is sent yet."""
        return WebFile(self, file)


class WebFile:
    """A file of a web server, whose parts are all of one version.

    The first answer tells the version: its ETag, or else its Last-Modified, and its size. A later
    answer of another version is an error. Of a server that tells no version, only the size can be
    compared. Threads may share a file.

    Args:
        files: the folder.
        file: the path of the file in the folder.
    """

    #: The version of which the first answer was; None before.
    _version: FileVersion | None

    def __init__(self, files: WebFiles, file: str) -> None:
        self._files = files
        self._file = file
        self._version = None
        self._lock = fork_lock()

    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes from ``start`` to ``stop``; fewer only at the end of the file.

        It ends within :func:`~data_stack.io.web.web_timeout`, retries included, unless bytes come
        at the minimal rate or faster.

        Raises:
            ResourceNotFoundError: there is no such file.
            ResourceChangedError: the file has another version than the parts that were read before.
            StorageUnavailableError: the server does not answer.
            StorageError: the server does not serve ranges, or answers something else.
        """
        url = f"{self._files.url}/{quote(self._file)}"
        asked = ByteRange(start, stop, self._version)
        try:
            return ask(url, lambda answer: self._receive(answer, asked), _LIMITS, byte_range=asked)
        except WebError as error:
            message = f"could not read {shorten(url)}: {error.reason}"
            if error.transient:
                raise StorageUnavailableError(message) from None
            raise StorageError(message) from None

    def _receive(self, answer: Exchange, asked: ByteRange) -> bytes:
        """Return the part that was asked for; raise what another answer means."""
        known_version = asked.version
        if answer.status == 404:
            raise ResourceNotFoundError(self._file, repr(self._files))
        if answer.status == 412 and known_version is not None:
            raise ResourceChangedError(self._file, str(known_version), "another version")
        if answer.status == 416:
            self._check_size(answer, asked)
            return b""  # the part lies behind the end of the file
        if answer.status == 200:
            raise WebError(
                "the server does not support ranges. Use one that does, such as nginx, "
                "or load a copy of the folder"
            )
        sent = sent_range(answer.headers)
        if answer.status != 206 or sent is None:
            raise WebError(
                f"{answer.describe_status()} instead of bytes {asked.start} to {asked.stop}"
            )
        self._check_version(answer.version)
        return answer.read(sent.stop - sent.start)

    def _check_size(self, answer: Exchange, asked: ByteRange) -> None:
        """Check that a part of which the server has nothing did not exist before either."""
        known_version = asked.version
        if known_version is None or known_version.size is None:
            return
        if known_version.size > asked.start:
            size = size_beyond(answer.headers)
            n_now = "fewer" if size is None else f"{size:,}"
            raise ResourceChangedError(self._file, str(known_version), f"{n_now} bytes")

    def _check_version(self, version: FileVersion) -> None:
        """Compare the version of an answer with that of the first answer.

        Of two threads that read for the first time, one has the first answer.
        """
        with self._lock:
            if self._version is None:
                self._version = version
            first_version = self._version
        if not first_version.is_kept_by(version):
            raise ResourceChangedError(self._file, str(first_version), str(version))
