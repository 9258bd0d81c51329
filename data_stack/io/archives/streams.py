"""Streams for archives: parts of the caller's stream, streams of chunks, what gzip, bzip2, xz or zstd unpack, within limits."""

from __future__ import annotations

import bz2
import io
import itertools
import lzma
import math
import os
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, Final

from data_stack.exception import (
    ArchiveError,
    ArchiveLimitError,
    ConfigError,
    MissingDependencyError,
)
from data_stack.io.byte_source import Positioned
from data_stack.io.positional import name_of
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors.writer import can_seek


@dataclass(frozen=True)
class ArchiveLimits:
    """Bounds on the unpacked size, counted while unpacking; sizes in headers can only make it fail earlier.

    Args:
        max_bytes: of all members together.
        max_members: entries, folders included. Their names are kept in memory, about 100 bytes each.
        max_ratio: unpacked bytes per stored byte, checked beyond 16 MiB of output. Images reach 1, tables 10, sparse masks a
            few 100; a bomb of zeros has 1,000 (gzip) to 1,000,000 (bzip2).

    Raises:
        ConfigError: a limit is not positive.
    """

    max_bytes: int = 1 << 40
    max_members: int = 1_000_000
    max_ratio: float = 200.0

    def __post_init__(self) -> None:
        for field in fields(self):
            if not getattr(self, field.name) > 0:
                raise ConfigError(
                    f"{field.name} of ArchiveLimits must be positive, got {getattr(self, field.name)!r}"
                )

    def check_bytes(self, archive: str, n_bytes: int) -> None:
        """Refuse more than ``max_bytes``."""
        if n_bytes > self.max_bytes:
            raise _limit_error(
                archive, f"unpacks to more than {self.max_bytes:,} bytes", "max_bytes"
            )

    def check_count(self, archive: str, n_members: int) -> None:
        """Refuse more than ``max_members``."""
        if n_members > self.max_members:
            raise _limit_error(
                archive, f"has more than {self.max_members:,} members", "max_members"
            )

    def check_ratio(self, archive: str, n_bytes: int, n_stored_bytes: int) -> None:
        """Refuse a compression ratio above ``max_ratio``."""
        # Archives that unpack to at most this are never bombs.
        if n_bytes > 16 << 20 and n_bytes > self.max_ratio * n_stored_bytes:
            what = f"unpacks {n_stored_bytes:,} bytes to {n_bytes:,}, more than {self.max_ratio:g} fold"
            raise _limit_error(archive, what, "max_ratio")


def _limit_error(archive: str, what: str, limit: str) -> ArchiveLimitError:
    return ArchiveLimitError(
        f"{archive!r} {what}. If you trust it, read it with limits=ArchiveLimits({limit}=…)."
    )


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


class _Window(Positioned):
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


#: What a decompressor may allocate for itself. ``xz -9`` needs 65 MiB, ``zstd --long`` 128 MiB.
_MAX_WINDOW_BYTES: Final = 1 << 27
#: Small, because unused input is copied after each of the many streams that a hostile file may have, and because zstandard does
#: not bound its output: 8 bytes become at most 256 KiB, this much 32 MiB.
_INPUT_BYTES: Final = 1 << 10
_MAGICS: Final = {
    "gzip": b"\x1f\x8b",
    "bz2": b"BZh",
    "xz": b"\xfd7zXZ\0",
    "zstd": b"\x28\xb5\x2f\xfd",
}


