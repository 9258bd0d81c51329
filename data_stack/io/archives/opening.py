"""Recognising what kind of archive a stream is."""

from __future__ import annotations

from typing import Any

from data_stack.exception import ArchiveError
from data_stack.io.archives.archive import Archive
from data_stack.io.archives.cursor import Cursor, LentFile, PositionalCursor, can_seek, name_of
from data_stack.io.archives.decompression import compression_of, decompressed
from data_stack.io.archives.limits import ArchiveLimits
from data_stack.io.archives.tar import TarArchive, looks_like_tar
from data_stack.io.archives.zip import ZipArchive, end_of_central_directory

_ZIP_BEGINNINGS = (b"PK\3\4", b"PK\5\6")


def open_archive(
    stream: Any, *, limits: ArchiveLimits | None = None, name_encoding: str | None = None, skip_special: bool = False
) -> Archive:
    """Open a zip, a tar, or a tar compressed by gzip, bzip2, xz or zstd; which one is seen from its bytes.

    ::

        with resources["raw/images.zip"] as resource, open_archive(resource) as archive:
            archive.unpack(prepared, "images", members=lambda member: member.name.endswith(".png"))
            labels = archive.read("labels.csv")

    Args:
        stream: any binary file-like object; read from its start if it can seek. It stays the caller's to close. One that
            cannot seek must be a tar, and is read once.
        limits: bounds on what comes out; ``ArchiveLimits()`` if not given.
        name_encoding: of names that are not marked as UTF-8; None for UTF-8 in a tar, CP437 in a zip.
        skip_special: leave links, devices and pipes out, instead of refusing an archive that has one.

    Raises:
        ArchiveError: it is neither, is damaged, or is a zip that cannot seek.
        MissingDependencyError: it is compressed by zstd, and zstandard is not installed.
    """
    limits, name = limits or ArchiveLimits(), name_of(stream)
    file = LentFile(stream) if can_seek(stream) else None
    cursor = Cursor(stream.read, name) if file is None else PositionalCursor(file, name)
    head = cursor.peek(512)
    compression = compression_of(head)
    if compression is not None:
        cursor = _unpacked(cursor, compression, limits)
        head = cursor.peek(512)
    if looks_like_tar(head):
        new_cursor = _Once(cursor) if file is None else _Each(file, name, compression, limits)
        return TarArchive(name, new_cursor, file if compression is None else None, limits, name_encoding or "utf-8", skip_special)
    if compression is not None:
        raise ArchiveError(f"{name!r} is compressed by {compression}, but holds no tar; open_decompressed() reads it")
    if head.startswith(_ZIP_BEGINNINGS) or (file is not None and _ends_as_zip(file)):
        if file is None:
            raise ArchiveError(f"{name!r} is a zip, whose directory is at its end, and its stream cannot seek; store it first")
        return ZipArchive(name, file, limits, name_encoding or "cp437", skip_special)
    raise ArchiveError(f"{name!r} is neither a zip nor a tar: " + (f"it begins with {head[:8]!r}" if head else "it is empty"))


class _Each:
    """Gives cursors at the start of a tar that can be read again, each with a position of its own."""

    def __init__(self, file: LentFile, name: str, compression: str | None, limits: ArchiveLimits) -> None:
        self._file, self._name, self._compression, self._limits = file, name, compression, limits

    def __call__(self) -> Cursor:
        if self._compression is None:
            # Small blocks: headers are read, and the members between them passed over.
            return PositionalCursor(self._file, self._name, block_bytes=1 << 12)
        return _unpacked(PositionalCursor(self._file, self._name), self._compression, self._limits)


class _Once:
    """Gives the one cursor of a stream that cannot be read again."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor: Cursor | None = cursor

    def __call__(self) -> Cursor:
        cursor, self._cursor = self._cursor, None
        if cursor is None:
            raise ArchiveError(
                "an archive in a stream that cannot seek is read once: iterate over it, and open each member as it comes"
            )
        return cursor


def _unpacked(cursor: Cursor, compression: str, limits: ArchiveLimits) -> Cursor:
    """A cursor over the content of a compressed stream."""
    chunks = decompressed(cursor, compression, limits)
    # Its cursor asks for at least CHUNK_BYTES, the most that a chunk has.
    return Cursor(lambda _: next(chunks, b""), cursor.archive)


def _ends_as_zip(file: LentFile) -> bool:
    """Whether a zip lies at the end, behind a program that unpacks it."""
    return end_of_central_directory(file.read_at(max(0, file.size - (1 << 16) - 21), file.size)) >= 0
