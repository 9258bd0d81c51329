"""Reading of tar archives, plain or compressed, as POSIX (pax), GNU tar and V7 write them.

Headers are parsed by :mod:`tarfile`; which bytes belong to which member is decided here, where tarfile would believe
a header of any size, recurse, and end without a word at a damaged block.
"""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Callable, Iterator
from typing import Final

from data_stack.exception import ArchiveError, UnsafeArchiveError
from data_stack.io.archives.archive import Archive, ArchiveMember, UniqueNames, checked_name, decoded
from data_stack.io.archives.chunks import stream_of
from data_stack.io.archives.cursor import CHUNK_BYTES, Cursor, LentFile, PositionalCursor
from data_stack.io.archives.limits import ArchiveLimits

_BLOCK_BYTES: Final = 512
_ZEROS: Final = bytes(_BLOCK_BYTES)
#: A long name or the attributes of a member; 64 KiB of extended attributes are the most that Linux keeps.
_MAX_EXTENSION_BYTES: Final = 1 << 20
_PAX_RECORD: Final = re.compile(rb"([1-9][0-9]{0,7}) ([^=\n]{1,512})=")
_FILES: Final = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE)


class TarArchive(Archive):
    """A tar archive.

    A plain one in a stream that can seek gives random access. A compressed one is read from its start for each member that
    is opened by name, so iterate, and open each member as it comes. One in a stream that cannot seek is read once.

    Args:
        new_cursor: gives a cursor at the start of the unpacked tar, each time a new one; raises ArchiveError if it cannot.
        file: the tar itself, where it is plain and can seek.
        name_encoding: of names that are not marked as UTF-8.
        skip_special: leave links, devices and pipes out.
    """

    def __init__(
        self,
        name: str,
        new_cursor: Callable[[], Cursor],
        file: LentFile | None,
        limits: ArchiveLimits,
        name_encoding: str,
        skip_special: bool,
    ) -> None:
        super().__init__(name, limits)
        self._new_cursor, self._file = new_cursor, file
        self._name_encoding, self._skip_special = name_encoding, skip_special
        self._index: dict[str, ArchiveMember] | None = None

    def __iter__(self) -> Iterator[ArchiveMember]:
        self._check_open()
        return iter(_Pass(self, self._new_cursor()))

    def open(self, member: ArchiveMember | str) -> io.BufferedReader:
        self._check_open()
        name = member if isinstance(member, str) else member.name
        if self._file is not None:
            found = self._located(member)
            cursor = PositionalCursor(self._file, self._name, found._offset, found._offset + found.size, block_bytes=1)
            return stream_of(_chunks(cursor, found), name)
        if isinstance(member, ArchiveMember) and isinstance(member._archive, _Pass) and member._archive.archive is self:
            stream = member._archive.opened(member)
            if stream is not None:
                return stream
        one_pass = _Pass(self, self._new_cursor())
        for other in one_pass:
            if other.name == name and not other.is_folder:
                stream = one_pass.opened(other)
                if stream is not None:
                    return stream
        raise self._no_member(name)

    def _located(self, member: ArchiveMember | str) -> ArchiveMember:
        """The member of a plain tar, found by a look at all headers unless this archive gave it."""
        if isinstance(member, ArchiveMember) and isinstance(member._archive, _Pass) and member._archive.archive is self:
            found: ArchiveMember | None = member
        else:
            if self._index is None:
                self._index = {found.name: found for found in self}
            member = member if isinstance(member, str) else member.name
            found = self._index.get(member)
        if found is None or found.is_folder:
            raise self._no_member(member if isinstance(member, str) else member.name, self._index or ())
        return found


