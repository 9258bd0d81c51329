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
from data_stack.io.archives.archive import Archive, ArchiveMember, name_of_member
from data_stack.io.archives.limits import ArchiveLimits
from data_stack.io.archives.member_names import MemberNames, normalize_member_name
from data_stack.io.archives.streams import CHUNK_BYTES, ends_with_zeros, stream_of
from data_stack.io.resources import StreamedResource

_BLOCK_BYTES: Final = 512
_ZEROS: Final = bytes(_BLOCK_BYTES)
#: The longest extension header of a member: a long name, or its attributes. Linux keeps at most 64
#: KiB of extended attributes.
_MAX_HEADER_BYTES: Final = 1 << 17
#: Limit of the size of a member: the largest offset that a seek() takes.
_MAX_MEMBER_BYTES: Final = 1 << 63
#: Regular expressions of tarfile take quadratic time for long numbers, in Python before 3.11.10.
_MANY_DIGITS: Final = re.compile(rb"[0-9]{512}")


class TarArchive(Archive):
    """A tar archive.

    A plain tar has random access. A compressed tar is read from its start for each member that is
    opened by name, so iterate, and open each member as it comes.

    Args:
        name: the name of the archive in messages.
        open_tar: opens a new stream of the unpacked tar, at its start.
        file: the tar itself, if it is not compressed; else None.
        limits: bounds on the unpacked size.
    """

    _open_tar: Callable[[], Any]
    _file: StreamedResource | None
    #: The members of a plain tar by name; None before one is opened by name.
    _index: dict[str, ArchiveMember] | None

    def __init__(
        self,
        name: str,
        open_tar: Callable[[], Any],
        file: StreamedResource | None,
        limits: ArchiveLimits,
    ) -> None:
        super().__init__(name, limits)
        self._open_tar = open_tar
        self._file = file
        self._index = None

    def __iter__(self) -> Iterator[ArchiveMember]:
        self._check_open()
        return self._read_members(_TarStream(self._open_tar(), self))

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

        name = name_of_member(member)
        if self._index is None:
            self._index = {own_member.name: own_member for own_member in self}
        own_member = self._index.get(name)
        if own_member is None or own_member.is_folder:
            raise self._no_member_error(name, self._index)
        return stream_of(self._content(file.read_at, own_member), name)

    def _open_in_compressed(self, member: ArchiveMember | str) -> io.BufferedReader:
        """Open a member of a compressed tar, which is read forward only."""
        if isinstance(member, ArchiveMember) and self._comes_next(member):
            return self._open_next(member)

        # Any other member is looked for from the start of the archive.
        name = name_of_member(member)
        for own_member in self:
            if own_member.name == name and not own_member.is_folder:
                return self._open_next(own_member)
        raise self._no_member_error(name)

    def _comes_next(self, member: ArchiveMember) -> bool:
        """Return whether the content of a file comes next in the stream that named it.

        So it does if the iteration yielded the file last, and it was not opened yet.
        """
        if member.is_folder or not self._is_own(member):
            return False
        tar: _TarStream = member._headers
        return tar.tell() == member.offset and tar.opened_offset != member.offset

    def _open_next(self, member: ArchiveMember) -> io.BufferedReader:
        """Open a member whose content comes next in the stream that named it."""
        tar: _TarStream = member._headers
        tar.opened_offset = member.offset
        return stream_of(self._content(tar.read_at, member), member.name)

    def _is_own(self, member: ArchiveMember) -> bool:
        """Return whether an iteration over this archive yielded a member."""
        tar = member._headers
        return isinstance(tar, _TarStream) and tar.archive is self

    def _content(
        self, read_at: Callable[[int, int], bytes], member: ArchiveMember
    ) -> Iterator[bytes]:
        """Yield the content of a member in chunks.

        Args:
            read_at: reads ``(offset, size)`` of the unpacked tar.
            member: the member.

        Raises:
            ArchiveError: the archive is truncated.
        """
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

    def _read_members(self, tar: _TarStream) -> Iterator[ArchiveMember]:
        """Yield the members, and check the end of the archive."""
        names = MemberNames(self.name)
        n_members = 0
        n_bytes = 0
        for header in self._parse_headers(tar):
            n_members += 1
            self._limits.check_count(self.name, n_members)
            member = self._member_of(header, tar)
            n_bytes += member.size
            self._limits.check_bytes(self.name, n_bytes)
            is_top_folder = not member.name
            if is_top_folder:
                continue
            names.add(member.name, is_folder=member.is_folder)
            yield member
            # The caller may have closed the archive before it asked for the next member.
            self._check_open()
        self._check_end(tar)

    def _parse_headers(self, tar: _TarStream) -> Iterator[tarfile.TarInfo]:
        """Yield the headers as tarfile understands them.

        Raises:
            ArchiveError: a header is damaged.
        """
        name = self.name
        try:
            parser = tarfile.TarFile(
                fileobj=tar,  # type: ignore[arg-type]  # it has what tarfile calls
                encoding="utf-8",
                errors="surrogateescape",
            )
            if parser.firstmember is None:  # type: ignore[attr-defined]  # typeshed lacks it
                # The archive is empty. tarfile of Python 3.10 would read on.
                return
            while True:
                header = parser.next()
                if header is None:
                    return
                # tarfile would keep all headers in memory.
                parser.members.clear()  # type: ignore[attr-defined]  # typeshed lacks it
                if "path" in parser.pax_headers or "size" in parser.pax_headers:
                    raise ArchiveError(
                        f"{name!r} has a pax header with one name or size for all members"
                    )
                yield header
        except (tarfile.TarError, ValueError, OverflowError, RecursionError) as error:
            raise ArchiveError(
                f"{name!r} is damaged before byte {tar.tell():,}: {error}. Fetch it again."
            ) from error

    def _member_of(self, header: tarfile.TarInfo, tar: _TarStream) -> ArchiveMember:
        """Return the member that a header describes.

        Args:
            header: the header.
            tar: the stream that it was read from.

        Raises:
            ArchiveError: the header is damaged.
            UnsafeArchiveError: the member is no regular file or folder inside of the archive.
        """
        name = self.name
        size = header.size
        if not 0 <= size < _MAX_MEMBER_BYTES:
            raise ArchiveError(f"{name!r} is damaged: {header.name!r} has no valid size")

        is_file = header.isreg() and not header.issparse()
        is_folder = header.isdir() and not header.issparse()
        # Some programs read the content of a folder or link, others take the bytes for the next
        # header, and so see other members.
        if size > 0 and not is_file:
            raise UnsafeArchiveError(
                f"{name!r}: {header.name!r} is sparse or not a regular file, but has {size:,} bytes"
            )
        if not is_file and not is_folder:
            raise UnsafeArchiveError(
                f"{name!r}: {header.name!r} is a link, a device, sparse or of another kind "
                f"({header.type!r}); only files and folders are read. Use another tool."
            )

        member_name = normalize_member_name(header.name, name)
        has_file_name = bool(member_name) and not header.name.endswith("/")
        if is_file and not has_file_name:
            raise UnsafeArchiveError(f"{name!r} has a file without a name ({header.name!r})")
        return ArchiveMember(member_name, size, is_folder, header.offset_data, tar)

    def _check_end(self, tar: _TarStream) -> None:
        """Check that the headers end with the mark of an archive, and that only zeros follow.

        The stream is read on to its end: a checksum may follow, and another tar behind the end must
        not be ignored silently.

        Raises:
            ArchiveError: the archive is damaged or truncated, or other data follows.
        """
        if tar.last_read != _ZEROS:
            raise ArchiveError(
                f"{self.name!r} is damaged or truncated: its end mark is missing. Fetch it again."
            )
        block = tar.read_content(_BLOCK_BYTES)
        if len(block) < _BLOCK_BYTES:
            raise ArchiveError(
                f"{self.name!r} is truncated: it ends inside of its end mark. Fetch it again."
            )
        if not ends_with_zeros(block, partial(tar.read_content, CHUNK_BYTES)):
            raise ArchiveError(
                f"{self.name!r} has other data behind the end of its tar; "
                "split concatenated archives"
            )


