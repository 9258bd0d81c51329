"""Reading of tar archives, plain or compressed, in the formats POSIX (pax), GNU tar and V7.

:mod:`tarfile` parses the headers. This module adds the checks that it lacks: it believes a header of any size, takes a damaged
block for the end, and ignores everything behind that.
"""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Callable, Iterator
from typing import Any, Final

from data_stack.exception import ArchiveError, UnsafeArchiveError
from data_stack.io.archives.archive import Archive, ArchiveMember, add_name, check_name
from data_stack.io.archives.limits import ArchiveLimits
from data_stack.io.archives.streams import CHUNK_BYTES, stream_of
from data_stack.io.resources import StreamedResource

_BLOCK_BYTES: Final = 512
_ZEROS: Final = bytes(_BLOCK_BYTES)


class TarArchive(Archive):
    """A tar archive.

    A plain one has random access. A compressed one is read from its start for each member that is opened by name, so iterate,
    and open each member as it comes.

    Args:
        begin: opens a new stream of the unpacked tar.
        file: the tar itself, if it is not compressed.
    """

    def __init__(
        self,
        name: str,
        begin: Callable[[], Any],
        file: StreamedResource | None,
        limits: ArchiveLimits,
    ) -> None:
        super().__init__(name, limits)
        self._begin, self._file = begin, file
        self._index: dict[str, ArchiveMember] | None = None

    def __iter__(self) -> Iterator[ArchiveMember]:
        self._check_open()
        return self._read_members(_Headers(self._begin(), self))

    def open(self, member: ArchiveMember | str) -> io.BufferedReader:
        self._check_open()
        name = member if isinstance(member, str) else member.name
        found = (
            member
            if isinstance(member, ArchiveMember)
            and getattr(member._headers, "archive", None) is self
            else None
        )
        if self._file is not None:
            if found is None:
                self._index = self._index or {each.name: each for each in self}
                found = self._index.get(name)
            if found is None or found.is_folder:
                raise self._no_member(name, self._index or ())
            return stream_of(self._content(self._file.read_at, found), name)
        # The content of the member that was yielded last comes next, unless it was opened before.
        if (
            found is None
            or found.is_folder
            or not found._headers.tell() == found.offset != found._headers.opened
        ):
            found = next((each for each in self if each.name == name and not each.is_folder), None)
        if found is None:
            raise self._no_member(name)
        found._headers.opened = found.offset
        return stream_of(self._content(found._headers.read_at, found), name)

    def _content(
        self, read_at: Callable[[int, int], bytes], member: ArchiveMember
    ) -> Iterator[bytes]:
        offset, end = member.offset, member.offset + member.size
        while offset < end:
            chunk = read_at(offset, min(CHUNK_BYTES, end - offset))
            if not chunk:
                raise ArchiveError(
                    f"{self.name!r} is truncated: it ends inside of {member.name!r}. Fetch it again."
                )
            offset += len(chunk)
            yield chunk

    def _read_members(self, headers: _Headers) -> Iterator[ArchiveMember]:
        names, n_bytes = dict[str, bool](), 0
        for n_members, header in enumerate(self._parse(headers), 1):
            self._limits.check_count(self.name, n_members)
            member = self._member(header, headers)
            n_bytes += member.size
            self._limits.check_bytes(self.name, n_bytes)
            if member.name:
                add_name(names, member.name, self.name, member.is_folder)
                yield member
                self._check_open()
        if headers.last != _ZEROS:
            raise ArchiveError(
                f"{self.name!r} is damaged or truncated: its end mark is missing. Fetch it again."
            )
        end = headers.read_content(_BLOCK_BYTES)
        if len(end) < _BLOCK_BYTES:
            raise ArchiveError(
                f"{self.name!r} is truncated: it ends inside of its end mark. Fetch it again."
            )
        # Read on: a checksum may follow, and another tar behind the end must not be ignored silently.
        while end:
            if end.strip(b"\0"):
                raise ArchiveError(
                    f"{self.name!r} has other data behind the end of its tar; split concatenated archives"
                )
            end = headers.read_content(CHUNK_BYTES)

    def _parse(self, headers: _Headers) -> Iterator[tarfile.TarInfo]:
        name = self.name
        try:
            tar = tarfile.TarFile(fileobj=headers, encoding="utf-8", errors="surrogateescape")  # type: ignore[arg-type]
            while (header := tar.next()) is not None:
                tar.members.clear()  # type: ignore[attr-defined]  # else it keeps them all; typeshed lacks it
                if {"path", "size"} & tar.pax_headers.keys():
                    raise ArchiveError(
                        f"{name!r} has a pax header with one name or size for all members"
                    )
                yield header
        except (tarfile.TarError, ValueError, OverflowError, RecursionError) as error:
            raise ArchiveError(
                f"{name!r} is damaged before byte {headers.tell():,}: {error}. Fetch it again."
            ) from error

    def _member(self, header: tarfile.TarInfo, headers: _Headers) -> ArchiveMember:
        """The member of a header."""
        name, size = self.name, header.size
        if not 0 <= size < 1 << 63:
            raise ArchiveError(f"{name!r} is damaged: {header.name!r} has no valid size")
        is_special = header.issparse() or not (header.isreg() or header.isdir())
        # Implementations disagree on whether these have content; without content, all see the same members.
        if size and (is_special or header.isdir()):
            raise UnsafeArchiveError(
                f"{name!r}: {header.name!r} is sparse or not a regular file, but has {size:,} bytes"
            )
        if is_special:
            kind = f"a link, a device, sparse or of another kind ({header.type!r})"
            raise UnsafeArchiveError(
                f"{name!r}: {header.name!r} is {kind}; only files and folders are read. Use another tool."
            )
        checked = check_name(header.name, name)
        if header.isreg() and (not checked or header.name.endswith("/")):
            raise UnsafeArchiveError(f"{name!r} has a file without a name ({header.name!r})")
        return ArchiveMember(checked, size, header.isdir(), header.offset_data, headers)


