"""Opens an archive of any kind."""

from __future__ import annotations

import functools
import io
import zipfile
from typing import Any, Final

from data_stack.exception import ArchiveError
from data_stack.io.archives.archive import Archive
from data_stack.io.archives.decompression import compression_of, decompress_chunks
from data_stack.io.archives.limits import ArchiveLimits
from data_stack.io.archives.streams import HEAD_BYTES, stream_of, window
from data_stack.io.archives.tar import TarArchive, looks_like_tar
from data_stack.io.archives.zip import ZipArchive
from data_stack.io.location import as_resource
from data_stack.io.parsing import name_of
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors.storable import can_seek

#: Small, as only the headers of a tar are read, and the members between them are passed over.
_HEADER_BLOCK_BYTES: Final = 1 << 12


def open_archive(
    stream: Any, *, limits: ArchiveLimits | None = None, strip_parents: bool = False
) -> Archive:
    """Open a zip, a tar, or a tar compressed by gzip, bzip2, xz or zstd.

    The first bytes tell which.

    ::

        with resources["raw/images.zip"] as resource, open_archive(resource) as archive:
            archive.unpack(prepared, "images", members=lambda member: member.name.endswith(".png"))
            labels = archive.read("labels.csv")

    Args:
        stream: any seekable binary file-like object. It is not closed.
        limits: bounds on the unpacked size; None for the default ones.
        strip_parents: read the members of a zip whose names are absolute or climb out by their
            names without that, as zipfile and unzip unpack them, instead of refusing the archive.

    Raises:
        ArchiveError: the stream is damaged, not an archive, or not seekable.
        MissingDependencyError: it is compressed by zstd, and zstandard is not installed.
    """
    if limits is None:
        limits = ArchiveLimits()
    name = name_of(stream)
    if not can_seek(stream):
        raise ArchiveError(f"{name!r} is not seekable; store it first")
    file = as_resource(stream)
    head = file.read_at(0, HEAD_BYTES)

    compression = compression_of(head)
    if compression is not None:
        begin = functools.partial(_decompress, file, name, compression, limits)
        if not looks_like_tar(begin().read(HEAD_BYTES)):
            raise ArchiveError(
                f"{name!r} is compressed by {compression}, but holds no tar; "
                "open_decompressed() reads it"
            )
        return TarArchive(name, begin, None, limits)

    if looks_like_tar(head):
        begin = functools.partial(window, file, block_bytes=_HEADER_BLOCK_BYTES)
        return TarArchive(name, begin, file, limits)
    if head.startswith(b"PK\3\4") or zipfile.is_zipfile(window(file)):
        return ZipArchive(name, file, limits, strip_parents)
    beginning = f"it begins with {head[:8]!r}" if head else "it is empty"
    raise ArchiveError(f"{name!r} is neither a zip nor a tar: {beginning}")


def _decompress(
    file: StreamedResource, name: str, compression: str, limits: ArchiveLimits
) -> io.BufferedReader:
    """Return a new stream over the unpacked bytes of a file."""
    return stream_of(decompress_chunks(window(file), name, compression, limits), name)
