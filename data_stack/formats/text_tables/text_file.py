"""Reads a text file as UTF-8, decompressed, in pieces of bounded size."""

from __future__ import annotations

import codecs
import hashlib
import io
from collections.abc import Iterator
from typing import Any, Final

from data_stack.exception import ConfigError, DatasetFileCorruptError
from data_stack.io.archives.decompression import compression_of, open_decompressed
from data_stack.io.location import full_name_of
from data_stack.io.positional import PositionalFile
from data_stack.io.resources import StreamedResource
from data_stack.io.stand_ins import HEAD_BYTES, check_no_stand_in
from data_stack.io.wide_text import check_not_utf16

#: The usual size of a piece, so large that the cost of a piece does not count.
PIECE_BYTES: Final = 1 << 20

#: The first bytes of a file that tell how it is compressed.
_MAGIC_BYTES: Final = 6

#: The byte order mark, which some programs write before text in UTF-8.
UTF8_BOM: Final = b"\xef\xbb\xbf"

#: The size of a text whose end was not read yet, for :func:`check_no_stand_in`.
_UNKNOWN_SIZE: Final = -1


class TextFile:
    """A text file, plain or compressed by gzip, bzip2, xz or zstd, which may be read several times.

    Args:
        file: a path or URL, a resource, or an open binary file.
        encoding: the encoding of the file.

    Attributes:
        name: the name of the file and its store for messages.
        encoding: as given.
        sha256: the digest of the file's bytes, hexadecimal, after it was read to its end; None
            before.

    Raises:
        ConfigError: Python has no such encoding.
    """

    #: The file as it is stored.
    _file: PositionalFile

    #: Whether the text is UTF-8 already.
    _is_utf8: bool

    def __init__(self, file: Any, encoding: str = "utf-8") -> None:
        self._file = PositionalFile(file)
        self.name = full_name_of(self._file.resource)
        self.encoding = encoding
        self.sha256: str | None = None
        try:
            codec = codecs.lookup(encoding)
            "".encode(encoding)  # refuses a codec of something else, such as rot13
        except LookupError as error:
            raise ConfigError(f"Python has no encoding {encoding!r:.60} of text") from error
        self._is_utf8 = codec.name in ("utf-8", "utf-8-sig")

    @property
    def resource(self) -> StreamedResource:
        """The file as it is stored."""
        return self._file.resource

    @property
    def n_stored_bytes(self) -> int:
        """The size of the file as it is stored."""
        return self._file.size

    @property
    def is_plain(self) -> bool:
        """Whether the file is text in UTF-8, not compressed."""
        head = self._file.read_at(0, _MAGIC_BYTES)
        return self._is_utf8 and compression_of(head) is None

    def pieces(self, n_bytes: int = PIECE_BYTES) -> Iterator[bytes]:
        """Yield the text in UTF-8, without a byte order mark, in pieces of about ``n_bytes``.

        Raises:
            DatasetFileCorruptError: the file is not text in the encoding (text in UTF-8 is not
                checked here); or it is a pointer of Git LFS, or a page, instead of the data.
            ArchiveError: the file is compressed, and damaged or larger than the limits.
        """
        # The mark must lie within the first piece.
        pieces = self._decompress(max(n_bytes, len(UTF8_BOM)))
        if not self._is_utf8:
            pieces = self._decode(pieces)
        is_first = True
        for piece in pieces:
            if is_first:
                if self._is_utf8:
                    check_not_utf16(piece[:_MAGIC_BYTES], self.name)
                piece = piece.removeprefix(UTF8_BOM)
                # A short piece is the whole text. Otherwise the size of the text is not known yet.
                size = len(piece) if len(piece) < n_bytes else _UNKNOWN_SIZE
                check_no_stand_in(piece[:HEAD_BYTES], repr(self.name), size)
                is_first = False
            yield piece

    def check_unchanged(self, sha256: str | None) -> None:
        """Check that a file that was read twice had the same bytes.

        Args:
            sha256: the digest after the first time.

        Raises:
            DatasetFileCorruptError: the digest of the second time is another one.
        """
        if self.sha256 != sha256:
            raise DatasetFileCorruptError(
                f"{self.name!r} has changed while it was read; read it again"
            )

    def _decompress(self, n_bytes: int) -> Iterator[bytes]:
        """Yield the decompressed bytes, and set ``sha256`` at their end."""
        digest = hashlib.sha256()
        # The digest is that of the bytes that are decompressed, even if the file changes meanwhile.
        stream: Any = _DigestingStream(self._file.open_buffered(), digest, self.name)
        if compression_of(self._file.read_at(0, _MAGIC_BYTES)) is not None:
            stream = open_decompressed(stream)
        while piece := stream.read(n_bytes):
            yield piece
        self.sha256 = digest.hexdigest()

    def _decode(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Yield text in another encoding as UTF-8.

        Raises:
            DatasetFileCorruptError: it is not text in the encoding.
        """
        decoder = codecs.getincrementaldecoder(self.encoding)("strict")
        n_bytes = 0
        try:
            for piece in pieces:
                text = decoder.decode(piece)
                n_bytes += len(piece)
                if text:
                    yield text.encode()
            text = decoder.decode(b"", final=True)
            if text:
                yield text.encode()
        except UnicodeError as error:
            start = getattr(error, "start", 0)
            raise DatasetFileCorruptError(
                f"{self.name!r} is not text in {self.encoding}: about byte {n_bytes + start:,}: "
                f"{error!s:.200}; pass encoding="
            ) from error


class _DigestingStream(io.RawIOBase):
    """A stream that adds what is read of it to a digest; it cannot seek.

    Args:
        stream: the stream to read.
        digest: a digest of hashlib.
        name: the name of the stream for messages.
    """

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
