"""The contract between the retrieval engine and those who fetch: where fetched bytes go, and when fetching ends."""

from __future__ import annotations

import contextlib
import hashlib
import html
import math
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import unquote

from data_stack.exception import DataStackError, StorageError
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.storage_connectors.writer import ResourceWriter

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined]  # typeshed: Python 3.12

_HEAD_BYTES = 4096
_TITLE = re.compile(rb"<title[^>]*>(.*?)</title", re.IGNORECASE | re.DOTALL)
_SECRET_NAME = re.compile(r"token|secret|sig|key|passw|pwd|auth|credential|session|jwt", re.IGNORECASE)
_PARAMETER = re.compile(r"([?&;#])([^=&;#?]*)=([^&;#]*)")
_USERINFO = re.compile(r"(?<=://)[^/?#\s@]*(?:@[^/?#\s@]*)*@")


@dataclass(frozen=True)
class Limits:
    """How long and how much to retrieve before giving up.

    Attributes:
        least_bytes_per_second: a transfer that stays slower than this ends as stalled, after about the timeout.
        max_bytes: largest resource accepted where its definition names no size.
        n_retries: tries after the first that bring nothing new, for each source; what was cut off is resumed.
        backoff_seconds: wait before the first retry; doubled each time, with jitter.
        max_wait_seconds: longest wait between two tries, whatever a server's Retry-After asks for.
    """

    least_bytes_per_second: float = 1024.0
    max_bytes: int = 64 << 30
    n_retries: int = 4
    backoff_seconds: float = 0.5
    max_wait_seconds: float = 30.0


class SourceError(DataStackError):
    """What one source said instead of delivering; becomes an entry of ``RetrievalError.attempts``.

    Attributes:
        transient: whether asking the same source again may help.
        retry_after: seconds the source asked to wait; None if it did not say.
    """

    def __init__(self, said: str, transient: bool = False, retry_after: float | None = None) -> None:
        super().__init__(said, transient, retry_after)
        self.said, self.transient, self.retry_after = said, transient, retry_after

    def __str__(self) -> str:
        return self.said


class Transfer:
    """The way of one source's bytes into the store; what a fetcher writes to.

    A fetcher runs in a thread of its own, under the eyes of the thread that called ``retrieve()``. Whatever it
    writes is hashed and counted; nothing is published before all of it arrived and agrees with the definition.

    Attributes:
        definition: what is to be retrieved.
        size: bytes written so far.
        expected_size: length of the whole; the fetcher sets it when the source announces one.
        timeout_seconds: longest silence of a source.
        limits: the other limits.
    """

    def __init__(
        self,
        definition: ResourceDefinition,
        writer: ResourceWriter,
        *,
        timeout_seconds: float = 30.0,
        limits: Limits = Limits(),
    ) -> None:
        self.definition, self.timeout_seconds, self.limits = definition, timeout_seconds, limits
        self.size = 0
        self.expected_size = definition.size
        self.head = b""
        self._writer = writer
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._lock = threading.Lock()
        self._interrupt: Callable[[], None] | None = None
        self._due = math.inf
        self._stalled = False
        self._size_at_start = 0
        self._ended = threading.Event()
        self._reason = ""

    # ------------------------------------------------------------------ for fetchers

    @property
    def has_digest(self) -> bool:
        """Whether a digest will tell right bytes from wrong ones, so that guesses about their looks need not."""
        return bool(self.definition.sha256 or self.definition.md5_sum)

    def write(self, data: Buffer) -> None:
        """Take in the next bytes.

        Raises:
            SourceError: there are more than expected or allowed, or the transfer was ended.
            StorageError: the store could not write; fetchers let it pass.
        """
        self.check()
        view = memoryview(data).cast("B")
        size = self.size + len(view)
        most = self.limits.max_bytes if self.definition.size is None else self.definition.size
        if size > most:
            limit = f"the limit of {most:,}" if self.definition.size is None else f"the expected {most:,}"
            raise SourceError(f"sends more than {limit} bytes")
        # A slow disk is no fault of the source: its clock stands still meanwhile.
        due, self._due = self._due, math.inf
        started = time.monotonic()
        try:
            self._writer.write(view)
        except OSError as error:
            raise _storage_error(self.definition.identifier, error) from error
        if self.definition.md5_sum is not None:
            self._md5.update(view)
        if len(self.head) < _HEAD_BYTES:
            self.head += bytes(view[: _HEAD_BYTES - len(self.head)])
        self.size = size
        now = time.monotonic()
        self._due = min(now + self.timeout_seconds, due + (now - started) + len(view) / self.limits.least_bytes_per_second)

    def take_up(self) -> str | None:
        """Count what an earlier retrieval of this source left, before anything is written.

        Returns:
            What :meth:`keep` was told then; None if nothing is there to go on with.
        """
        partial = self._writer.partial
        if partial is None or partial.validator is None:
            return None
        most = self.limits.max_bytes if self.definition.size is None else self.definition.size
        try:
            for data in self._writer.take_up():
                self.check()
                self._md5.update(data)
                self.head += data[: max(0, _HEAD_BYTES - len(self.head))]
                self.size += len(data)
        except OSError as error:
            raise _storage_error(self.definition.identifier, error) from error
        if not 0 < self.size <= most:
            self.keep(None)
            self.restart()
        return partial.validator

    def keep(self, validator: str | None) -> None:
        """Let a later retrieval of this source go on with what is written from now on, if this one is interrupted.

        Args:
            validator: what has to be the same then, at the source; None if nothing tells.
        """
        if self._writer.partial is not None:
            self._writer.partial.keep(validator)

    def restart(self) -> None:
        """Forget what was written; the next byte is the first."""
        try:
            self._writer.seek(0)
            self._writer.truncate(0)
        except OSError as error:
            raise _storage_error(self.definition.identifier, error) from error
        self.size, self.head = 0, b""
        self._md5 = hashlib.md5(usedforsecurity=False)

    def check(self) -> None:
        """Go on if the transfer may.

        Raises:
            SourceError: it was ended (by Ctrl-C), or its source stalled.
        """
        if self._ended.is_set():
            raise SourceError(self._reason)
        if self._stalled:
            if self.size == self._size_at_start:
                raise SourceError(f"no answer within {self.timeout_seconds:g} s", transient=True)
            raise SourceError(f"stalled: too little came within {self.timeout_seconds:g} s", transient=True)

    def wait(self, seconds: float) -> None:
        """Sleep, unless the transfer is ended meanwhile."""
        if self._ended.wait(seconds):
            raise SourceError(self._reason)

    @contextlib.contextmanager
    def interruptible(self, interrupt: Callable[[], None]) -> Iterator[None]:
        """Have the block watched: when too little comes, or the transfer is to end, ``interrupt`` is called.

        It is called from another thread, once or more, and makes whatever the block waits for fail.
        """
        with self._lock:
            self._stalled, self._size_at_start = False, self.size
            self._due = time.monotonic() + self.timeout_seconds
            self._interrupt = interrupt
        try:
            self.check()
            yield
        finally:
            with self._lock:
                self._interrupt, self._due = None, math.inf

    # ------------------------------------------------------------------ for the engine

    @property
    def md5(self) -> str:
        """MD5 of what was written, 32 hex digits; computed only if the definition names one."""
        return self._md5.hexdigest()

    def supervise(self, now: float) -> None:
        """Interrupt the fetcher if its time is up."""
        if now > self._due:
            with self._lock:
                if self._interrupt is not None and now > self._due:
                    self._stalled = True
                    self._interrupt()

    def end(self, reason: str) -> None:
        """Make the fetcher fail at its next step."""
        if not self._ended.is_set():
            self._reason = reason
            self._ended.set()
        with self._lock:
            if self._interrupt is not None:
                self._interrupt()


