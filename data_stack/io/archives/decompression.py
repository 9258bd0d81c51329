"""Decompresses gzip, bzip2, xz and zstd as streams, within limits."""

from __future__ import annotations

import bz2
import io
import lzma
import math
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final

from data_stack.exception import (
    ArchiveError,
    MissingDependencyError,
)
from data_stack.io.archives.limits import ArchiveLimits
from data_stack.io.archives.streams import CHUNK_BYTES, delay_last_chunk, stream_of, with_head
from data_stack.io.parsing import name_of
from data_stack.io.storage_connectors.writer import can_seek

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
