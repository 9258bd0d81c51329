"""Reads the files of archives one by one."""

from __future__ import annotations

import functools
import io
import posixpath
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from data_stack.io.archives import Archive, looks_like_tar, open_archive
from data_stack_croissant.decompression import decompress_if_needed

#: The first header of a tar archive.
_TAR_HEADER_BYTES: Final = 512


@dataclass(frozen=True, slots=True)
class Member:
    """A file of an archive.

    Attributes:
        name: name of the file in the archive.
        open: a function that returns the file as a binary stream. It may only be called before the
            next member is taken from the iterator.
    """

    name: str
    open: Callable[[], Any]


def iterate_members(path: str, stream: Any) -> Iterator[Member]:
    """Yield the files of an archive, sorted by name.

    A compressed file that is no archive, such as ``a.csv.gz``, is taken for an archive of one file,
    ``a.csv``.

    Args:
        path: path of the archive.
        stream: the archive, a binary stream that can seek.

    Raises:
        ArchiveError: the archive is damaged, or unpacks to names outside of it.
        ArchiveLimitError: the archive unpacks to too much.
    """
    decompressed = decompress_if_needed(stream)
    is_compressed = decompressed is not stream
    if not is_compressed:
        yield from _iterate_archive(stream)
        return
    # A compressed tar can only be read from its start for each file. So it is decompressed first.
    with tempfile.TemporaryFile() as unpacked:
        shutil.copyfileobj(decompressed, unpacked)
        unpacked.seek(0)
        is_tar = looks_like_tar(unpacked.read(_TAR_HEADER_BYTES))
        unpacked.seek(0)
        if is_tar:
            yield from _iterate_archive(unpacked)
        else:
            name, _ = posixpath.splitext(posixpath.basename(path))
            yield Member(name, functools.partial(return_stream, unpacked))


def return_stream(stream: Any) -> Any:
    """Return a stream that is open already, as the function of a :class:`Member`."""
    return stream


def _iterate_archive(stream: Any) -> Iterator[Member]:
    with open_archive(stream, strip_parents=True) as archive:
        for name in sorted(archive.names()):
            yield Member(name, functools.partial(_open_member, archive, name))


def _open_member(archive: Archive, name: str) -> io.BytesIO:
    """Return the content of a file of an archive, which is read whole."""
    return io.BytesIO(archive.read(name))
