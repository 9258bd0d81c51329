"""Files of a web server, read in parts."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any, Final
from urllib.parse import quote

from data_stack.exception import (
    ResourceChangedError,
    ResourceNotFoundError,
    StorageError,
    StorageUnavailableError,
)
from data_stack.io.redaction import hide_credentials
from data_stack.io.web.client import ask
from data_stack.io.web.errors import WebError
from data_stack.io.web.exchange import Exchange
from data_stack.io.web.file_version import FileVersion
from data_stack.io.web.limits import Limits
from data_stack.io.web.ranges import ByteRange, file_size_in_416
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
        return hide_credentials(self.url)

    def __reduce__(self) -> tuple[Any, ...]:
        return WebFiles, (self.url,)

    def read(self, file: str, start: int, stop: int) -> bytes:
        """Return a part of a file as it is now; see :meth:`WebFile.read`."""
        return self.open(file).read(start, stop)

    def open(self, file: str) -> WebFile:
        """Return a file to read in parts, all of one version. No request is sent yet."""
        return WebFile(f"{self.url}/{quote(file)}", file, repr(self))


class WebFile:
    """A file of a web server, whose parts are all of one version.

    The headers of the first answer tell the version: ETag or Last-Modified, and the size of the
    file. A later answer with another version is an error. If a server sends neither header, only
    the sizes are compared. Threads may share a file.

    Args:
        url: the URL of the file. A user and password in it are sent to its own host only, and never
            shown.
        name: the name of the file for messages.
        place: where the file is, for messages.

    Attributes:
        name: as given.
    """

    name: str

    #: The URL of the file, perhaps with a password.
    _url: str

    #: Where the file is.
    _place: str

    #: The version in the first answer; None before the first answer.
    _version: FileVersion | None

    #: Held by the thread that notes the version.
    _lock: threading.Lock

    def __init__(self, url: str, name: str, place: str) -> None:
        self.name = name
        self._url = url
        self._place = place
        self._version = None
        self._lock = fork_lock()

    @property
    def version(self) -> FileVersion | None:
        """The version in the first answer with a part of the file; None before it."""
        return self._version

    def read(self, start: int, stop: int) -> bytes:
        """Return the bytes from ``start`` to ``stop``; see :meth:`read_view`."""
        return bytes(self.read_view(start, stop))

    def read_view(self, start: int, stop: int) -> memoryview:
        """Return the bytes from ``start`` to ``stop``; fewer only at the end of the file.

        Their memory is used again once all views of it are gone.

        It ends within :func:`~data_stack.io.web.web_timeout`, retries included, unless bytes come
        at the minimal rate or faster.

        Raises:
            ResourceNotFoundError: there is no such file.
            ResourceChangedError: the file has another version than the parts that were read before.
            StorageUnavailableError: the server does not answer.
            StorageError: the server does not serve ranges, or answers something else.
        """
        requested = ByteRange(start, stop, self._version)
        receive = partial(self._receive, requested=requested)
        try:
            return ask(self._url, receive, _LIMITS, byte_range=requested)
        except WebError as error:
            message = f"could not read {hide_credentials(self._url)}: {error.reason}"
            if error.transient:
                raise StorageUnavailableError(message) from None
            raise StorageError(message) from None

    def _receive(self, answer: Exchange, *, requested: ByteRange) -> memoryview:
        """Return the requested part, or raise the error that matches the status of the answer."""
        known_version = requested.version
        if answer.status == 404:
            raise ResourceNotFoundError(self.name, self._place)
        if answer.status == 412 and known_version is not None:
            raise ResourceChangedError(self.name, str(known_version), "another version")
        if answer.status == 416:
            # The part lies behind the end of the file, as the file is now.
            self._check_has_not_shrunk(answer, requested)
            return memoryview(b"")
        is_empty = answer.status == 200 and answer.length == 0
        if is_empty:
            # A part of an empty file is nothing, which not every server calls a part.
            return memoryview(b"")
        if answer.status == 200:
            raise WebError(
                "the server does not support ranges. Use one that does, such as nginx, "
                "or load a downloaded copy"
            )
        sent = answer.sent_range
        if answer.status != 206 or sent is None:
            raise WebError(
                f"{answer.describe_status()} instead of bytes {requested.start} to {requested.stop}"
            )
        if known_version is None:
            self._note_version(answer.version)
        # Imported here, so that data_stack is imported without numpy.
        from data_stack.util.reused_memory import received

        part = received.lend(sent.n_bytes)
        answer.read_into(part)
        return part.toreadonly()

    def _check_has_not_shrunk(self, answer: Exchange, requested: ByteRange) -> None:
        """Check that a part behind the end of the file was behind its end before as well.

        Args:
            answer: an answer with status 416.
            requested: the part.

        Raises:
            ResourceChangedError: the file was longer before.
        """
        known_version = requested.version
        if known_version is None or known_version.size is None:
            return
        if known_version.size > requested.start:
            size = file_size_in_416(answer.headers)
            actual = "fewer bytes" if size is None else f"{size:,} bytes"
            raise ResourceChangedError(self.name, str(known_version), actual)

    def _note_version(self, version: FileVersion) -> None:
        """Note the version of the first answer. (The exchange compares those of later answers.)

        Two threads may read for the first time at once. The version of one is noted, and that of
        the other is compared with it.
        """
        with self._lock:
            if self._version is None:
                self._version = version
            first_version = self._version
        if not first_version.agrees_with(version):
            raise ResourceChangedError(self.name, str(first_version), str(version))
