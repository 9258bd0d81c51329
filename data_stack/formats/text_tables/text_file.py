"""Reads a text file as UTF-8, unpacked, in pieces of bounded size."""

from __future__ import annotations

import codecs
import hashlib
import io
from collections.abc import Iterator
from typing import Any, Final

from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.io.archives.decompression import compression_of, open_decompressed
from data_stack.io.positional import PositionalFile
from data_stack.io.stand_ins import HEAD_BYTES, check_no_stand_in

#: Enough that the cost of a piece does not count.
PIECE_BYTES: Final = 1 << 20
_UTF8_BOM: Final = b"\xef\xbb\xbf"


class TextFile:
    """A text file, plain or compressed by gzip, bzip2, xz or zstd, which may be read several times.

    Args:
        file: a path or URL, a resource, or an open binary file.
        encoding: encoding of the file.

    Attributes:
        name: its name for messages.
        encoding: as given.
        sha256: the digest of the file's bytes, hexadecimal, after it was read to its end; None before.

    Raises:
        ConfigError: Python has no such encoding.
    """

    def __init__(self, file: Any, encoding: str = "utf-8") -> None:
        self._file = PositionalFile(file)
        self.name = self._file.name
        self.encoding = encoding
        self.sha256: str | None = None
        try:
            self._is_utf8 = codecs.lookup(encoding).name in ("utf-8", "utf-8-sig")
        except LookupError as error:
            raise ConfigError(f"Python has no encoding {encoding!r:.60}") from error

    def pieces(self, n_bytes: int = PIECE_BYTES) -> Iterator[bytes]:
        """The text from its start in UTF-8, without a byte order mark, in pieces of about ``n_bytes``.

        Raises:
            DatasetFileCorruptError: it is not text in the encoding (text in UTF-8 is not checked here); or a pointer of Git LFS,
                or a page, instead of the data.
            ArchiveError: it is compressed, and damaged or larger than the limits.
        """
        pieces = self._unpacked(max(n_bytes, len(_UTF8_BOM)))
        if not self._is_utf8:
            pieces = self._decoded(pieces)
        is_first = True
        for piece in pieces:
            if is_first:
                piece = piece.removeprefix(_UTF8_BOM)
                size = len(piece) if len(piece) < n_bytes else -1
                check_no_stand_in(piece[:HEAD_BYTES], repr(self.name), size)
            yield piece
            is_first = False

    def _unpacked(self, n_bytes: int) -> Iterator[bytes]:
        digest = hashlib.sha256()
        stream = self._file.open_buffered()
        if compression_of(self._file.read_at(0, 6)) is None:
            while piece := stream.read(n_bytes):
                digest.update(piece)
                yield piece
        else:
            # the digest is that of the bytes that are unpacked, even if the file changes meanwhile
            unpacked = open_decompressed(_Digesting(stream, digest, self.name))
            while piece := unpacked.read(n_bytes):
                yield piece
        self.sha256 = digest.hexdigest()

    def _decoded(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        decoder = codecs.getincrementaldecoder(self.encoding)("strict")
        n_bytes = 0
        try:
            for piece in pieces:
                text = decoder.decode(piece)
                n_bytes += len(piece)
                if text:
                    yield text.encode()
            if text := decoder.decode(b"", final=True):
                yield text.encode()
        except UnicodeError as error:
            start = getattr(error, "start", 0)
            raise DatasetFileCorruptError(
                f"{self.name!r} is not text in {self.encoding}: about byte {n_bytes + start:,}: {error!s:.200}; "
                f"pass encoding="
            ) from error


class _Digesting(io.RawIOBase):
    """What a stream reads, added to a digest; it cannot seek."""

    def __init__(self, stream: Any, digest: Any, name: str) -> None:
        self._stream = stream
        self._digest = digest
        self.name = name

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        n_read = int(self._stream.readinto(buffer))
        self._digest.update(memoryview(buffer)[:n_read])
        return n_read
