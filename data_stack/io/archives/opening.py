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
from data_stack.io.archives.zip import MEMBER_SIGNATURE, ZipArchive
from data_stack.io.location import as_resource
from data_stack.io.parsing import name_of
from data_stack.io.resources import StreamedResource
from data_stack.io.storage_connectors.storable import can_seek

#: How much of a plain tar is read at a time. It is little, as an iteration reads the headers only,
#: and passes over the members between them.
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
        strip_parents: whether ``..`` and a leading ``/`` are removed from the names in a zip, as
            zipfile and unzip do, instead of refusing the archive.

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
        open_tar = functools.partial(_decompress, file, name, compression, limits)
        with open_tar() as tar:
            tar_head = tar.read(HEAD_BYTES)
        if not looks_like_tar(tar_head):
            raise ArchiveError(
                f"{name!r} is compressed by {compression}, but holds no tar; "
                "open_decompressed() reads it"
            )
        return TarArchive(name, open_tar, file=None, limits=limits)

    if looks_like_tar(head):
        open_tar = functools.partial(window, file, block_bytes=_HEADER_BLOCK_BYTES)
        return TarArchive(name, open_tar, file=file, limits=limits)
    # A zip may have a program in front of it, so is_zipfile() looks for its end.
    if head.startswith(MEMBER_SIGNATURE) or zipfile.is_zipfile(window(file)):
        return ZipArchive(name, file, limits, strip_parents)
    beginning = f"it begins with {head[:8]!r}" if head else "it is empty"
    raise ArchiveError(f"{name!r} is neither a zip nor a tar: {beginning}")


def _decompress(
    file: StreamedResource, name: str, compression: str, limits: ArchiveLimits
) -> io.BufferedReader:
    """Return a new stream over the tar in a compressed file."""
    chunks = decompress_chunks(window(file), name, compression, limits, is_archive=True)
    return stream_of(chunks, name)
