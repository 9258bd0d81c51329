"""Reading of tar archives, plain or compressed, as POSIX (pax), GNU tar and V7 write them.

:mod:`tarfile` parses the headers. What it does not do is done here: it believes a header of any size, takes a damaged block for
the end, and looks at nothing behind that.
"""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Callable, Iterator
from typing import Final

from data_stack.exception import ArchiveError, ConfigError, UnsafeArchiveError
from data_stack.io.archives.archive import Archive, ArchiveMember, UniqueNames, check_name
from data_stack.io.archives.limits import ArchiveLimits
from data_stack.io.archives.streams import CHUNK_BYTES, LentFile, stream_of

_BLOCK_BYTES: Final = 512
_ZEROS: Final = bytes(_BLOCK_BYTES)
#: A long name or the attributes of a member; 64 KiB of extended attributes are the most that Linux keeps.
_MAX_EXTENSION_BYTES: Final = 1 << 17
#: Regular expressions of tarfile take quadratic time for these, in Python before 3.11.10.
_MANY_DIGITS: Final = re.compile(rb"[0-9]{512}")


class TarArchive(Archive):
    """A tar archive.

    A plain one in a stream that can seek gives random access. A compressed one is read from its start for each member that
    is opened by name, so iterate, and open each member as it comes. One in a stream that cannot seek is read once.

    Args:
        begin: gives the unpacked tar from its start, each time a new stream; raises ArchiveError if it cannot.
        file: the tar itself, where it is plain and can seek.
        name_encoding: of names that are not marked as UTF-8.
        skip_special: leave links, devices and pipes out.
    """

    def __init__(
        self,
        name: str,
        begin: Callable[[], io.BufferedReader],
        file: LentFile | None,
        limits: ArchiveLimits,
        name_encoding: str,
        skip_special: bool,
    ) -> None:
        super().__init__(name, limits)
        self._begin, self._file = begin, file
        self._name_encoding, self._skip_special = name_encoding, skip_special
        self._index: dict[str, ArchiveMember] | None = None

    def __iter__(self) -> Iterator[ArchiveMember]:
        self._check_open()
        return iter(_Pass(self, _Headers(self._begin(), self._name)))

    def open(self, member: ArchiveMember | str) -> io.BufferedReader:
        self._check_open()
        name = member if isinstance(member, str) else member.name
        found = member if isinstance(member, ArchiveMember) else None
        given_by = found._archive if found is not None else None
        is_ours = isinstance(given_by, _Pass) and given_by.archive is self
        if self._file is not None:
            if not is_ours:
                if self._index is None:
                    self._index = {each.name: each for each in self}
                found = self._index.get(name)
            if found is None or found.is_folder:
                raise self._no_member(name, self._index or ())
            stream = self._file.stream(found.offset, found.offset + found.size)
            return stream_of(self._content(stream.read, found), name)
        if found is not None and isinstance(given_by, _Pass) and is_ours and (opened := given_by.open_next(found)) is not None:
            return opened
        one_pass = _Pass(self, _Headers(self._begin(), self._name))
        for other in one_pass:
            if other.name == name and not other.is_folder and (opened := one_pass.opened(other)) is not None:
                return opened
        raise self._no_member(name)

    def _content(self, read: Callable[[int], bytes], member: ArchiveMember) -> Iterator[bytes]:
        left = member.size
        while left:
            chunk = read(min(CHUNK_BYTES, left))
            if not chunk:
                raise ArchiveError(f"{self._name!r} is cut short: it ends inside of {member.name!r}. Fetch it again.")
            left -= len(chunk)
            yield chunk


class _Headers:
    """What tarfile reads headers from: forward only, and never more at once than a header may have."""

    def __init__(self, stream: io.BufferedReader, name: str) -> None:
        self._stream, self._archive, self._position = stream, name, 0
        self.last = b""

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int) -> None:
        if offset < self._position:
            raise ArchiveError(f"{self._archive!r} is damaged: a header leads back to byte {offset:,}")
        if self._stream.seekable():
            self._stream.seek(offset)
            self._position = offset
        while self._position < offset and self.read_content(min(CHUNK_BYTES, offset - self._position)):
            pass

    def read(self, size: int) -> bytes:
        """Read a block, or the content of a header that describes the next one."""
        if not 0 <= size <= _MAX_EXTENSION_BYTES:
            raise ArchiveError(f"{self._archive!r} claims {size:,} bytes of attributes for one member")
        self.last = self.read_content(size)
        if size > _BLOCK_BYTES and len(self.last) < size:
            raise ArchiveError(f"{self._archive!r} is cut short: it ends inside of a header. Fetch it again.")
        if _MANY_DIGITS.search(self.last):
            raise ArchiveError(f"{self._archive!r} is damaged: a header has numbers of hundreds of digits")
        return self.last

    def read_content(self, size: int) -> bytes:
        """Read a part of a member."""
        data = self._stream.read(size)
        self._position += len(data)
        return data


