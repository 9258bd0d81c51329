"""The contract between the retrieval engine and fetchers."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from typing import Final, TypeAlias

from data_stack.exception import DataStackError
from data_stack.io.resource_definition import ResourceDefinition
from data_stack.io.storage_connectors.writer import ResourceWriter
from data_stack.io.web import Limits

#: How many of the first bytes are kept, to recognize a page or a pointer in place of a file.
_HEAD_BYTES: Final = 4096
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


class SourceError(DataStackError):
    """The error of one source, without credentials.

    It becomes an entry of ``RetrievalError.attempts``.
    """


def _do_nothing() -> None:
    """Stand in for ``interrupt`` until the fetcher sets it."""


class Transfer:
    """Receives the bytes of one source from a fetcher.

    A fetcher runs in its own thread, watched by the thread that called ``retrieve()``. Its bytes
    are hashed and counted, and published only once all of them arrived and match the definition.

    Args:
        definition: the resource to retrieve.
        writer: where the bytes go.
        timeout_seconds: longest silence of a source.
        limits: limits of the size, the rate, retries and pauses; None for the default ones.

    Attributes:
        definition: the resource to retrieve.
        size: bytes written so far.
        head: the first bytes, at most 4 KiB.
        timeout_seconds: longest silence of a source.
        limits: limits of the size, the rate, retries and pauses.
        expected_size: length of the whole; the fetcher sets it when the source announces one.
        encoding: coding in which the source says that it sent the bytes, such as ``gzip``; the
            fetcher sets it.
        has_end: whether the source tells where the whole ends, so that a truncated resource would
            be noticed; the fetcher sets it to False if it does not.
        is_verified: whether the fetcher has compared the bytes with a digest that is not one of
            hashlib's, such as that of a Git object; the fetcher sets it.
        listed_digest: the digest that the source lists, as (algorithm, hexadecimal digits);
            :meth:`expect` sets it.
        interrupt: makes a blocking call of the fetcher fail. Another thread calls it when the
            transfer is ended; the fetcher sets it.
    """

    definition: ResourceDefinition
    size: int
    head: bytes
    timeout_seconds: float
    limits: Limits
    expected_size: int | None
    encoding: str | None
    has_end: bool
    is_verified: bool
    listed_digest: tuple[str, str] | None
    interrupt: Callable[[], None]
    _writer: ResourceWriter
    #: More bytes than these are refused.
    _max_bytes: int
    #: The hashes of the bytes written, by algorithm.
    _hashes: dict[str, hashlib._Hash]
    #: Whether the fetcher has begun, by writing or by resuming.
    _has_begun: bool
    #: Set once the transfer is ended.
    _ended: threading.Event

    def __init__(
        self,
        definition: ResourceDefinition,
        writer: ResourceWriter,
        *,
        timeout_seconds: float = 30.0,
        limits: Limits | None = None,
    ) -> None:
        if limits is None:
            limits = Limits()
        self.definition = definition
        self.timeout_seconds = timeout_seconds
        self.limits = limits
        self.size = 0
        self.head = b""
        self.expected_size = definition.size
        self.encoding = None
        self.has_end = True
        self.is_verified = False
        self.listed_digest = None
        self.interrupt = _do_nothing
        self._writer = writer
        self._max_bytes = limits.max_bytes if definition.size is None else definition.size
        self._has_begun = False
        self._ended = threading.Event()
        self._hashes = {}
        if definition.md5_sum is not None:
            self.hash_by("md5")

    # ------------------------------------------------------------------ for fetchers

    @property
    def has_digest(self) -> bool:
        """Whether a digest will verify the bytes, so that no heuristics are needed."""
        is_defined = bool(self.definition.sha256 or self.definition.md5_sum)
        return is_defined or self.listed_digest is not None

    def expect(self, algorithm: str, digest: str) -> None:
        """Compare the bytes with a digest that the source lists, once all of them have arrived.

        A fetcher calls this before it writes the first byte.

        Args:
            algorithm: an algorithm of hashlib, such as ``"sha1"``.
            digest: hexadecimal.
        """
        self.hash_by(algorithm)
        self.listed_digest = (algorithm, digest.lower())

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write the next bytes.

        Raises:
            SourceError: there are more bytes than expected or allowed, or the transfer was ended.
            StorageError: the store could not write; fetchers do not catch it.
        """
        self.check()
        if not self._has_begun:
            self._begin_anew()
        view = memoryview(data).cast("B")
        if self.size + len(view) > self._max_bytes:
            kind_of_limit = "limit of" if self.definition.size is None else "expected"
            raise SourceError(f"sends more than the {kind_of_limit} {self._max_bytes:,} bytes")
        self._writer.write(view)
        self._count(view)

    def take_up(self) -> str | None:
        """Resume an interrupted retrieval of this source, before anything is written.

        Returns:
            The validator that the interrupted retrieval passed to :meth:`keep`; None if there is
            nothing to resume.
        """
        self._has_begun = True
        partial = self._writer.partial
        if partial is None or partial.validator is None or not self.has_digest:
            return None

        # The bytes that an interrupted retrieval has written are hashed again.
        validator = partial.validator
        for data in self._writer.take_up():
            self.check()
            self._count(data)
        is_a_beginning = 0 < self.size <= self._max_bytes
        if not is_a_beginning:
            self.keep(None)
            self.restart()
            return None
        return validator

    def keep(self, validator: str | None) -> None:
        """Let a later retrieval resume this one if it is interrupted.

        Without a digest nothing is kept, as nothing could verify what is resumed.

        Args:
            validator: identifies the version at the source, such as an ETag; None if the source has
                no such thing, or if nothing is to be kept.
        """
        if not self.has_digest:
            validator = None
        if self._writer.partial is not None:
            self._writer.partial.keep(validator)

    def restart(self) -> None:
        """Discard all bytes written."""
        self._writer.seek(0)
        self._writer.truncate(0)
        self.size = 0
        self.head = b""
        for algorithm in self._hashes:
            self._hashes[algorithm] = hashlib.new(algorithm, usedforsecurity=False)

    def hash_by(self, algorithm: str) -> hashlib._Hash:
        """Return the hash of the bytes written, by an algorithm of hashlib.

        The first call comes before the first byte, and begins the hash. A later call returns it.
        """
        if algorithm not in self._hashes:
            self._hashes[algorithm] = hashlib.new(algorithm, usedforsecurity=False)
        return self._hashes[algorithm]

    def check(self) -> None:
        """Check whether the transfer may continue.

        Raises:
            SourceError: the transfer was ended (by Ctrl-C).
        """
        self.wait(0)

    def wait(self, seconds: float) -> None:
        """Sleep for some seconds.

        Raises:
            SourceError: the transfer was ended (by Ctrl-C), which ends the sleep too.
        """
        if self._ended.wait(seconds):
            raise SourceError("interrupted")

    # ------------------------------------------------------------------ for the engine

    def end(self) -> None:
        """Make the fetcher fail at its next step."""
        self._ended.set()
        self.interrupt()

    # ------------------------------------------------------------------ inside

    def _begin_anew(self) -> None:
        """Discard what an interrupted retrieval has written, unless this fetcher resumes it."""
        self._has_begun = True
        partial = self._writer.partial
        if partial is not None and partial.validator is not None:
            self.keep(None)
            self.restart()

    def _count(self, data: bytes | memoryview) -> None:
        """Count and hash bytes that are written."""
        for digest in self._hashes.values():
            digest.update(data)
        n_missing_of_head = _HEAD_BYTES - len(self.head)
        if n_missing_of_head > 0:
            self.head += bytes(data[:n_missing_of_head])
        self.size += len(data)


#: ``fetch(source, transfer)`` writes all bytes of ``source`` to ``transfer``. It raises
#: SourceError; any other exception but StorageError counts as one, with its text.
Fetch: TypeAlias = Callable[[str, Transfer], None]


def looks_like_page(head: bytes) -> bool:
    """Return whether ``head`` begins an HTML page."""
    text = head.removeprefix(_BYTE_ORDER_MARK).lstrip()
    return text[:20].lower().startswith((b"<!doctype html", b"<html"))
