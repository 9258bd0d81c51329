"""The contract between the retrieval engine and fetchers."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from typing import TypeAlias

from data_stack.exception import DataStackError
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.storage_connectors.writer import ResourceWriter
from data_stack.io.web.limits import Limits


class SourceError(DataStackError):
    """The error of one source, without credentials; becomes an entry of ``RetrievalError.attempts``."""


class Transfer:
    """Receives the bytes of one source from a fetcher.

    A fetcher runs in its own thread, watched by the thread that called ``retrieve()``. Its bytes are hashed and counted, and
    published only once all of them arrived and match the definition.

    Attributes:
        definition: the resource to retrieve.
        size: bytes written so far.
        expected_size: length of the whole; the fetcher sets it when the source announces one.
        encoding: coding in which the source says that it sent the bytes, such as ``gzip``; the fetcher sets it.
        has_end: whether the source tells where the whole ends, so that a cut one would be noticed; the fetcher sets it.
        is_verified: whether the bytes have a digest that the source lists and the definition cannot hold; the fetcher sets it.
        timeout_seconds: longest silence of a source.
        limits: the other limits.
        interrupt: called by another thread when the transfer is ended, to make a blocking call fail; the fetcher sets it.
    """

    interrupt: Callable[[], None] = staticmethod(lambda: None)

    def __init__(
        self,
        definition: ResourceDefinition,
        writer: ResourceWriter,
        *,
        timeout_seconds: float = 30.0,
        limits: Limits | None = None,
    ) -> None:
        self.definition = definition
        self.timeout_seconds = timeout_seconds
        self.limits = limits or Limits()
        self.size = 0
        self.expected_size = definition.size
        self.encoding: str | None = None
        self.has_end = True
        #: Algorithm and hexadecimal digest that the source lists besides the definition.
        self.listed_digest: tuple[str, str] | None = None
        self._has_begun = False
        self.is_verified = False
        self.head = b""
        self._writer = writer
        self._most = self.limits.max_bytes if definition.size is None else definition.size
        self._hashes: dict[str, hashlib._Hash] = {}
        if definition.md5_sum is not None:
            self.hash_by("md5")
        self._ended = threading.Event()

    # ------------------------------------------------------------------ for fetchers

    @property
    def has_digest(self) -> bool:
        """Whether a digest will verify the bytes, so that no heuristics are needed."""
        is_listed = self.listed_digest is not None
        return bool(self.definition.sha256 or self.definition.md5_sum) or is_listed

    def expect(self, algorithm: str, digest: str) -> None:
        """Let the bytes be compared with a digest that the source lists, once all of them are there; before the first byte.

        Args:
            algorithm: of hashlib, such as ``"sha1"``.
            digest: hexadecimal.
        """
        self.hash_by(algorithm)
        self.listed_digest = (algorithm, digest.lower())

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write the next bytes.

        Raises:
            SourceError: there are more than expected or allowed, or the transfer was ended.
            StorageError: the store could not write; fetchers do not catch it.
        """
        self.check()
        if not self._has_begun:
            self._begin()
        view = memoryview(data).cast("B")
        if self.size + len(view) > self._most:
            what = "limit of" if self.definition.size is None else "expected"
            raise SourceError(f"sends more than the {what} {self._most:,} bytes")
        self._writer.write(view)
        self._count(view)

    def take_up(self) -> str | None:
        """Resume an interrupted retrieval of this source, before anything is written.

        Returns:
            The validator that it passed to :meth:`keep`; None if there is nothing to resume.
        """
        self._has_begun = True
        partial = self._writer.partial
        if partial is None or partial.validator is None or not self.has_digest:
            return None
        for data in self._writer.take_up():
            self.check()
            self._count(data)
        if not 0 < self.size <= self._most:
            self.keep(None)
            self.restart()
        return partial.validator

    def keep(self, validator: str | None) -> None:
        """Let a later retrieval resume this one if it is interrupted.

        Args:
            validator: identifies the version at the source, such as an ETag; None if it has none. Without a digest nothing
                could verify what is resumed, so nothing is kept.
        """
        if self._writer.partial is not None:
            self._writer.partial.keep(validator if self.has_digest else None)

    def restart(self) -> None:
        """Discard all bytes written."""
        self._writer.seek(0)
        self._writer.truncate(0)
        self.size, self.head = 0, b""
        self._hashes = {name: hashlib.new(name, usedforsecurity=False) for name in self._hashes}

    def hash_by(self, algorithm: str) -> hashlib._Hash:
        """The hash of the bytes written, by an algorithm of hashlib; called before the first byte, and again for the result."""
        return self._hashes.setdefault(algorithm, hashlib.new(algorithm, usedforsecurity=False))

    def check(self) -> None:
        """Check whether the transfer may continue.

        Raises:
            SourceError: it was ended (by Ctrl-C).
        """
        self.wait(0)

    def wait(self, seconds: float) -> None:
        """Sleep until the transfer is ended, at most ``seconds``."""
        if self._ended.wait(seconds):
            raise SourceError("interrupted")

    def _begin(self) -> None:
        """Discard what an earlier retrieval left and this fetcher did not take up."""
        self._has_begun = True
        if self._writer.partial is not None and self._writer.partial.validator is not None:
            self.keep(None)
            self.restart()

    def _count(self, data: bytes | memoryview) -> None:
        for each in self._hashes.values():
            each.update(data)
        self.head += bytes(data[: max(0, 4096 - len(self.head))])
        self.size += len(data)

    # ------------------------------------------------------------------ for the engine

    def end(self) -> None:
        """Make the fetcher fail at its next step."""
        self._ended.set()
        self.interrupt()


#: ``fetch(source, transfer)`` writes all bytes of ``source`` to ``transfer``. It raises SourceError; any other exception but
#: StorageError counts as one, with its text.
Fetch: TypeAlias = Callable[[str, Transfer], None]


def looks_like_page(head: bytes) -> bool:
    """Whether ``head`` begins an HTML page."""
    return (
        head.removeprefix(b"\xef\xbb\xbf")
        .lstrip()[:20]
        .lower()
        .startswith((b"<!doctype html", b"<html"))
    )
