"""Reads zip archives.

:mod:`zipfile` reads the directory and the members. It unpacks bzip2 and LZMA whole, of any size, so
only stored and deflated members are read; the total unpacked size is checked before the first.
"""

from __future__ import annotations

import io
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import Final

from data_stack.exception import ArchiveError, DataStackError, UnsafeArchiveError
from data_stack.io.archives.archive import Archive, ArchiveMember, name_of_member
from data_stack.io.archives.limits import ArchiveLimits
from data_stack.io.archives.member_names import MemberNames, normalize_member_name
from data_stack.io.archives.streams import (
    CHUNK_BYTES,
    chunks_of,
    delay_last_chunk,
    stream_of,
    window,
)
from data_stack.io.resources import StreamedResource
from data_stack.util.request_limit import check_request

#: What zipfile raises for damaged archives.
_DAMAGE_ERRORS: Final = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    ValueError,
    OverflowError,
    OSError,
)
#: The flags of an encrypted member, or of an encrypted name.
_ENCRYPTED_FLAGS: Final = 1 | 1 << 6 | 1 << 13

# Signatures of the records of a zip:
# https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT, section 4.3.
MEMBER_SIGNATURE: Final = b"PK\3\4"
_ENTRY_SIGNATURE: Final = b"PK\1\2"
_END_SIGNATURE: Final = b"PK\5\6"
_END64_SIGNATURE: Final = b"PK\6\6"
#: Length of an entry of the directory without its name, extra field and comment.
_ENTRY_BYTES: Final = 46
#: Where the lengths of name, extra field and comment stand in an entry, as three 16-bit numbers.
_ENTRY_LENGTHS_OFFSET: Final = 28
#: Where the count of entries stands in the record behind the directory: in the one with 64-bit
#: counts, and in the one with 16-bit counts.
_END64_COUNT: Final = slice(32, 40)
_END_COUNT: Final = slice(10, 12)
#: The buffer of the file that zipfile reads.
_BUFFER_BYTES: Final = 1 << 12


class ZipArchive(Archive):
    """A zip archive.

    The constructor reads and checks the directory; members are read by position. Names that are not
    marked as UTF-8 are decoded as CP437.

    Args:
        name: the name of the archive in messages.
        file: the archive.
        limits: bounds on the unpacked size.
        strip_parents: whether ``..`` and a leading ``/`` are removed from names.

    Raises:
        ArchiveError: the directory is damaged.
        ArchiveLimitError: it claims more than the limits.
        UnsafeArchiveError: a member is no regular file or folder inside of the archive.
    """

    _zip: zipfile.ZipFile
    #: The entries of files by name; None for a folder.
    _members: dict[str, zipfile.ZipInfo | None]

    def __init__(
        self, name: str, file: StreamedResource, limits: ArchiveLimits, strip_parents: bool = False
    ) -> None:
        super().__init__(name, limits)
        directory = _DirectoryFile(file, name, limits)
        try:
            self._zip = zipfile.ZipFile(directory)
        except DataStackError:
            raise
        except _DAMAGE_ERRORS as error:
            raise self._damage_error(error) from error

        entries = self._zip.infolist()
        self._check_directory(entries, directory, file)
        self._members = self._members_by_name(entries, strip_parents)

    def __iter__(self) -> Iterator[ArchiveMember]:
        self._check_open()
        for name, entry in self._members.items():
            if entry is None:
                yield ArchiveMember(name, 0, is_folder=True)
            else:
                yield ArchiveMember(name, entry.file_size)

    def open(self, member: ArchiveMember | str) -> io.BufferedReader:
        self._check_open()
        name = name_of_member(member)
        entry = self._members.get(name)
        if entry is None:  # there is no such member, or it is a folder
            raise self._no_member_error(name, self._members)
        if entry.flag_bits & _ENCRYPTED_FLAGS:
            raise UnsafeArchiveError(
                f"{self.name!r}: {name!r} is encrypted; unpack it with another tool"
            )
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise ArchiveError(
                f"{self.name!r}: {name!r} is compressed by method {entry.compress_type}, "
                "not by deflate; use another tool"
            )
        self._limits.check_ratio(self.name, entry.file_size, entry.compress_size)
        return stream_of(delay_last_chunk(self._content(entry)), name)

    def _content(self, entry: zipfile.ZipInfo) -> Iterator[bytes]:
        """Yield the content of a file.

        Raises:
            ArchiveError: it is damaged, or its size differs from that in the directory.
        """
        size = 0
        try:
            with self._zip.open(entry) as stream:
                for chunk in chunks_of(stream):
                    size += len(chunk)
                    yield chunk
        except DataStackError:
            raise
        except _DAMAGE_ERRORS as error:
            raise self._damage_error(error) from error
        if size != entry.file_size:
            raise self._damage_error(
                f"{entry.orig_filename!r} has {size:,} bytes, "
                f"the directory says {entry.file_size:,}"
            )

    # ------------------------------------------------------------------ checks of the directory

    def _check_directory(
        self, entries: list[zipfile.ZipInfo], directory: _DirectoryFile, file: StreamedResource
    ) -> None:
        """Check that all entries were found, and that they claim no more than the limits.

        Raises:
            ArchiveError: entries are missing.
            ArchiveLimitError: the entries claim too much.
        """
        self._limits.check_count(self.name, len(entries))

        n_recorded = directory.count_recorded_entries(len(entries))
        has_members_without_entries = not entries and file.read_at(0, 4) == MEMBER_SIGNATURE
        if n_recorded != len(entries) or has_members_without_entries:
            raise self._damage_error(
                f"its directory has {n_recorded:,} entries, of which {len(entries):,} can be found"
            )

        n_bytes = sum(entry.file_size for entry in entries)
        self._limits.check_bytes(self.name, n_bytes)
        self._limits.check_ratio(self.name, n_bytes, file.size)

    def _members_by_name(
        self, entries: list[zipfile.ZipInfo], strip_parents: bool
    ) -> dict[str, zipfile.ZipInfo | None]:
        """Return the entries by the checked names of their members; None instead of a folder's.

        Raises:
            UnsafeArchiveError: a member is no regular file or folder inside of the archive, or two
                have the same name.
        """
        members = dict[str, zipfile.ZipInfo | None]()
        names = MemberNames(self.name)
        for entry in entries:
            name = self._member_name(entry, strip_parents)
            is_top_folder = not name
            if is_top_folder:
                continue
            is_folder = _is_folder(entry)
            names.add(name, is_folder=is_folder)
            members[name] = None if is_folder else entry
        return members

    def _member_name(self, entry: zipfile.ZipInfo, strip_parents: bool) -> str:
        """Return the checked name of an entry; empty for the archive's top folder.

        Raises:
            UnsafeArchiveError: the entry is no regular file or folder inside of the archive.
        """
        written_name = entry.orig_filename
        if strip_parents:
            written_name = _without_parents(written_name)
        name = normalize_member_name(written_name, self.name)

        is_folder = _is_folder(entry)
        is_folder_with_content = is_folder and entry.file_size > 0
        is_nameless_file = not is_folder and not name
        if is_folder_with_content or is_nameless_file:
            raise UnsafeArchiveError(
                f"{self.name!r} has a file without a name ({entry.orig_filename!r})"
            )
        if _unix_type(entry) not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise UnsafeArchiveError(
                f"{self.name!r}: {name!r} is a link or a device; "
                "only files and folders are read. Use another tool."
            )
        return name

    def _damage_error(self, problem: object) -> ArchiveError:
        """Return the error of a damaged archive; ``problem`` is a text or an exception."""
        return ArchiveError(f"{self.name!r} is damaged: {problem}. Fetch it again.")