class _Headers:
    """The file that tarfile reads headers from: forward only, in reads of bounded size."""

    def __init__(self, stream: io.BufferedReader, archive: TarArchive) -> None:
        self.archive, self._archive = archive, archive.name
        self._stream, self._position, self.opened = stream, 0, -1
        self.last = b""

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int) -> None:
        if offset < self._position:
            raise ArchiveError(
                f"{self._archive!r} is damaged: a header leads back to byte {offset:,}"
            )
        if self._stream.seekable():
            self._stream.seek(offset)
            self._position = offset
        while self._position < offset and self.read_content(
            min(CHUNK_BYTES, offset - self._position)
        ):
            pass

    def read(self, size: int) -> bytes:
        """Read a header, or the content of an extension header."""
        # A long name or the attributes of a member; 64 KiB of extended attributes are the most that Linux keeps.
        if not 0 <= size <= 1 << 17:
            raise ArchiveError(
                f"{self._archive!r} claims {size:,} bytes of attributes for one member"
            )
        self.last = self.read_content(size)
        if size > _BLOCK_BYTES and len(self.last) < size:
            raise ArchiveError(
                f"{self._archive!r} is truncated: it ends inside of a header. Fetch it again."
            )
        # Regular expressions of tarfile take quadratic time for these, in Python before 3.11.10.
        if re.search(rb"[0-9]{512}", self.last):
            raise ArchiveError(
                f"{self._archive!r} is damaged: a header has numbers of hundreds of digits"
            )
        return self.last

    def read_content(self, size: int) -> bytes:
        """Read a part of a member."""
        data = self._stream.read(size)
        self._position += len(data)
        return data

    def read_at(self, offset: int, size: int) -> bytes:
        """Read a part of a member, which must come next."""
        if self._position != offset:
            raise ValueError(
                f"a member of {self._archive!r} can no longer be read: the iteration is past it"
            )
        return self.read_content(size)


def looks_like_tar(block: bytes) -> bool:
    """Whether a file that begins with ``block`` (512 bytes) is a tar, by the checksum of its header."""
    if block == _ZEROS:
        return True
    try:
        tarfile.TarInfo.frombuf(block, "latin-1", "strict")
    except tarfile.HeaderError:
        return False
    return True
