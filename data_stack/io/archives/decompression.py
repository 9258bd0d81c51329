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
from data_stack.io.archives.chunks import held_back, stream_of
from data_stack.io.archives.cursor import CHUNK_BYTES, Cursor, can_seek, name_of
from data_stack.io.archives.limits import ArchiveLimits

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
    cursor = Cursor(stream.read, name)
    if compression is None:
        compression = compression_of(cursor.peek(6))
        if compression is None:
            raise ArchiveError(f"{name!r} is not compressed by gzip, bzip2, xz or zstd: it begins with {cursor.peek(6)!r}")
    elif compression not in COMPRESSIONS:
        raise ConfigError(f"compression is one of {', '.join(COMPRESSIONS)}, not {compression!r}")
    return stream_of(held_back(_limited(decompressed(cursor, compression, limits), name, limits)), name)


def compression_of(head: bytes) -> str | None:
    """The compression that a file beginning with ``head`` (6 bytes) has."""
    if _is_skippable(head[:4]):
        return "zstd"
    return next((name for name in COMPRESSIONS if head.startswith(_MAGICS[name])), None)


def decompressed(cursor: Cursor, compression: str, limits: ArchiveLimits) -> Iterator[bytes]:
    """The chunks that a compressed stream holds, each of bounded size; the ratio is checked, the length is not.

    ``compression`` is a name of COMPRESSIONS, or ``"deflate"`` for a single raw deflate stream, as in zip files.
    """
    start, n_bytes = cursor.position, 0
    chunks = _zstd_chunks(cursor, _zstd()) if compression == "zstd" else _chunks(cursor, compression)
    for chunk in chunks:
        n_bytes += len(chunk)
        limits.check_ratio(cursor.archive, n_bytes, cursor.position - start)
        if chunk:
            yield chunk


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


def _chunks(cursor: Cursor, compression: str) -> Iterator[bytes]:
    magic, more = _MAGICS[compression], True
    while more:
        decompressor = _MAKERS[compression]()
        data = b""
        while not decompressor.eof:
            if decompressor.needs_input and not (data := cursor.read(_INPUT_BYTES)):
                raise cursor.cut_short("the compressed data")
            try:
                output = decompressor.decompress(data, CHUNK_BYTES)
            except (zlib.error, lzma.LZMAError, OSError, ValueError, EOFError) as error:
                raise _damaged(cursor, error) from error
            data = b""
            yield output
        cursor.unread(len(decompressor.unused_data))
        more = bool(magic) and _has_more(cursor, magic)


def _has_more(cursor: Cursor, magic: bytes) -> bool:
    """Whether another stream follows the one that has ended; otherwise only zero bytes may follow."""
    if cursor.peek(len(magic)) == magic:
        return True
    while data := cursor.read(CHUNK_BYTES):
        if data.strip(b"\0"):
            raise ArchiveError(
                f"{cursor.archive!r} goes on after its compressed data with something else (up to byte {cursor.position:,}). "
                f"Fetch it again, or cut it off if that is right."
            )
    return False


def _damaged(cursor: Cursor, error: Exception) -> ArchiveError:
    if "memory" in str(error).lower():
        return ArchiveLimitError(
            f"{cursor.archive!r} needs more than {_MAX_WINDOW_BYTES >> 20} MiB of memory to unpack; compress it with less"
        )
    return ArchiveError(f"{cursor.archive!r} is damaged before byte {cursor.position:,}: {error}. Fetch it again.")


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


def _zstd_chunks(cursor: Cursor, library: tuple[Callable[[], Any], type[Exception]]) -> Iterator[bytes]:
    """Feed zstd block by block (RFC 8878, section 3.1), for its Python package bounds no output and takes a cut for an end.

    A block gives at most 128 KiB, whatever it was compressed to.
    """
    make, library_error = library
    while True:
        magic = cursor.read_exactly(4, "a zstd frame")
        if _is_skippable(magic):
            cursor.skip(int.from_bytes(cursor.read_exactly(4, "a zstd frame"), "little"), "a skippable zstd frame")
        else:
            if magic != _ZSTD_MAGIC:
                raise ArchiveError(f"{cursor.archive!r} holds no zstd frame where one should begin")
            frame = make()
            try:
                for piece in _zstd_pieces(cursor, magic):
                    if frame.eof:
                        raise ArchiveError(f"{cursor.archive!r} has a zstd frame that ends early")
                    yield frame.decompress(piece)
            except library_error as error:
                raise _damaged(cursor, error) from error
            if not frame.eof:
                raise ArchiveError(f"{cursor.archive!r} has a zstd frame that does not end where it should")
        if not _is_skippable(cursor.peek(4)) and not _has_more(cursor, _ZSTD_MAGIC):
            return


def _is_skippable(magic: bytes) -> bool:
    return len(magic) == 4 and 0x50 <= magic[0] <= 0x5F and magic[1:] == b"\x2a\x4d\x18"


def _zstd_pieces(cursor: Cursor, magic: bytes) -> Iterator[bytes]:
    """The header, the blocks and the checksum of a frame whose ``magic`` was read."""
    what = "a zstd frame"
    descriptor = cursor.read_exactly(1, what)
    content_flag, is_single, has_checksum = descriptor[0] >> 6, descriptor[0] >> 5 & 1, descriptor[0] >> 2 & 1
    n_header = (0 if is_single else 1) + (0, 1, 2, 4)[descriptor[0] & 3] + ((is_single, 2, 4, 8)[content_flag])
    yield magic + descriptor + (cursor.read_exactly(n_header, what) if n_header else b"")
    is_last = 0
    while not is_last:
        head = cursor.read_exactly(3, what)
        bits = int.from_bytes(head, "little")
        is_last, kind, size = bits & 1, bits >> 1 & 3, bits >> 3
        if kind == 3 or size > _ZSTD_MAX_BLOCK_BYTES:
            raise ArchiveError(f"{cursor.archive!r} is damaged before byte {cursor.position:,}: no such zstd block")
        n_stored = 1 if kind == 1 else size  # kind 1: one byte, repeated
        yield head + (cursor.read_exactly(n_stored, what) if n_stored else b"")
    if has_checksum:
        yield cursor.read_exactly(4, what)