def open_decompressed(stream: Any, *, limits: ArchiveLimits | None = None) -> io.BufferedReader:
    """Decompress a file such as ``labels.idx.gz`` as a stream; its first bytes tell how.

    ::

        with resources["raw/labels.idx.gz"] as resource, open_decompressed(resource) as labels:
            ...

    Concatenated streams are read as one, zero bytes after the end are padding. Checksums are verified before the last bytes
    are returned.

    Args:
        stream: any binary file-like object, rewound first if it can seek; it stays the caller's to close.
        limits: bounds on the output.

    Returns:
        A binary stream that reads forward only.

    Raises:
        ArchiveError: the stream is not compressed; when reading also: it is damaged, cut short, or followed by something else.
        ArchiveLimitError: when reading: the output exceeds ``limits``.
        MissingDependencyError: it is zstd, and zstandard is not installed.
    """
    limits, name = limits or ArchiveLimits(), name_of(stream)
    if can_seek(stream):
        stream.seek(0)
    stream, head = with_head(stream)
    compression = compression_of(head)
    if compression is None:
        raise ArchiveError(
            f"{name!r} is not compressed by gzip, bzip2, xz or zstd: it begins with {head[:6]!r}"
        )
    return stream_of(
        delay_last_chunk(decompress_chunks(stream, name, compression, limits, limits.max_bytes)),
        name,
    )


def compression_of(head: bytes) -> str | None:
    """The compression that a file beginning with ``head`` (6 bytes) has."""
    if len(head) >= 4 and 0x50 <= head[0] <= 0x5F and head[1:4] == b"\x2a\x4d\x18":
        return "zstd"  # a skippable frame
    return next((name for name, magic in _MAGICS.items() if head.startswith(magic)), None)


def decompress_chunks(
    stream: io.BufferedReader,
    name: str,
    compression: str,
    limits: ArchiveLimits,
    max_bytes: float = math.inf,
) -> Iterator[bytes]:
    """Decompress in chunks of bounded size; the ratio is checked, and the length against ``max_bytes``."""
    data, n_read, n_bytes = b"", 0, 0
    while True:
        decompressor = _MAKERS[compression]()
        while not decompressor.eof:
            if decompressor.needs_input and not data:
                data = stream.read(_INPUT_BYTES)
                n_read += len(data)
                if not data:
                    raise ArchiveError(
                        f"{name!r} is truncated: it ends after {n_read:,} bytes. Fetch it again."
                    )
            try:
                output = decompressor.decompress(data, CHUNK_BYTES)
            except MemoryError:
                raise
            except Exception as error:  # each library has its own
                why = f"is damaged before byte {n_read:,}, or needs more than {_MAX_WINDOW_BYTES >> 20} MiB of memory to unpack"
                raise ArchiveError(
                    f"{name!r} {why}: {error}. Fetch it again, or compress it with less memory."
                ) from error
            data, n_bytes = b"", n_bytes + len(output)
            limits.check_ratio(name, n_bytes, n_read)
            if n_bytes > max_bytes:
                limits.check_bytes(name, n_bytes)
            if output:
                yield output
        data = decompressor.unused_data
        if len(data) < 6:
            more = stream.read(_INPUT_BYTES)
            data, n_read = data + more, n_read + len(more)
        if compression_of(data) != compression:
            break
    while data:
        if data.strip(b"\0"):
            raise ArchiveError(
                f"{name!r} has other data behind its compressed data. Fetch it again, or cut that off."
            )
        data = stream.read(CHUNK_BYTES)


class _Inflater:
    """A decompressor of zlib, or of zstandard, which cannot bound its output, with the interface of bz2 and lzma."""

    eof, unused_data, needs_input = False, b"", True

    def __init__(self, library: Any, is_bounded: bool) -> None:
        self._library, self._is_bounded = library, is_bounded

    def decompress(self, data: bytes, max_length: int) -> bytes:
        if self._is_bounded:
            output = bytes(
                self._library.decompress(self._library.unconsumed_tail + data, max_length)
            )
            # A full output may leave more inside, even when all input is consumed.
            self.needs_input = len(output) < max_length
        else:
            output = bytes(self._library.decompress(data))
        self.eof, self.unused_data = self._library.eof, self._library.unused_data
        return output


def _zstd() -> _Inflater:
    try:
        import zstandard
    except ImportError as error:
        raise MissingDependencyError("reading zstd", "zstandard", "zstd") from error
    return _Inflater(
        zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES).decompressobj(), False
    )


_MAKERS: Final[dict[str, Callable[[], Any]]] = {
    "gzip": lambda: _Inflater(zlib.decompressobj(16 + zlib.MAX_WBITS), True),
    "bz2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MAX_WINDOW_BYTES),
    "zstd": _zstd,
}
