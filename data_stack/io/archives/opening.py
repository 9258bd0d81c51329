"""Recognising what kind of archive a stream is."""

from __future__ import annotations

import io
import zipfile
from typing import Any

from data_stack.exception import ArchiveError
from data_stack.io.archives.archive import Archive
from data_stack.io.archives.decompression import compression_of, decompress_chunks
from data_stack.io.archives.limits import ArchiveLimits
from data_stack.io.archives.streams import LentFile, stream_of, with_head
from data_stack.io.archives.tar import TarArchive, looks_like_tar
from data_stack.io.archives.zip import ZipArchive
from data_stack.io.positional import name_of
from data_stack.io.storage_connectors.writer import can_seek


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
        name_encoding: of names that are not marked as UTF-8; None for UTF-8 in a tar, CP437 in a zip (others need
            Python 3.11 there).
        skip_special: leave links, devices and pipes out, instead of refusing an archive that has one.

    Raises:
        ArchiveError: it is neither, is damaged, or is a zip that cannot seek.
        MissingDependencyError: it is compressed by zstd, and zstandard is not installed.
    """
    limits, name = limits or ArchiveLimits(), name_of(stream)
    file = LentFile(stream) if can_seek(stream) else None
    start, head = with_head(stream if file is None else file.stream())
    compression = compression_of(head)
    if compression is not None:
        start, head = with_head(stream_of(decompress_chunks(start, name, compression, limits), name))
    if looks_like_tar(head):
        unread = [start]

        def begin() -> io.BufferedReader:
            """The unpacked tar from its start: what was looked at, for a stream that is read once, or else a new one."""
            if file is None:
                if not unread:
                    raise ArchiveError(
                        "an archive in a stream that cannot seek is read once: iterate over it, and open each member as it comes"
                    )
                return unread.pop()
            # Small blocks: headers are read, and the members between them passed over.
            if compression is None:
                return file.stream(block_bytes=1 << 12)
            return stream_of(decompress_chunks(file.stream(), name, compression, limits), name)

        plain = file if compression is None else None
        return TarArchive(name, begin, plain, limits, name_encoding or "utf-8", skip_special)
    if compression is not None:
        raise ArchiveError(f"{name!r} is compressed by {compression}, but holds no tar; open_decompressed() reads it")
    if file is None and head.startswith(b"PK\3\4"):
        raise ArchiveError(f"{name!r} is a zip, whose directory is at its end, and its stream cannot seek; store it first")
    if file is not None and (head.startswith(b"PK\3\4") or zipfile.is_zipfile(file.stream())):
        return ZipArchive(name, file, limits, name_encoding, skip_special)
    raise ArchiveError(f"{name!r} is neither a zip nor a tar: " + (f"it begins with {head[:8]!r}" if head else "it is empty"))