class _Pass:
    """One reading of the headers, and of the members that are opened on the way."""

    def __init__(self, archive: TarArchive, headers: _Headers) -> None:
        self.archive, self._headers = archive, headers
        self._current: ArchiveMember | None = None

    def open_next(self, member: ArchiveMember) -> io.BufferedReader | None:
        """The content of the member that the pass stands at; None if it has gone on, or has given it out before."""
        if member is not self._current or member.is_folder:
            return None
        self._current = None
        expected = member.offset

        def read(size: int) -> bytes:
            nonlocal expected
            if self._headers.tell() != expected:
                raise ValueError(f"{member.name!r} of {self.archive.name!r} can no longer be read: the iteration has gone on")
            chunk = self._headers.read_content(size)
            expected += len(chunk)
            return chunk

        return stream_of(self.archive._content(read, member), member.name)

    def __iter__(self) -> Iterator[ArchiveMember]:
        archive = self.archive
        names, n_members, n_bytes = UniqueNames(archive.name), 0, 0
        for header in self._parse():
            n_members += 1
            archive._limits.check_count(archive.name, n_members)
            member = self._member(header)
            if member is None:
                continue
            n_bytes += member.size
            archive._limits.check_member(archive.name, member.size)
            archive._limits.check_bytes(archive.name, n_bytes)
            if member.name:
                names.add(member.name, member.is_folder)
                self._current = member
                yield member
                self._current = None
                archive._check_open()
        if self._headers.last != _ZEROS:
            raise ArchiveError(f"{archive.name!r} is damaged or cut short: its end mark is missing. Fetch it again.")
        end = self._headers.read_content(_BLOCK_BYTES)
        if len(end) < _BLOCK_BYTES:
            raise ArchiveError(f"{archive.name!r} is cut short: it ends inside of its end mark. Fetch it again.")
        # Read on: a checksum may follow, and another tar behind the end would be left out without a word.
        while end:
            if end.strip(b"\0"):
                raise ArchiveError(f"{archive.name!r} goes on after the end of its tar; take apart what was put together")
            end = self._headers.read_content(CHUNK_BYTES)

    def _parse(self) -> Iterator[tarfile.TarInfo]:
        name, encoding = self.archive.name, self.archive._name_encoding
        try:
            tar = tarfile.TarFile(fileobj=self._headers, encoding=encoding, errors="surrogateescape")  # type: ignore[arg-type]
            while (header := tar.next()) is not None:
                tar.members.clear()  # type: ignore[attr-defined]  # it would remember them all; typeshed lacks it
                if {"path", "size"} & tar.pax_headers.keys():
                    raise ArchiveError(f"{name!r} has a pax header that gives all members one name or size")
                yield header
        except (LookupError, UnicodeError) as error:
            raise ConfigError(f"the names in {name!r} cannot be decoded by name_encoding={encoding!r}: {error}") from error
        except (tarfile.TarError, ValueError, OverflowError, RecursionError) as error:
            raise ArchiveError(f"{name!r} is damaged before byte {self._headers.tell():,}: {error}. Fetch it again.") from error

    def _member(self, header: tarfile.TarInfo) -> ArchiveMember | None:
        """What a header says; None for a link or device that is left out."""
        name, size = self.archive.name, header.size
        if not 0 <= size < 1 << 63:
            raise ArchiveError(f"{name!r} is damaged: {header.name!r} has no valid size")
        is_special = header.issparse() or not (header.isreg() or header.isdir())
        # Implementations differ on whether these have content; without, all see the same members.
        if size and (is_special or header.isdir()):
            raise UnsafeArchiveError(f"{name!r}: {header.name!r} is sparse or no regular file, but has {size:,} bytes")
        if is_special:
            if self.archive._skip_special:
                return None
            raise UnsafeArchiveError(
                f"{name!r}: {header.name!r} is a link, a device, sparse or of another kind ({header.type!r}); only regular files "
                f"and folders are read. skip_special=True leaves the others out."
            )
        checked = check_name(header.name, name)
        if header.isreg() and (not checked or header.name.endswith("/")):
            raise UnsafeArchiveError(f"{name!r} has a file without a name ({header.name!r})")
        return ArchiveMember(checked, size, header.isdir(), header.offset_data, self)


def looks_like_tar(block: bytes) -> bool:
    """Whether a file that begins with ``block`` (512 bytes) is a tar, as far as a header's checksum tells."""
    if block == _ZEROS:
        return True
    try:
        tarfile.TarInfo.frombuf(block, "latin-1", "strict")
    except tarfile.HeaderError:
        return False
    return True
