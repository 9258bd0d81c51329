"""Reads tar archives, plain or compressed, in the formats POSIX (pax), GNU tar and V7.

:mod:`tarfile` parses the headers. This module adds the checks that it lacks: it believes a header
of any size, takes a damaged block for the end, and ignores everything behind that.
"""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from data_stack.exception import ArchiveError, UnsafeArchiveError
from data_stack.io.archives.archive import Archive, ArchiveMember, add_name, check_name
from data_stack.io.archives.limits import ArchiveLimits
from data_stack.io.archives.streams import CHUNK_BYTES, ends_with_zeros, stream_of
from data_stack.io.resources import StreamedResource

_BLOCK_BYTES: Final = 512
_ZEROS: Final = bytes(_BLOCK_BYTES)
#: The longest extension header of a member: a long name, or its attributes. Linux keeps at most 64
#: KiB of extended attributes.
_MAX_HEADER_BYTES: Final = 1 << 17
_MAX_MEMBER_BYTES: Final = 1 << 63
#: For these, regular expressions of tarfile take quadratic time, in Python before 3.11.10.
_MANY_DIGITS: Final = re.compile(rb"[0-9]{512}")


class TarArchive(Archive):
    """A tar archive.

    A plain one has random access. A compressed one is read from its start for each member that is
    opened by name, so iterate, and open each member as it comes.

    Args:
        name: the name of the archive in messages.
        begin: opens a new stream of the unpacked tar.
        file: the tar itself, if it is not compressed; else None.
        limits: bounds on the unpacked size.
    """

    _begin: Callable[[], Any]
    _file: StreamedResource | None
    #: The members of a plain tar by name; None before one is opened by name.
    _index: dict[str, ArchiveMember] | None

    def __init__(
        self,
        name: str,
        begin: Callable[[], Any],
        file: StreamedResource | None,
        limits: ArchiveLimits,
    ) -> None:
        super().__init__(name, limits)
        self._begin = begin
        self._file = file
        self._index = None

    def __iter__(self) -> Iterator[ArchiveMember]:
        self._check_open()
        return self._read_members(_ForwardFile(self._begin(), self))

    def open(self, member: ArchiveMember | str) -> io.BufferedReader:
        self._check_open()
        if self._file is not None:
            return self._open_in_plain(self._file, member)
        return self._open_in_compressed(member)

    # ------------------------------------------------------------------ opening a member

    def _open_in_plain(
        self, file: StreamedResource, member: ArchiveMember | str
    ) -> io.BufferedReader:
        """Open a member of a plain tar by its position."""
        if isinstance(member, ArchiveMember) and self._is_own(member):
            if member.is_folder:
                raise self._no_member_error(member.name)
            return stream_of(self._content(file.read_at, member), member.name)

        name = member if isinstance(member, str) else member.name
        if self._index is None:
            self._index = {own_member.name: own_member for own_member in self}
        own_member = self._index.get(name)
        if own_member is None or own_member.is_folder:
            raise self._no_member_error(name, self._index)
        return stream_of(self._content(file.read_at, own_member), name)

    def _open_in_compressed(self, member: ArchiveMember | str) -> io.BufferedReader:
        """Open a member of a compressed tar, which is read forward only."""
        # The content of the member that an iteration yielded last comes next in its stream.
        if isinstance(member, ArchiveMember) and self._is_own(member) and not member.is_folder:
            headers: _ForwardFile = member._headers
            is_next = headers.tell() == member.offset
            if is_next and headers.opened_offset != member.offset:
                return self._open_next(member)

        # All others are looked for from the start.
        name = member if isinstance(member, str) else member.name
        for own_member in self:
            if own_member.name == name and not own_member.is_folder:
                return self._open_next(own_member)
        raise self._no_member_error(name)

    def _open_next(self, member: ArchiveMember) -> io.BufferedReader:
        """Open the member whose content comes next in the stream of its headers."""
        headers: _ForwardFile = member._headers
        headers.opened_offset = member.offset
        return stream_of(self._content(headers.read_at, member), member.name)

    def _is_own(self, member: ArchiveMember) -> bool:
        """Return whether an iteration over this archive yielded a member."""
        headers = member._headers
        return isinstance(headers, _ForwardFile) and headers.archive is self

    def _content(
        self, read_at: Callable[[int, int], bytes], member: ArchiveMember
    ) -> Iterator[bytes]:
        """Yield the content of a member."""
        offset = member.offset
        end = member.offset + member.size
        while offset < end:
            chunk = read_at(offset, min(CHUNK_BYTES, end - offset))
            if not chunk:
                raise ArchiveError(
                    f"{self.name!r} is truncated: it ends inside of {member.name!r}. "
                    "Fetch it again."
                )
            offset += len(chunk)
            yield chunk

    # ------------------------------------------------------------------ reading headers

    def _read_members(self, headers: _ForwardFile) -> Iterator[ArchiveMember]:
        """Yield the members, and check the end of the archive."""
        is_folder_by_name = dict[str, bool]()
        n_members = 0
        n_bytes = 0
        for header in self._parse_headers(headers):
            n_members += 1
            self._limits.check_count(self.name, n_members)
            member = self._member_of(header, headers)
            n_bytes += member.size
            self._limits.check_bytes(self.name, n_bytes)
            is_top_folder = not member.name
            if is_top_folder:
                continue
            add_name(is_folder_by_name, member.name, self.name, member.is_folder)
            yield member
            self._check_open()
        self._check_end(headers)

    def _parse_headers(self, headers: _ForwardFile) -> Iterator[tarfile.TarInfo]:
        """Yield the headers as tarfile understands them."""
        name = self.name
        try:
            tar = tarfile.TarFile(
                fileobj=headers,  # type: ignore[arg-type]  # it has what tarfile calls
                encoding="utf-8",
                errors="surrogateescape",
            )
            while True:
                header = tar.next()
                if header is None:
                    return
                # tarfile would keep all headers in memory.
                tar.members.clear()  # type: ignore[attr-defined]  # typeshed lacks it
                if "path" in tar.pax_headers or "size" in tar.pax_headers:
                    raise ArchiveError(
                        f"{name!r} has a pax header with one name or size for all members"
                    )
                yield header
        except (tarfile.TarError, ValueError, OverflowError, RecursionError) as error:
            raise ArchiveError(
                f"{name!r} is damaged before byte {headers.tell():,}: {error}. Fetch it again."
            ) from error

    def _member_of(self, header: tarfile.TarInfo, headers: _ForwardFile) -> ArchiveMember:
        """Return the member of a header.

        Raises:
            ArchiveError: the header is damaged.
            UnsafeArchiveError: the member is no regular file or folder inside of the archive.
        """
        name = self.name
        size = header.size
        if not 0 <= size < _MAX_MEMBER_BYTES:
            raise ArchiveError(f"{name!r} is damaged: {header.name!r} has no valid size")

        # Implementations disagree on whether these have content; without content, all see the same
        # members.
        is_special = header.issparse() or not (header.isreg() or header.isdir())
        if size and (is_special or header.isdir()):
            raise UnsafeArchiveError(
                f"{name!r}: {header.name!r} is sparse or not a regular file, but has {size:,} bytes"
            )
        if is_special:
            raise UnsafeArchiveError(
                f"{name!r}: {header.name!r} is a link, a device, sparse or of another kind "
                f"({header.type!r}); only files and folders are read. Use another tool."
            )

        member_name = check_name(header.name, name)
        if header.isreg() and (not member_name or header.name.endswith("/")):
            raise UnsafeArchiveError(f"{name!r} has a file without a name ({header.name!r})")
        return ArchiveMember(member_name, size, header.isdir(), header.offset_data, headers)

    def _check_end(self, headers: _ForwardFile) -> None:
        """Check that the headers end with the mark of an archive, and that only zeros follow.

        The stream is read on to its end: a checksum may follow, and another tar behind the end must
        not be ignored silently.

        Raises:
            ArchiveError: the archive is damaged or truncated, or other data follows.
        """
        if headers.last_read != _ZEROS:
            raise ArchiveError(
                f"{self.name!r} is damaged or truncated: its end mark is missing. Fetch it again."
            )
        block = headers.read_content(_BLOCK_BYTES)
        if len(block) < _BLOCK_BYTES:
            raise ArchiveError(
                f"{self.name!r} is truncated: it ends inside of its end mark. Fetch it again."
            )
        if not ends_with_zeros(block, partial(headers.read_content, CHUNK_BYTES)):
            raise ArchiveError(
                f"{self.name!r} has other data behind the end of its tar; "
                "split concatenated archives"
            )


