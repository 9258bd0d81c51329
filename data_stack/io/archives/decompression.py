"""Decompression of gzip, bzip2, xz and zstd as streams."""

from __future__ import annotations

import bz2
import io
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from data_stack.exception import ArchiveError, ArchiveLimitError, ConfigError, MissingDependencyError
from data_stack.io.archives.limits import ArchiveLimits
from data_stack.io.archives.streams import CHUNK_BYTES, held_back, stream_of, with_head
from data_stack.io.positional import name_of
from data_stack.io.storage_connectors.writer import can_seek

#: What a decompressor may allocate for itself. ``xz -9`` needs 65 MiB, ``zstd --long`` 128 MiB.
_MAX_WINDOW_BYTES: Final = 1 << 27
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_MAX_BLOCK_BYTES: Final = 1 << 17
#: Small, because what a stream leaves unused is copied, and a hostile file has one stream after the other.
_INPUT_BYTES: Final = 1 << 14

COMPRESSIONS: Final = ("gzip", "bz2", "xz", "zstd")


def open_decompressed(stream: Any, *, compression: str | None = None, limits: ArchiveLimits | None = None) -> io.BufferedReader:
    """Read a compressed file, such as ``labels.idx.gz``, as what it was before.

    ::

        with resources["raw/labels.idx.gz"] as resource, open_decompressed(resource) as labels:
            ...

    Concatenated streams are read as one, zero bytes after the end are padding. Checksums are verified before the last
    bytes are given out.

    Args:
        stream: any binary file-like object, rewound first if it can seek; it stays the caller's to close.
        compression: ``"gzip"``, ``"bz2"``, ``"xz"`` or ``"zstd"``; None to see it from the first bytes.
        limits: bounds on what comes out.

    Returns:
        A binary stream that reads forward only.

    Raises:
        ArchiveError: the stream is not compressed; when reading also: it is damaged, cut short, or followed by something else.
        ArchiveLimitError: when reading: more comes out than ``limits`` allow.
        MissingDependencyError: it is zstd, and zstandard is not installed.
    """
    limits, name = limits or ArchiveLimits(), name_of(stream)
    if can_seek(stream):
        stream.seek(0)
    stream, head = with_head(stream)
    if compression is None:
        compression = compression_of(head)
        if compression is None:
            raise ArchiveError(f"{name!r} is not compressed by gzip, bzip2, xz or zstd: it begins with {head[:6]!r}")
    elif compression not in COMPRESSIONS:
        raise ConfigError(f"compression is one of {', '.join(COMPRESSIONS)}, not {compression!r}")
    return stream_of(held_back(_limited(decompressed(stream, name, compression, limits), name, limits)), name)


def compression_of(head: bytes) -> str | None:
    """The compression that a file beginning with ``head`` (6 bytes) has."""
    if _is_skippable(head[:4]):
        return "zstd"
    return next((name for name in COMPRESSIONS if head.startswith(_MAGICS[name])), None)


def decompressed(stream: io.BufferedReader, name: str, compression: str, limits: ArchiveLimits) -> Iterator[bytes]:
    """The chunks that a compressed stream holds, each of bounded size; the ratio is checked, the length is not.

    ``compression`` is a name of COMPRESSIONS, or ``"deflate"`` for a single raw deflate stream, as in zip files.
    """
    source, n_bytes = _Input(stream, name), 0
    chunks = _zstd_chunks(source, _zstd()) if compression == "zstd" else _chunks(source, compression)
    for chunk in chunks:
        n_bytes += len(chunk)
        limits.check_ratio(name, n_bytes, source.n_read)
        if chunk:
            yield chunk


class _Input:
    """Compressed bytes, of which it knows how many were read."""

    def __init__(self, stream: io.BufferedReader, name: str) -> None:
        self._stream, self.name, self.n_read = stream, name, 0

    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        self.n_read += len(data)
        return data

    def read_exactly(self, size: int) -> bytes:
        data = self.read(size)
        if len(data) < size:
            raise self.cut_short()
        return data

    def cut_short(self) -> ArchiveError:
        return ArchiveError(f"{self.name!r} is cut short: it ends after {self.n_read:,} bytes. Fetch it again.")

    def check_padding(self, data: bytes) -> None:
        """Make sure that nothing but zeros follows, after ``data``."""
        while data:
            if data.strip(b"\0"):
                raise ArchiveError(
                    f"{self.name!r} goes on after its compressed data with something else (up to byte {self.n_read:,}). "
                    f"Fetch it again, or cut it off if that is right."
                )
            data = self.read(CHUNK_BYTES)


def _limited(chunks: Iterator[bytes], name: str, limits: ArchiveLimits) -> Iterator[bytes]:
    n_bytes = 0
    for chunk in chunks:
        n_bytes += len(chunk)
        limits.check_bytes(name, n_bytes)
        limits.check_member(name, n_bytes)
        yield chunk