#: ``fetch(source, transfer)`` writes all bytes of ``source`` to ``transfer``. It raises SourceError with what the source
#: said; any other exception but StorageError counts as one, with its text.
Fetch: TypeAlias = Callable[[str, Transfer], None]


def _storage_error(identifier: str, error: OSError) -> StorageError:
    if isinstance(error, StorageError):
        return error
    return StorageError(f"could not store {identifier!r}: {error.strerror or error}", error.errno)


# ---------------------------------------------------------------------- what may be shown


def shorten(source: str) -> str:
    """A source as it may stand in an error, a log or a manifest: without credentials or control characters."""
    if userinfo := _userinfo(source):
        source = source.replace(f"{userinfo}@", "***@", 1)
    return _without_secrets(source)


def redact(text: str, *sources: str) -> str:
    """``text``, which may come from a server or library, without the credentials in any of ``sources``."""
    for source in sources:
        for secret in sorted(_secrets(source), key=len, reverse=True):
            text = text.replace(secret, "***")
    return _without_secrets(text)


def printable(text: str) -> str:
    """``text`` in one line without characters that a terminal would obey."""
    return "".join(character if character.isprintable() else " " for character in text)


def looks_like_page(head: bytes) -> bool:
    """Whether what begins with ``head`` is an HTML page, by its first words."""
    return head.removeprefix(b"\xef\xbb\xbf").lstrip()[:20].lower().startswith((b"<!doctype html", b"<html"))


def describe_page(head: bytes) -> str:
    """Say what HTML page begins with ``head``."""
    title = _TITLE.search(head)
    if title is None:
        return "an HTML page"
    words = " ".join(html.unescape(title[1].decode("utf-8", "replace")).split())
    return f"an HTML page titled {printable(words)[:80]!r}"


def _without_value(parameter: re.Match[str]) -> str:
    mark, name, _ = parameter.groups()
    return f"{mark}{name}=***" if _SECRET_NAME.search(unquote(name)) else parameter.group()


def _without_secrets(text: str) -> str:
    """Any text without what looks like a credential in a URL."""
    return printable(_PARAMETER.sub(_without_value, _USERINFO.sub("***@", text)))


def _userinfo(source: str) -> str:
    """The user and password of a URL, also where a bare ``/``, ``?`` or ``#`` in them misleads every parser."""
    _, _, rest = source.partition("://")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    is_clear = "@" in authority or re.fullmatch(r"(\[.*\]|[^:]*)(:\d*)?", authority) is not None
    return (authority if is_clear else rest).rpartition("@")[0]


def _secrets(source: str) -> set[str]:
    """Everything in ``source`` that nobody else may see, as it stands there and decoded; too short words aside."""
    userinfo = _userinfo(source)
    found = [userinfo, *userinfo.split(":", 1), *re.split(r"[:/?#@]", userinfo)]
    found += [value for _, name, value in _PARAMETER.findall(source) if _SECRET_NAME.search(unquote(name))]
    return {form for secret in found for form in (secret, unquote(secret)) if len(form) >= 4}