class _ForwardFile:
    """The file from which tarfile reads headers: forward only, in reads of bounded size.

    Args:
        stream: the unpacked tar, at its start.
        archive: the archive.

    Attributes:
        archive: the archive.
        last_read: what tarfile read last.
        opened_offset: where the content of the member that was opened last begins; -1 before.
    """

    archive: TarArchive
    last_read: bytes
    opened_offset: int
    _stream: io.BufferedReader
    _position: int

    def __init__(self, stream: io.BufferedReader, archive: TarArchive) -> None:
        self.archive = archive
        self.last_read = b""
        self.opened_offset = -1
        self._stream = stream
        self._position = 0

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int) -> None:
        if offset < self._position:
            raise ArchiveError(
                f"{self.archive.name!r} is damaged: a header leads back to byte {offset:,}"
            )
        if self._stream.seekable():
            self._stream.seek(offset)
            self._position = offset
            return
        while self._position < offset:
            data = self.read_content(min(CHUNK_BYTES, offset - self._position))
            if not data:
                return  # the next read of a header finds the end

    def read(self, size: int) -> bytes:
        """Read a header, or the content of an extension header."""
        name = self.archive.name
        if not 0 <= size <= _MAX_HEADER_BYTES:
            raise ArchiveError(f"{name!r} claims {size:,} bytes of attributes for one member")
        self.last_read = self.read_content(size)
        if size > _BLOCK_BYTES and len(self.last_read) < size:
            raise ArchiveError(
                f"{name!r} is truncated: it ends inside of a header. Fetch it again."
            )
        if _MANY_DIGITS.search(self.last_read):
            raise ArchiveError(f"{name!r} is damaged: a header has numbers of hundreds of digits")
        return self.last_read

    def read_content(self, size: int) -> bytes:
        """Read a part of a member."""
        data = self._stream.read(size)
        self._position += len(data)
        return data

    def read_at(self, offset: int, size: int) -> bytes:
        """Read a part of a member, which must come next.

        Raises:
            ValueError: the iteration has read on meanwhile.
        """
        if self._position != offset:
            raise ValueError(
                f"a member of {self.archive.name!r} can no longer be read: the iteration is past it"
            )
        return self.read_content(size)


def looks_like_tar(block: bytes) -> bool:
    """Return whether a file that begins with ``block`` (512 bytes) is a tar.

    The checksum of its first header tells.
    """
    if block == _ZEROS:
        return True  # an empty archive
    try:
        tarfile.TarInfo.frombuf(block, "latin-1", "strict")
    except tarfile.HeaderError:
        return False
    return True