class _Pass:
    """One reading of the headers, and of the members that are opened on the way."""

    def __init__(self, archive: TarArchive, cursor: Cursor) -> None:
        self.archive = archive
        self._cursor = cursor
        self._current: ArchiveMember | None = None

    def opened(self, member: ArchiveMember) -> io.BufferedReader | None:
        """The content of the member that the pass stands at; None if it has gone on, or has given it out before."""
        if member is not self._current or member.is_folder:
            return None
        self._current = None
        return stream_of(self._current_chunks(member), member.name)

    def __iter__(self) -> Iterator[ArchiveMember]:
        archive, cursor = self.archive, self._cursor
        names, n_headers, n_bytes = UniqueNames(archive.name), 0, 0
        pax: dict[bytes, bytes] = {}
        long_name: bytes | None = None
        while (block := cursor.read_exactly(_BLOCK_BYTES, "the tar's headers (its end mark is missing)")) != _ZEROS:
            n_headers += 1
            archive._limits.check_count(archive.name, n_headers)
            header = self._parsed(block)
            if header.type in (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE):
                pax.update(self._pax_records(header))
                continue
            if header.type == tarfile.XGLTYPE:
                if self._pax_records(header):
                    raise ArchiveError(f"{archive.name!r} has a pax header that gives all members one name or size")
                continue
            if header.type in (tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK):
                content = self._extension(header)
                if header.type == tarfile.GNUTYPE_LONGNAME:
                    long_name = content.partition(b"\0")[0]
                continue
            size, is_folder = self._size(header, pax), header.type == tarfile.DIRTYPE
            is_special = header.type not in _FILES and not is_folder
            # Implementations differ on whether these have content; without, all see the same members.
            if size and (is_special or is_folder):
                raise UnsafeArchiveError(f"{archive.name!r}: {header.name!r} is no regular file, but has {size:,} bytes")
            if is_special and not archive._skip_special:
                raise UnsafeArchiveError(
                    f"{archive.name!r}: {header.name!r} is a link, a device or of another kind ({header.type!r}); only regular "
                    f"files and folders are read. skip_special=True leaves the others out."
                )
            start = cursor.position
            if not is_special:
                name = self._name(header, pax, long_name, is_folder)
                n_bytes += size
                archive._limits.check_member(archive.name, size)
                archive._limits.check_bytes(archive.name, n_bytes)
                if name:
                    names.add(name, is_folder)
                    self._current = ArchiveMember(name, size, is_folder, start, self)
                    yield self._current
                    self._current = None
                    archive._check_open()
            pax, long_name = {}, None
            end = start + -(-size // _BLOCK_BYTES) * _BLOCK_BYTES
            cursor.skip(end - cursor.position, f"{header.name!r}")
        if pax or long_name is not None:
            raise ArchiveError(f"{archive.name!r} is damaged: it ends after the name of a member, before the member")
        if cursor.read_exactly(_BLOCK_BYTES, "the tar's end mark") != _ZEROS:
            raise ArchiveError(f"{archive.name!r} is damaged: a block of zeros stands between its members")
        # Read on: a checksum may follow, and another tar behind the end would be left out without a word.
        while padding := cursor.read(CHUNK_BYTES):
            if padding.strip(b"\0"):
                raise ArchiveError(
                    f"{archive.name!r} goes on after the end of its tar with something else; take them apart first"
                )

    def _parsed(self, block: bytes) -> tarfile.TarInfo:
        try:
            return tarfile.TarInfo.frombuf(block, "latin-1", "strict")  # names are decoded later
        except tarfile.HeaderError as error:
            raise ArchiveError(f"{self.archive.name!r} is damaged before byte {self._cursor.position:,}: {error}") from error

    def _extension(self, header: tarfile.TarInfo) -> bytes:
        """The content of a header that describes the next one."""
        if not 0 <= header.size <= _MAX_EXTENSION_BYTES:
            raise ArchiveError(f"{self.archive.name!r} claims {header.size:,} bytes of attributes for one member")
        content = self._cursor.read_exactly(header.size, "a long name")
        self._cursor.skip(-header.size % _BLOCK_BYTES, "a long name")
        return content

    def _pax_records(self, header: tarfile.TarInfo) -> dict[bytes, bytes]:
        """Those records of a pax header (POSIX.1-2001, "pax Header Block") that say what and where a member is."""
        content, records, at = self._extension(header), {}, 0
        while at < len(content):
            match = _PAX_RECORD.match(content, at)
            end = at + int(match[1]) if match else 0
            if match is None or not match.end() < end <= len(content) or content[end - 1 : end] != b"\n":
                if not content[at:].strip(b"\0"):
                    break
                raise ArchiveError(f"{self.archive.name!r} is damaged: a pax header cannot be parsed")
            key, value = match[2], content[match.end() : end - 1]
            if key.startswith(b"GNU.sparse"):
                raise UnsafeArchiveError(
                    f"{self.archive.name!r} has a sparse file, whose size only its headers know; pack it plain"
                )
            if key in (b"path", b"size"):
                records[key] = value
            at = end
        return records

    def _size(self, header: tarfile.TarInfo, pax: dict[bytes, bytes]) -> int:
        text = pax.get(b"size")
        if text is None:
            size = header.size
        else:
            size = int(text) if re.fullmatch(rb"[0-9]{1,19}", text) else -1
        if not 0 <= size < 1 << 63:
            raise ArchiveError(f"{self.archive.name!r} is damaged: {header.name!r} has no valid size")
        return size

    def _name(self, header: tarfile.TarInfo, pax: dict[bytes, bytes], long_name: bytes | None, is_folder: bool) -> str:
        if b"path" in pax:
            if long_name is not None:
                raise UnsafeArchiveError(f"{self.archive.name!r} gives a member two names, {header.name!r} and another")
            name = decoded(pax[b"path"], "utf-8", self.archive.name)
        else:
            raw_name = header.name.encode("latin-1") if long_name is None else long_name
            name = decoded(raw_name, self.archive._name_encoding, self.archive.name)
        if not is_folder and (not name or name.endswith("/")):
            raise UnsafeArchiveError(f"{self.archive.name!r} has a file without a name ({name!r})")
        checked = checked_name(name, self.archive.name)
        if not checked and not is_folder:
            raise UnsafeArchiveError(f"{self.archive.name!r} has a file in place of its top folder ({name!r})")
        return checked

    def _current_chunks(self, member: ArchiveMember) -> Iterator[bytes]:
        cursor, end = self._cursor, member._offset + member.size
        expected = member._offset
        while expected < end:
            if cursor.position != expected:
                raise ValueError(f"{member.name!r} of {self.archive.name!r} can no longer be read: the iteration has gone on")
            chunk = cursor.read(min(CHUNK_BYTES, end - expected))
            if not chunk:
                raise cursor.cut_short(f"{member.name!r}")
            expected += len(chunk)
            yield chunk


def looks_like_tar(block: bytes) -> bool:
    """Whether a file that begins with ``block`` (512 bytes) is a tar, as far as a header's checksum tells."""
    if block == _ZEROS:
        return True
    try:
        tarfile.TarInfo.frombuf(block, "latin-1", "strict")
    except tarfile.HeaderError:
        return False
    return True


def _chunks(cursor: Cursor, member: ArchiveMember) -> Iterator[bytes]:
    left = member.size
    while left:
        chunk = cursor.read(min(CHUNK_BYTES, left))
        if not chunk:
            raise cursor.cut_short(f"{member.name!r}")
        left -= len(chunk)
        yield chunk
