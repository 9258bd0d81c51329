"""The contract between the retrieval engine and fetchers."""

from __future__ import annotations

import contextlib
import hashlib
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
_SECRET_NAME = re.compile(r"token|secret|sig|key|passw|pwd|auth|credential|session|jwt", re.IGNORECASE)
_PARAMETER = re.compile(r"([?&;#])([^=&;#?]*)=([^&;#]*)")
_USERINFO = re.compile(r"(?<=://)[^/?#\s@]*(?:@[^/?#\s@]*)*@")


@dataclass(frozen=True)
class Limits:
    """Limits of time, size and retries.

    Attributes:
        least_bytes_per_second: a slower transfer ends as stalled, after about the timeout.
        max_bytes: largest resource accepted without a defined size.
        n_retries: retries per source without progress; interrupted transfers are resumed.
        backoff_seconds: wait before the first retry; doubled each time, with jitter.
        max_wait_seconds: longest wait between two tries, also for a server's Retry-After.
    """

    least_bytes_per_second: float = 1024.0
    max_bytes: int = 64 << 30
    n_retries: int = 4
    backoff_seconds: float = 0.5
    max_wait_seconds: float = 30.0


class SourceError(DataStackError):
    """The error of one source; becomes an entry of ``RetrievalError.attempts``.

    Attributes:
        transient: whether a retry may help.
        retry_after: seconds that the source asked to wait, or None.
    """

    def __init__(self, reason: str, transient: bool = False, retry_after: float | None = None) -> None:
        super().__init__(reason, transient, retry_after)
        self.reason, self.transient, self.retry_after = reason, transient, retry_after

    def __str__(self) -> str:
        return self.reason


