"""A readable stream over chunks of bytes."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING

from data_stack.exception import ArchiveError

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined]  # typeshed: Python 3.12


def stream_of(chunks: Iterator[bytes], name: str) -> io.BufferedReader:
    """A binary stream of ``chunks`` (none of them empty), forward only. What making a chunk raises, reading raises."""
    return io.BufferedReader(_ChunkStream(chunks, name))


def held_back(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The same chunks, each when the next one is there: checks made at the end come before the last byte is given out."""
    held = b""
    for chunk in chunks:
        if held:
            yield held
        held = chunk
    if held:
        yield held


class _ChunkStream(io.RawIOBase):
    def __init__(self, chunks: Iterator[bytes], name: str) -> None:
        self.name = name
        self._chunks = chunks
        self._ahead = memoryview(b"")
        self._error: Exception | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer) -> int:
        view = memoryview(buffer).cast("B")
        if not self._ahead:
            self._ahead = memoryview(self._next())
        part = self._ahead[: len(view)]
        view[: len(part)] = part
        self._ahead = self._ahead[len(part) :]
        return len(part)

    def _next(self) -> bytes:
        if self._error is not None:
            # A generator that has raised is at its end; reading on must not look like the end of the file.
            raise self._error
        self._error = ArchiveError(f"reading {self.name!r} was interrupted; open it again")
        try:
            chunk = next(self._chunks, b"")
        except Exception as error:
            self._error = error
            raise
        self._error = None
        return chunk
