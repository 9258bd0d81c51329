"""Opens an archive of any kind."""

from __future__ import annotations

import functools
import io
import zipfile
from collections.abc import Callable
from typing import Any

from data_stack.exception import ArchiveError
from data_stack.io.archives.archive import Archive
from data_stack.io.archives.decompression import (
    compression_of,
    decompress_chunks,
)
from data_stack.io.archives.limits import ArchiveLimits
from data_stack.io.archives.streams import stream_of, window
from data_stack.io.archives.tar import TarArchive, looks_like_tar
from data_stack.io.archives.zip import ZipArchive
from data_stack.io.location import as_resource
from data_stack.io.parsing import name_of
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors.writer import can_seek


def open_archive(
    stream: Any, *, limits: ArchiveLimits | None = None, strip_parents: bool = False
) -> Archive:
    """Open a zip, a tar, or a tar compressed by gzip, bzip2, xz or zstd, detected by its first bytes.

    ::

        with resources["raw/images.zip"] as resource, open_archive(resource) as archive:
            archive.unpack(prepared, "images", members=lambda member: member.name.endswith(".png"))
            labels = archive.read("labels.csv")

    Args:
        stream: any seekable binary file-like object; it stays the caller's to close.
        limits: bounds on the unpacked size; default: ``ArchiveLimits()``.
        strip_parents: read the members of a zip whose names are absolute or climb out by their names without that, as zipfile
            and unzip unpack them, instead of refusing the archive.

    Raises:
        ArchiveError: it is damaged, not an archive, or not seekable.
        MissingDependencyError: it is compressed by zstd, and zstandard is not installed.
    """
    limits, name = limits or ArchiveLimits(), name_of(stream)
    if not can_seek(stream):
        raise ArchiveError(f"{name!r} is not seekable; store it first")
    file = as_resource(stream)
    head = file.read_at(0, 512)
    compression = compression_of(head)
    # Small blocks: headers are read, and the members between them passed over.
    begin: Callable[[], io.BufferedReader] = functools.partial(window, file, block_bytes=1 << 12)
    if compression is not None:
        begin = functools.partial(_decompress, file, name, compression, limits)
        head = begin().read(512)
    if looks_like_tar(head):
        return TarArchive(name, begin, file if compression is None else None, limits)
    if compression is not None:
        raise ArchiveError(
            f"{name!r} is compressed by {compression}, but holds no tar; open_decompressed() reads it"
        )
    if head.startswith(b"PK\3\4") or zipfile.is_zipfile(window(file)):
        return ZipArchive(name, file, limits, strip_parents)
    raise ArchiveError(
        f"{name!r} is neither a zip nor a tar: "
        + (f"it begins with {head[:8]!r}" if head else "it is empty")
    )


def _decompress(
    file: StreamedResource, name: str, compression: str, limits: ArchiveLimits
) -> io.BufferedReader:
    return stream_of(decompress_chunks(window(file), name, compression, limits), name)