class _Decompressor(Protocol):
    """What bz2 and lzma have in common."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


class _Inflater:
    """zlib in the manner of bz2 and lzma."""

    def __init__(self, window_bits: int) -> None:
        self._zlib = zlib.decompressobj(window_bits)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        output = self._zlib.decompress(self._zlib.unconsumed_tail + data, max_length)
        # Also when all input is taken, a full output may leave some more inside.
        self.needs_input = len(output) < max_length
        return output


_MAGICS: Final = {"gzip": b"\x1f\x8b", "bz2": b"BZh", "xz": b"\xfd7zXZ\0", "zstd": _ZSTD_MAGIC, "deflate": b""}
_MAKERS: Final[dict[str, Callable[[], _Decompressor]]] = {
    "gzip": lambda: _Inflater(16 + zlib.MAX_WBITS),
    "deflate": lambda: _Inflater(-zlib.MAX_WBITS),
    "bz2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MAX_WINDOW_BYTES),
}


def _chunks(source: _Input, compression: str) -> Iterator[bytes]:
    magic, data = _MAGICS[compression], b""
    while True:
        decompressor = _MAKERS[compression]()
        while not decompressor.eof:
            if decompressor.needs_input and not data and not (data := source.read(_INPUT_BYTES)):
                raise source.cut_short()
            try:
                output = decompressor.decompress(data, CHUNK_BYTES)
            except (zlib.error, lzma.LZMAError, OSError, ValueError, EOFError) as error:
                raise _damaged(source, error) from error
            data = b""
            yield output
        if not magic:
            return
        data = decompressor.unused_data
        if len(data) < len(magic):
            data += source.read(_INPUT_BYTES)
        if not data.startswith(magic):
            source.check_padding(data)
            return


def _damaged(source: _Input, error: Exception) -> ArchiveError:
    if "memory" in str(error).lower():
        return ArchiveLimitError(
            f"{source.name!r} needs more than {_MAX_WINDOW_BYTES >> 20} MiB of memory to unpack; compress it with less"
        )
    return ArchiveError(f"{source.name!r} is damaged before byte {source.n_read:,}: {error}. Fetch it again.")


# ---------------------------------------------------------------------- zstd


def _zstd() -> tuple[Callable[[], Any], type[Exception]]:
    """What makes a decompressor of one zstd frame (``decompress(data)``, ``eof``), and the error that it raises."""
    if sys.version_info >= (3, 14):
        from compression import zstd

        options = {zstd.DecompressionParameter.window_log_max: _MAX_WINDOW_BYTES.bit_length() - 1}
        return lambda: zstd.ZstdDecompressor(options=options), zstd.ZstdError
    try:
        import zstandard
    except ImportError as error:
        raise MissingDependencyError("reading zstd", "zstandard", "zstd") from error
    return zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES).decompressobj, zstandard.ZstdError


def _zstd_chunks(source: _Input, library: tuple[Callable[[], Any], type[Exception]]) -> Iterator[bytes]:
    """Feed zstd block by block (RFC 8878, section 3.1), for its Python package bounds no output and takes a cut for an end.

    A block gives at most 128 KiB, whatever it was compressed to.
    """
    make, library_error = library
    magic = source.read_exactly(4)
    while True:
        if _is_skippable(magic):
            left = int.from_bytes(source.read_exactly(4), "little")
            while left:
                left -= len(source.read_exactly(min(left, CHUNK_BYTES)))
        elif magic == _ZSTD_MAGIC:
            frame = make()
            try:
                for piece in _zstd_pieces(source):
                    if frame.eof:
                        raise ArchiveError(f"{source.name!r} has a zstd frame that ends early")
                    yield frame.decompress(piece)
            except library_error as error:
                raise _damaged(source, error) from error
            if not frame.eof:
                raise ArchiveError(f"{source.name!r} has a zstd frame that does not end where it should")
        else:
            source.check_padding(magic)
            return
        magic = source.read(4)


def _is_skippable(magic: bytes) -> bool:
    return len(magic) == 4 and 0x50 <= magic[0] <= 0x5F and magic[1:] == b"\x2a\x4d\x18"


def _zstd_pieces(source: _Input) -> Iterator[bytes]:
    """The header, the blocks and the checksum of a frame whose magic number was read."""
    descriptor = source.read_exactly(1)
    content_flag, is_single, has_checksum = descriptor[0] >> 6, descriptor[0] >> 5 & 1, descriptor[0] >> 2 & 1
    n_header = (0 if is_single else 1) + (0, 1, 2, 4)[descriptor[0] & 3] + ((is_single, 2, 4, 8)[content_flag])
    yield _ZSTD_MAGIC + descriptor + source.read_exactly(n_header)
    is_last = 0
    while not is_last:
        head = source.read_exactly(3)
        bits = int.from_bytes(head, "little")
        is_last, kind, size = bits & 1, bits >> 1 & 3, bits >> 3
        if kind == 3 or size > _ZSTD_MAX_BLOCK_BYTES:
            raise ArchiveError(f"{source.name!r} is damaged before byte {source.n_read:,}: no such zstd block")
        yield head + source.read_exactly(1 if kind == 1 else size)  # kind 1: one byte, repeated
    if has_checksum:
        yield source.read_exactly(4)