class _TarStream:
    """The stream that one iteration reads a tar from.

    tarfile reads headers from it, forward only, and a bounded number of bytes at a time. Between
    the headers, the content of members is read.

    Args:
        stream: the unpacked tar, at its start.
        archive: the archive.

    Attributes:
        archive: the archive.
        last_read: what tarfile read last.
        opened_offset: where the content of the member that was opened last begins; None if none was
            opened yet.
    """

    archive: TarArchive
    last_read: bytes
    opened_offset: int | None
    _stream: io.BufferedReader
    _position: int

    def __init__(self, stream: io.BufferedReader, archive: TarArchive) -> None:
        self.archive = archive
        self.last_read = b""
        self.opened_offset = None
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
        """Read a header, or the content of an extension header; called by tarfile.

        Raises:
            ArchiveError: the header is too long, truncated or malicious.
        """
        name = self.archive.name
        if not 0 <= size <= _MAX_HEADER_BYTES:
            raise ArchiveError(f"{name!r} claims {size:,} bytes of attributes for one member")
        self.last_read = self.read_content(size)
        # tarfile notices a single block that is cut short, but not longer content.
        if size > _BLOCK_BYTES and len(self.last_read) < size:
            raise ArchiveError(
                f"{name!r} is truncated: it ends inside of a header. Fetch it again."
            )
        if _MANY_DIGITS.search(self.last_read):
            raise ArchiveError(f"{name!r} is damaged: a header has numbers of hundreds of digits")
        return self.last_read

    def read_content(self, size: int) -> bytes:
        """Read the next bytes, whatever they are; fewer only at the end."""
        data = self._stream.read(size)
        self._position += len(data)
        return data

    def read_at(self, offset: int, size: int) -> bytes:
        """Read a part of the content of a member, which must come next.

        Raises:
            ValueError: the stream is past it, as the iteration went on.
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