def _unix_type(entry: zipfile.ZipInfo) -> int:
    """Return the Unix type of a file, such as ``stat.S_IFDIR``; 0 if it is not recorded."""
    return stat.S_IFMT(entry.external_attr >> 16)


def _is_folder(entry: zipfile.ZipInfo) -> bool:
    """Return whether an entry is a folder, by its name or by its Unix type."""
    return entry.orig_filename.endswith("/") or _unix_type(entry) == stat.S_IFDIR


def _without_parents(name: str) -> str:
    """Return a name without ``..`` and a leading ``/``."""
    parts = [part for part in name.split("/") if part not in ("", "..")]
    return "/".join(parts) or "."


class _DirectoryFile(io.BufferedReader):
    """The file that zipfile reads.

    zipfile reads the directory at once, and makes an object of each entry. So the entries are
    counted first, and too many are refused.

    Args:
        file: the archive.
        name: the name of the archive in messages.
        limits: bounds on the members.
    """

    _archive: str
    _limits: ArchiveLimits
    #: Where the last read ended: the end of the directory, once zipfile has read it.
    _end_of_read: int

    def __init__(self, file: StreamedResource, name: str, limits: ArchiveLimits) -> None:
        super().__init__(window(file).detach(), _BUFFER_BYTES)
        self._archive = name
        self._limits = limits
        self._end_of_read = 0

    def read(self, size: int | None = -1, /) -> bytes:
        check_request(size or 0, f"the directory of {self._archive!r}")
        data = super().read(size)
        self._end_of_read = self.tell()
        # Reads of members are shorter. A shorter directory has few entries.
        may_be_large_directory = len(data) > CHUNK_BYTES
        if may_be_large_directory:
            self._limits.check_count(self._archive, _count_entries(data))
        return data

    def count_recorded_entries(self, n_entries: int) -> int:
        """Return how many entries the directory has, as the record behind it says.

        zipfile ignores this count. But if the length of a comment is damaged, zipfile takes the
        next entry for a part of the comment, and only the count shows that one is missing. The
        record is described in sections 4.3.14 and 4.3.16 of
        https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT.

        It is called when zipfile has just read the directory.

        Args:
            n_entries: how many entries zipfile has found.

        Returns:
            ``n_entries`` if there is no record behind the directory, or if its count is that number
            modulo 65,536.
        """
        self.seek(self._end_of_read)
        record = super().read(_END64_COUNT.stop)
        if record.startswith(_END64_SIGNATURE) and len(record) == _END64_COUNT.stop:
            return int.from_bytes(record[_END64_COUNT], "little")
        if not record.startswith(_END_SIGNATURE) or len(record) < _END_COUNT.stop:
            return n_entries
        n_recorded = int.from_bytes(record[_END_COUNT], "little")
        # Old writers without the 64-bit record count modulo 65,536.
        if n_recorded == n_entries % 65_536:
            return n_entries
        return n_recorded


def _count_entries(directory: bytes) -> int:
    """Return how many entries begin in some bytes, read from one to the next."""
    n_entries = 0
    start = 0
    while directory.startswith(_ENTRY_SIGNATURE, start) and start + _ENTRY_BYTES <= len(directory):
        name_bytes, extra_bytes, comment_bytes = struct.unpack_from(
            "<3H", directory, start + _ENTRY_LENGTHS_OFFSET
        )
        start += _ENTRY_BYTES + name_bytes + extra_bytes + comment_bytes
        n_entries += 1
    return n_entries
