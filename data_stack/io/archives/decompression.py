"""Decompresses gzip, bzip2, xz and zstd as streams, within limits."""

from __future__ import annotations

import bz2
import io
import lzma
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
#: How much input is read at a time.
_INPUT_BYTES: Final = 1 << 16
#: How much of it is unpacked first. A hostile file may consist of many tiny streams, and after each
#: of them the unused input is copied. So a stream begins with little, and takes twice as much each
#: time.
_FIRST_PIECE_BYTES: Final = 1 << 10
#: The most that is unpacked at a time by zstandard, which does not bound its output: 8 bytes unpack
#: to at most 256 KiB, so this much unpacks to at most 32 MiB.
_ZSTD_PIECE_BYTES: Final = 1 << 10
#: Length of the longest magic number.
_MAGIC_BYTES: Final = 6
#: The first bytes of a file, by its compression.
_MAGICS: Final = {
    "gzip": b"\x1f\x8b",
    "bz2": b"BZh",
    "xz": b"\xfd7zXZ\0",
    "zstd": b"\x28\xb5\x2f\xfd",
}


def open_decompressed(stream: Any, *, limits: ArchiveLimits | None = None) -> io.BufferedReader:
    """Decompress a file such as ``labels.idx.gz`` as a stream.

    The first bytes of the file tell its compression.

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
    compressed, head = with_head(stream)
    compression = compression_of(head)
    if compression is None:
        raise ArchiveError(
            f"{name!r} is not compressed by gzip, bzip2, xz or zstd: "
            f"it begins with {head[:_MAGIC_BYTES]!r}"
        )
    chunks = decompress_chunks(compressed, name, compression, limits)
    return stream_of(delay_last_chunk(chunks), name)


def compression_of(head: bytes) -> str | None:
    """Return the compression of a file that begins with ``head`` (6 bytes); None if it has none."""
    # A file of zstd may begin with a frame of anything, which is skipped:
    # https://www.rfc-editor.org/rfc/rfc8878#section-3.1.2.
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
    *,
    is_archive: bool = False,
) -> Iterator[bytes]:
    """Yield the unpacked bytes in chunks of bounded size.

    Args:
        stream: the compressed bytes.
        name: the name of the file, for messages.
        compression: ``"gzip"``, ``"bz2"``, ``"xz"`` or ``"zstd"``.
        limits: bounds on the compression ratio and the size.
        is_archive: whether the bytes are an archive. The size of an archive is not checked here, as
            ``limits`` bound the size of its members.

    Raises:
        ArchiveError: the file is damaged, truncated, or followed by something else.
        ArchiveLimitError: it unpacks to too much.
        MissingDependencyError: it is zstd, and zstandard is not installed.
    """
    source = _Input(stream)
    max_piece_bytes = _ZSTD_PIECE_BYTES if compression == "zstd" else _INPUT_BYTES
    n_bytes = 0

    # A file may consist of several streams, one behind the other.
    while True:
        decompressor = _DECOMPRESSORS[compression]()
        piece_bytes = _FIRST_PIECE_BYTES
        while not decompressor.eof:
            piece = b""
            if decompressor.needs_input:
                piece = source.take(piece_bytes)
                piece_bytes = min(2 * piece_bytes, max_piece_bytes)
                if not piece:
                    raise ArchiveError(
                        f"{name!r} is truncated: it ends after {source.n_taken:,} bytes. "
                        "Fetch it again."
                    )
            try:
                output = decompressor.decompress(piece, CHUNK_BYTES)
            except MemoryError:
                raise
            except Exception as error:
                raise _damage_error(name, source.n_taken, error) from error
            n_bytes += len(output)
            limits.check_ratio(name, n_bytes, source.n_taken)
            if not is_archive:
                limits.check_bytes(name, n_bytes)
            if output:
                yield output

        # What follows the end of a stream tells whether another one begins.
        source.give_back(len(decompressor.unused_data))
        if compression_of(source.peek(_MAGIC_BYTES)) != compression:
            break

    if not ends_with_zeros(source.take(_INPUT_BYTES), partial(source.take, _INPUT_BYTES)):
        raise ArchiveError(
            f"{name!r} has other data behind its compressed data. Fetch it again, or cut that off."
        )


class _Input:
    """The compressed bytes of a file, taken in pieces whose ends can be given back.

    Args:
        stream: the compressed bytes.

    Attributes:
        n_taken: how many bytes were taken, without those that were given back.
    """

    n_taken: int
    _stream: io.BufferedReader
    #: The bytes that were read last.
    _data: bytes
    #: How many of them were taken.
    _position: int

    def __init__(self, stream: io.BufferedReader) -> None:
        self.n_taken = 0
        self._stream = stream
        self._data = b""
        self._position = 0

    def take(self, max_bytes: int) -> bytes:
        """Return the next bytes, at least one unless the file ends."""
        if self._position == len(self._data):
            self._data = self._stream.read(_INPUT_BYTES)
            self._position = 0
        piece = self._data[self._position : self._position + max_bytes]
        self._position += len(piece)
        self.n_taken += len(piece)
        return piece

    def give_back(self, n_bytes: int) -> None:
        """Take the last bytes of the last piece another time."""
        self._position -= n_bytes
        self.n_taken -= n_bytes

    def peek(self, n_bytes: int) -> bytes:
        """Return the next bytes without taking them; fewer if the file ends."""
        if len(self._data) - self._position < n_bytes:
            self._data = self._data[self._position :] + self._stream.read(_INPUT_BYTES)
            self._position = 0
        return self._data[self._position : self._position + n_bytes]


def _damage_error(name: str, n_read: int, error: Exception) -> ArchiveError:
    """Return the error to raise for that of a decompressor.

    Args:
        name: the name of the file.
        n_read: how many bytes were read.
        error: the error; each library has its own.
    """
    return ArchiveError(
        f"{name!r} is damaged before byte {n_read:,}, or needs more than "
        f"{_MAX_WINDOW_BYTES >> 20} MiB of memory to unpack: {error}. "
        "Fetch it again, or compress it with less memory."
    )


class _Decompressor(Protocol):
    """The interface of the decompressors of bz2 and lzma."""

    @property
    def eof(self) -> bool:
        """Whether the end of the stream was reached."""

    @property
    def needs_input(self) -> bool:
        """Whether the next output needs more input."""

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
        # zlib returns the input that it did not consume, instead of keeping it.
        compressed = self._library.unconsumed_tail + data
        output = self._library.decompress(compressed, max_length)
        # A full output may leave more inside, even when all input is consumed.
        self.needs_input = len(output) < max_length
        self.eof = self._library.eof
        self.unused_data = self._library.unused_data
        return output


class _ZstdDecompressor:
    """A decompressor of zstd.

    It returns all output of its input at once, whatever ``max_length`` says. Small inputs bound it.
    """

    eof: bool
    unused_data: bytes
    needs_input: bool

    def __init__(self) -> None:
        try:
            import zstandard
        except ImportError as error:
            raise MissingDependencyError("reading zstd", "zstandard", "zstd") from error
        decompressor = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES)
        self._library = decompressor.decompressobj()
        self.eof = False
        self.unused_data = b""
        self.needs_input = True

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