class Transfer:
    """Receives the bytes of one source from a fetcher.

    A fetcher runs in its own thread, watched by the thread that called ``retrieve()``. Its bytes are hashed and counted, and
    published only once all of them arrived and match the definition.

    Attributes:
        definition: the resource to retrieve.
        size: bytes written so far.
        expected_size: length of the whole; the fetcher sets it when the source announces one.
        is_verified: whether the bytes have a digest that the source lists and the definition cannot hold; the fetcher sets it.
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
        self.is_verified = False
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
        """Whether a digest will verify the bytes, so that no heuristics are needed."""
        return bool(self.definition.sha256 or self.definition.md5_sum)

    def write(self, data: Buffer) -> None:
        """Write the next bytes.

        Raises:
            SourceError: there are more than expected or allowed, or the transfer was ended.
            StorageError: the store could not write; fetchers do not catch it.
        """
        self.check()
        view = memoryview(data).cast("B")
        size = self.size + len(view)
        most = self.limits.max_bytes if self.definition.size is None else self.definition.size
        if size > most:
            limit = f"the limit of {most:,}" if self.definition.size is None else f"the expected {most:,}"
            raise SourceError(f"sends more than {limit} bytes")
        # The clock of the source stops while a slow disk writes.
        due, self._due = self._due, math.inf
        started = time.monotonic()
        try:
            self._writer.write(view)
        except StorageError:
            raise
        except OSError as error:
            raise StorageError(f"could not store {self.definition.identifier!r}: {error}", error.errno) from error
        if self.definition.md5_sum is not None:
            self._md5.update(view)
        if len(self.head) < _HEAD_BYTES:
            self.head += bytes(view[: _HEAD_BYTES - len(self.head)])
        self.size = size
        now = time.monotonic()
        self._due = min(now + self.timeout_seconds, due + (now - started) + len(view) / self.limits.least_bytes_per_second)

    def take_up(self) -> str | None:
        """Resume an interrupted retrieval of this source, before anything is written.

        Returns:
            The validator that it passed to :meth:`keep`; None if there is nothing to resume.
        """
        partial = self._writer.partial
        if partial is None or partial.validator is None:
            return None
        most = self.limits.max_bytes if self.definition.size is None else self.definition.size
        for data in self._writer.take_up():
            self.check()
            self._md5.update(data)
            self.head += data[: max(0, _HEAD_BYTES - len(self.head))]
            self.size += len(data)
        if not 0 < self.size <= most:
            self.keep(None)
            self.restart()
        return partial.validator

    def keep(self, validator: str | None) -> None:
        """Let a later retrieval resume this one if it is interrupted.

        Args:
            validator: identifies the version at the source, such as an ETag; None if it has none.
        """
        if self._writer.partial is not None:
            self._writer.partial.keep(validator)

    def restart(self) -> None:
        """Discard all bytes written."""
        self._writer.seek(0)
        self._writer.truncate(0)
        self.size, self.head = 0, b""
        self._md5 = hashlib.md5(usedforsecurity=False)

    def check(self) -> None:
        """Check whether the transfer may continue.

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
        """Sleep until the transfer is ended, at most ``seconds``."""
        if self._ended.wait(seconds):
            raise SourceError(self._reason)

    @contextlib.contextmanager
    def interruptible(self, interrupt: Callable[[], None]) -> Iterator[None]:
        """Watch the block: if its source stalls or the transfer ends, another thread calls ``interrupt``, perhaps several times.

        ``interrupt`` must make the blocking call of the block fail.
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
        """MD5 of the bytes written, 32 hex digits; computed only if the definition has one."""
        return self._md5.hexdigest()

    def supervise(self, now: float) -> None:
        """Interrupt a stalled fetcher."""
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


#: ``fetch(source, transfer)`` writes all bytes of ``source`` to ``transfer``. It raises SourceError; any other exception but
#: StorageError counts as one, with its text.
Fetch: TypeAlias = Callable[[str, Transfer], None]


# ---------------------------------------------------------------------- redaction


def shorten(source: str) -> str:
    """A source for errors, logs and manifests: without credentials or control characters."""
    if userinfo := _userinfo(source):
        source = source.replace(f"{userinfo}@", "***@", 1)
    return _without_secrets(source)


def redact(text: str, *sources: str) -> str:
    """``text`` of a server or library without the credentials in any of ``sources``."""
    for source in sources:
        for secret in sorted(_secrets(source), key=len, reverse=True):
            text = text.replace(secret, "***")
    return _without_secrets(text)


def printable(text: str) -> str:
    """``text`` in one line without control characters."""
    return "".join(character if character.isprintable() else " " for character in text)


def looks_like_page(head: bytes) -> bool:
    """Whether ``head`` begins an HTML page."""
    return head.removeprefix(b"\xef\xbb\xbf").lstrip()[:20].lower().startswith((b"<!doctype html", b"<html"))


def _without_value(parameter: re.Match[str]) -> str:
    mark, name, _ = parameter.groups()
    return f"{mark}{name}=***" if _SECRET_NAME.search(unquote(name)) else parameter.group()


def _without_secrets(text: str) -> str:
    """A text without anything that looks like a credential of a URL."""
    return printable(_PARAMETER.sub(_without_value, _USERINFO.sub("***@", text)))


def _userinfo(source: str) -> str:
    """The user and password of a URL, even with an unencoded ``/``, ``?`` or ``#``, which misleads parsers."""
    _, _, rest = source.partition("://")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    is_clear = "@" in authority or re.fullmatch(r"(\[.*\]|[^:]*)(:\d*)?", authority) is not None
    return (authority if is_clear else rest).rpartition("@")[0]


def _secrets(source: str) -> set[str]:
    """All secrets in ``source``, as written and decoded, except very short ones."""
    userinfo = _userinfo(source)
    found = [userinfo, *userinfo.split(":", 1), *re.split(r"[:/?#@]", userinfo)]
    found += [value for _, name, value in _PARAMETER.findall(source) if _SECRET_NAME.search(unquote(name))]
    return {form for secret in found for form in (secret, unquote(secret)) if len(form) >= 4}
