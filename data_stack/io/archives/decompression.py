"""Decompresses gzip, bzip2, xz and zstd as streams, within limits."""

from __future__ import annotations

import bz2
import io
import lzma
import math
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, Protocol

from data_stack.exception import ArchiveError, MissingDependencyError
from data_stack.io.archives.limits import ArchiveLimits
from data_stack.io.archives.streams import (
    CHUNK_BYTES,
    delay_last_chunk,
    ends_with_zeros,
    stream_of,
    with_head,
)
from data_stack.io.parsing import name_of
from data_stack.io.storage_connectors.storable import can_seek

#: What a decompressor may allocate for itself. ``xz -9`` needs 65 MiB, ``zstd --long`` 128 MiB.
_MAX_WINDOW_BYTES: Final = 1 << 27
#: How much input is unpacked at a time. It is small, because unused input is copied after each of
#: the many streams that a hostile file may have, and because zstandard does not bound its output: 8
#: bytes become at most 256 KiB, this much 32 MiB.
_INPUT_BYTES: Final = 1 << 10
#: How many bytes tell the compression of a file.
_MAGIC_BYTES: Final = 6
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

    Concatenated streams are read as one, zero bytes after the end are padding. Checksums are
    verified before the last bytes are returned.

    Args:
        stream: any binary file-like object, rewound first if it can seek. It is not closed.
        limits: bounds on the output; None for the default ones.

    Returns:
        A binary stream that reads forward only.

    Raises:
        ArchiveError: the stream is not compressed. When reading: it is damaged, cut short, or
            followed by something else.
        ArchiveLimitError: when reading: the output exceeds ``limits``.
        MissingDependencyError: the stream is zstd, and zstandard is not installed.
    """
    if limits is None:
        limits = ArchiveLimits()
    name = name_of(stream)
    if can_seek(stream):
        stream.seek(0)
    stream, head = with_head(stream)
    compression = compression_of(head)
    if compression is None:
        raise ArchiveError(
            f"{name!r} is not compressed by gzip, bzip2, xz or zstd: it begins with {head[:6]!r}"
        )
    chunks = decompress_chunks(stream, name, compression, limits, limits.max_bytes)
    return stream_of(delay_last_chunk(chunks), name)


def compression_of(head: bytes) -> str | None:
    """Return the compression of a file that begins with ``head`` (6 bytes); None if it has none."""
    is_skippable_frame = len(head) >= 4 and 0x50 <= head[0] <= 0x5F and head[1:4] == b"\x2a\x4d\x18"
    if is_skippable_frame:
        return "zstd"
    for compression, magic in _MAGICS.items():
        if head.startswith(magic):
            return compression
    return None


def decompress_chunks(
    stream: io.BufferedReader,
    name: str,
    compression: str,
    limits: ArchiveLimits,
    max_bytes: float = math.inf,
) -> Iterator[bytes]:
    """Yield the unpacked bytes in chunks of bounded size.

    Args:
        stream: the compressed bytes.
        name: of the file, for messages.
        compression: ``"gzip"``, ``"bz2"``, ``"xz"`` or ``"zstd"``.
        limits: the compression ratio is checked by them.
        max_bytes: limit of the unpacked bytes.

    Raises:
        ArchiveError: the file is damaged, truncated, or followed by something else.
        ArchiveLimitError: it unpacks to too much.
        MissingDependencyError: it is zstd, and zstandard is not installed.
    """
    data = b""
    n_read = 0
    n_bytes = 0

    # A file may consist of several streams, one behind the other.
    while True:
        decompressor = _new_decompressor(compression)
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
                raise ArchiveError(
                    f"{name!r} is damaged before byte {n_read:,}, or needs more than "
                    f"{_MAX_WINDOW_BYTES >> 20} MiB of memory to unpack: {error}. "
                    "Fetch it again, or compress it with less memory."
                ) from error
            data = b""
            n_bytes += len(output)
            limits.check_ratio(name, n_bytes, n_read)
            if n_bytes > max_bytes:
                limits.check_bytes(name, n_bytes)
            if output:
                yield output

        # What follows the end of a stream tells whether another one begins.
        data = decompressor.unused_data
        if len(data) < _MAGIC_BYTES:
            more = stream.read(_INPUT_BYTES)
            data += more
            n_read += len(more)
        if compression_of(data) != compression:
            break

    if not ends_with_zeros(data, partial(stream.read, CHUNK_BYTES)):
        raise ArchiveError(
            f"{name!r} has other data behind its compressed data. Fetch it again, or cut that off."
        )


class _Decompressor(Protocol):
    """The interface of the decompressors of bz2 and lzma."""

    @property
    def eof(self) -> bool:
        """Whether the end of the stream was reached."""

    @property
    def needs_input(self) -> bool:
        """Whether no more output is to be had without input."""

    @property
    def unused_data(self) -> bytes:
        """The input behind the end of the stream."""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Return at most ``max_length`` unpacked bytes."""


class _ZlibDecompressor:
    """A decompressor of gzip."""

    eof: bool
    unused_data: bytes
    needs_input: bool

    def __init__(self) -> None:
        self._library = zlib.decompressobj(16 + zlib.MAX_WBITS)
        self.eof = False
        self.unused_data = b""
        self.needs_input = True

    def decompress(self, data: bytes, max_length: int) -> bytes:
        output = self._library.decompress(self._library.unconsumed_tail + data, max_length)
        # A full output may leave more inside, even when all input is consumed.
        self.needs_input = len(output) < max_length
        self.eof = self._library.eof
        self.unused_data = self._library.unused_data
        return output


class _ZstdDecompressor:
    """A decompressor of zstd, which cannot bound its output: small input does."""

    eof: bool
    unused_data: bytes
    needs_input = True

    def __init__(self) -> None:
        try:
            import zstandard
        except ImportError as error:
            raise MissingDependencyError("reading zstd", "zstandard", "zstd") from error
        decompressor = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES)
        self._library = decompressor.decompressobj()
        self.eof = False
        self.unused_data = b""

    def decompress(self, data: bytes, max_length: int) -> bytes:
        output = self._library.decompress(data)
        self.eof = self._library.eof
        self.unused_data = self._library.unused_data
        return output


def _new_xz_decompressor() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MAX_WINDOW_BYTES)


_DECOMPRESSORS: Final[dict[str, Callable[[], _Decompressor]]] = {
    "gzip": _ZlibDecompressor,
    "bz2": bz2.BZ2Decompressor,
    "xz": _new_xz_decompressor,
    "zstd": _ZstdDecompressor,
}


def _new_decompressor(compression: str) -> _Decompressor:
    return _DECOMPRESSORS[compression]()
