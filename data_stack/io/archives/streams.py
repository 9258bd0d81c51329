"""Streams over parts of a file, and over chunks of bytes."""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Iterator
from typing import Any, Final

from data_stack.exception import (
    ArchiveError,
)
from data_stack.io.positional_stream import PositionalStream
from data_stack.io.resources import StreamedResource

CHUNK_BYTES: Final = 1 << 17


def window(
    file: StreamedResource,
    start: int = 0,
    end: int | None = None,
    *,
    block_bytes: int = CHUNK_BYTES,
) -> io.BufferedReader:
    """A stream over a part of a file, with its own position; it reads ``block_bytes`` at a time, and leaves the file open."""
    return io.BufferedReader(_Window(file, start, file.size if end is None else end), block_bytes)


class _Window(PositionalStream):
    def __init__(self, file: StreamedResource, start: int, end: int) -> None:
        self._file, self._start, self._end = file, start, end

    size = property(lambda self: self._end - self._start)

    def readinto_at(self, offset: int, buffer: memoryview, /) -> int:
        data = self._file.read_at(
            self._start + offset, max(0, min(len(buffer), self.size - offset))
        )
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        try:
            return super().seek(offset, whence)
        except ValueError as error:
            raise OSError(str(error)) from error  # the error that zipfile expects


def chunks_of(stream: Any) -> Iterator[bytes]:
    """Read a file-like object to its end."""
    while data := stream.read(CHUNK_BYTES):
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(
                f"an archive is read from bytes, not {type(data).__name__}; open the stream in binary mode"
            )
        yield bytes(data)


def with_head(stream: Any) -> tuple[io.BufferedReader, bytes]:
    """A stream of the rest of ``stream``, and the 512 bytes that it begins with (fewer at the end)."""
    chunks = chunks_of(stream)
    head = b""
    for chunk in chunks:
        head += chunk
        if len(head) >= 512:
            break
    return stream_of(itertools.chain([head], chunks)), head[:512]


def stream_of(chunks: Iterator[bytes], name: str = "") -> io.BufferedReader:
    """A forward-only binary stream of non-empty ``chunks``; reading raises what the iterator raises."""
    return io.BufferedReader(_ChunkStream(chunks, name), CHUNK_BYTES)


def delay_last_chunk(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield each chunk once the next one is there, so that checks at the end come before the last byte."""
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

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        if not self._ahead:
            self._ahead = memoryview(self._next())
        part = self._ahead[: len(view)]
        view[: len(part)] = part
        self._ahead = self._ahead[len(part) :]
        return len(part)

    def _next(self) -> bytes:
        if self._error is not None:
            # A generator that raised is exhausted; further reads must not look like the end of the file.
            raise self._error
        self._error = ArchiveError(f"reading {self.name!r} was interrupted; open it again")
        try:
            chunk = next(self._chunks, b"")
        except Exception as error:
            self._error = error
            raise
        self._error = None
        return chunk
