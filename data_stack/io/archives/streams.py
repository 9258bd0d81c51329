"""Binary streams over a part of a file, or over chunks of bytes."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterator
from typing import Any, Final

from data_stack.exception import ArchiveError
from data_stack.io.positional_stream import PositionalStream
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors.storable import COPY_BYTES
from data_stack.util.request_limit import check_request

#: How much is read or unpacked at a time.
CHUNK_BYTES: Final = 1 << 17
#: How many bytes tell what a file is: the header of a tar.
HEAD_BYTES: Final = 512


def ends_with_zeros(data: bytes, read_more: Callable[[], bytes]) -> bool:
    """Read a stream to its end, unless it holds anything but zeros, the padding of archives.

    Args:
        data: the bytes that were read last.
        read_more: reads the next bytes; returns none at the end.

    Returns:
        Whether ``data`` and all bytes after it are zeros.
    """
    while data:
        is_padding = not data.strip(b"\0")
        if not is_padding:
            return False
        data = read_more()
    return True


def window(
    file: StreamedResource,
    start: int = 0,
    end: int | None = None,
    *,
    block_bytes: int = CHUNK_BYTES,
) -> io.BufferedReader:
    """Return a stream over a part of a file, with its own position.

    Closing the stream leaves the file open.

    Args:
        file: the file.
        start: the first byte of the part.
        end: the byte behind its last one; None for the end of the file.
        block_bytes: how much is read at a time.
    """
    if end is None:
        end = file.size
    return io.BufferedReader(_Window(file, start, end), block_bytes)


class _Window(PositionalStream):
    """A raw stream over a part of a file."""

    def __init__(self, file: StreamedResource, start: int, end: int) -> None:
        self._file = file
        self._start = start
        self._end = end

    @property
    def size(self) -> int:
        """Length in bytes."""
        return self._end - self._start

    def readinto_at(self, offset: int, buffer: memoryview, /) -> int:
        n_available = max(0, self.size - offset)
        data = self._file.read_at(self._start + offset, min(len(buffer), n_available))
        buffer[: len(data)] = data
        return len(data)


def chunks_of(stream: Any) -> Iterator[bytes]:
    """Yield the bytes of a file-like object to its end.

    Raises:
        TypeError: it is a text stream.
    """
    while data := stream.read(CHUNK_BYTES):
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(
                f"an archive is read from bytes, not {type(data).__name__}; "
                "open the stream in binary mode"
            )
        yield bytes(data)


def read_within_limit(stream: Any, what: str) -> bytes:
    """Return the rest of a stream of unknown length.

    Args:
        stream: the stream.
        what: the name of the stream in the error.

    Raises:
        RequestLimitError: the stream has more bytes than a request may take.
    """
    data = bytearray()
    while chunk := stream.read(COPY_BYTES):
        data += chunk
        check_request(len(data), what)
    return bytes(data)


def with_head(stream: Any) -> tuple[io.BufferedReader, bytes]:
    """Read the first bytes of a stream that cannot go back.

    Returns:
        A stream over all bytes, the first ones included, and the first 512 bytes. There are fewer
        if the stream is shorter.
    """
    chunks = chunks_of(stream)
    head = b""
    for chunk in chunks:
        head += chunk
        if len(head) >= HEAD_BYTES:
            break
    return stream_of(itertools.chain([head], chunks)), head[:HEAD_BYTES]


def stream_of(chunks: Iterator[bytes], name: str = "") -> io.BufferedReader:
    """Return a forward-only binary stream over chunks; reading raises what the iterator raises.

    Args:
        chunks: the bytes; none but the last chunk may be empty.
        name: the name of the stream, for messages.
    """
    return io.BufferedReader(_ChunkStream(chunks, name), CHUNK_BYTES)


def delay_last_chunk(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield each chunk after the next one was made.

    A checksum is verified at the end of the chunks. Without the delay, a reader would have all
    bytes before that.
    """
    last_chunk = b""
    for chunk in chunks:
        if last_chunk:
            yield last_chunk
        last_chunk = chunk
    if last_chunk:
        yield last_chunk


class _ChunkStream(io.RawIOBase):
    """A raw stream over an iterator of bytes."""

    #: The bytes of the current chunk that were not read yet.
    _unread: memoryview
    #: What reading raises; None while the iterator can go on.
    _error: Exception | None

    def __init__(self, chunks: Iterator[bytes], name: str) -> None:
        self.name = name
        self._chunks = chunks
        self._unread = memoryview(b"")
        self._error = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer).cast("B")
        if not self._unread:
            self._unread = memoryview(self._next_chunk())
        part = self._unread[: len(view)]
        view[: len(part)] = part
        self._unread = self._unread[len(part) :]
        return len(part)

    def _next_chunk(self) -> bytes:
        """Return the next chunk; empty at the end.

        A generator that has raised is exhausted: its next value would look like the end of the
        file. So the error is kept, and raised again by each further read. It is set before the
        generator runs, as Ctrl-C may end the generator without an error that could be kept.
        """
        if self._error is not None:
            raise self._error
        self._error = ArchiveError(f"reading {self.name!r} was interrupted; open it again")
        try:
            chunk = next(self._chunks, b"")
        except Exception as error:
            self._error = error
            raise
        self._error = None
        return chunk
