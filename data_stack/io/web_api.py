"""What servers are asked for by HTTP: answers in JSON of a form that is checked, ranges of files."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import quote, urlencode

from data_stack.exception import (
    CatalogueBusyError,
    CatalogueError,
    CatalogueUnavailableError,
    ResourceChangedError,
    ResourceNotFoundError,
    StorageError,
    StorageUnavailableError,
)
from data_stack.io.retriever.fetchers import is_offline
from data_stack.io.url import shorten
from data_stack.io.web import Exchange, Limits, WebError, ask
from data_stack.io.web_answers import ByteRange, FileVersion, sent_range, size_beyond
from data_stack.util.forks import fork_lock
from data_stack.util.untrusted_text import check_json_memory

_NONE: Final[Mapping[str, Any]] = MappingProxyType({})
#: The longest pause that a server may ask for is a minute.
_LIMITS: Final = Limits(n_retries=3, backoff_seconds=0.2, max_wait_seconds=60.0, max_bytes=64 << 20)


@dataclass(frozen=True, slots=True)
class JsonAnswer:
    """What an API answered.

    Attributes:
        status: of HTTP.
        headers: names in any case.
        value: parsed; None if it is not JSON.
    """

    status: int
    headers: Mapping[str, str]
    value: Any


def ask_json(
    url: str,
    asked: str,
    shape: Any,
    *,
    params: Mapping[str, object] = _NONE,
    own_headers: Mapping[str, str] = _NONE,
) -> JsonAnswer:
    """Ask for JSON, again after a pause where that may help.

    Args:
        url: what to ask.
        asked: the server and the subject, for messages: ``"OpenML for openml:61"``.
        shape: of an answer with status 200, as :func:`check_shape` takes it.
        params: of the query, such as a key; they are never shown.
        own_headers: as :class:`~data_stack.io.web.Exchange` takes them, such as a token.

    Raises:
        CatalogueBusyError: the server wants a longer pause than a minute, or was asked too often.
        CatalogueUnavailableError: it does not answer within the timeout and a minute of pauses, or this process is offline.
        CatalogueError: its answer has another shape, or more than 64 MiB, or values that would take more than 512 MiB of memory,
            or it redirects where it may not.
    """
    who, _, what = asked.partition(" for ")
    if is_offline():
        raise CatalogueUnavailableError(
            f"{who} was not asked for {what}, as DATA_STACK_OFFLINE is set"
        )
    full_url = (
        f"{url}{'&' if '?' in url else '?'}{urlencode(params, doseq=True)}" if params else url
    )

    def receive(answer: Exchange) -> JsonAnswer:
        data = answer.read(_LIMITS.max_bytes)
        try:
            check_json_memory(data)
        except ValueError as error:
            raise CatalogueError(f"{who} was asked for {what}: {error}") from None
        value = None
        with contextlib.suppress(ValueError, RecursionError):
            value = json.loads(data)
        return JsonAnswer(answer.status, answer.headers, value)

    try:
        found = ask(
            full_url, receive, _LIMITS, seconds=_LIMITS.max_wait_seconds, own_headers=own_headers
        )
    except WebError as error:
        if error.status == 429:
            raise CatalogueBusyError(f"{who} was asked too often for {what}: retry later") from None
        if not error.transient:
            raise CatalogueError(f"{who} was asked for {what}: {error.reason}") from None
        why = f"did not answer for {what} ({error.reason}): check the network, then retry"
        raise CatalogueUnavailableError(f"{who} {why}") from None
    if found.status == 200:
        try:
            if found.value is None:
                raise ValueError("it is not JSON")
            check_shape(found.value, shape)
        except ValueError as error:
            raise CatalogueError(
                f"{who} answered for {what} in an undocumented form ({error}): update this package"
            ) from None
    return found


def check_shape(value: Any, shape: Any, place: str = "the answer") -> None:
    """Check the structure of untrusted JSON before it is used.

    Args:
        value: parsed JSON.
        shape: a type; a list of one shape, for a list of any length; a tuple of shapes, of which one must fit; or a dict of
            shapes by key, for an object with these keys and others, where a key that ends with ``?`` may be missing or null.
        place: names the value in errors.

    Raises:
        ValueError: it has another shape; the message says where.
    """
    if isinstance(shape, tuple):
        for each in shape[:-1]:
            with contextlib.suppress(ValueError):
                return check_shape(value, each, place)
        return check_shape(value, shape[-1], place)
    kind = shape if isinstance(shape, type) else type(shape)
    fits = isinstance(value, kind) and not (isinstance(value, bool) and kind in (int, float))
    if not fits:
        raise ValueError(f"{place} is {_NAMES.get(type(value), 'null')}, expected {_NAMES[kind]}")
    if isinstance(shape, list):
        for position, each in enumerate(value):
            check_shape(each, shape[0], f"entry {position} of {place}")
    elif isinstance(shape, dict):
        for key, inner in shape.items():
            name = key.removesuffix("?")
            if value.get(name) is None and key.endswith("?"):
                continue
            if name not in value:
                raise ValueError(f"{place} has no {name!r}")
            check_shape(value[name], inner, f"{name!r} of {place}")
    return None


_NAMES: Final = {
    dict: "an object",
    list: "a list",
    str: "a text",
    int: "an integer",
    float: "a number",
    bool: "true or false",
}


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
