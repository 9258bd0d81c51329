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
from data_stack.io.archives.archive import Archive, ArchiveMember, add_name, check_name
from data_stack.io.archives.limits import ArchiveLimits
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
#: The bits of a member's flags that say that it, or its name, is encrypted.
_ENCRYPTED_FLAGS: Final = 1 | 1 << 6 | 1 << 13

# Signatures of the records of a zip:
# https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT, section 4.3.
_MEMBER_SIGNATURE: Final = b"PK\3\4"
_ENTRY_SIGNATURE: Final = b"PK\1\2"
_END_SIGNATURE: Final = b"PK\5\6"
_END64_SIGNATURE: Final = b"PK\6\6"
#: Length of an entry of the directory without its name, extra field and comment.
_ENTRY_BYTES: Final = 46


class ZipArchive(Archive):
    """A zip archive.

    Opening it reads and checks its directory; members are read by position. Names that are not
    marked as UTF-8 are CP437.

    Args:
        name: the name of the archive in messages.
        file: the archive.
        limits: bounds on the unpacked size.
        strip_parents: leave ``..`` and a leading ``/`` out of names.
    """

    #: The members by their names; None for folders.
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
        self._members = {}
        is_folder_by_name = dict[str, bool]()
        for entry in entries:
            is_folder = _is_folder(entry)
            member_name = self._member_name(entry, strip_parents)
            if not member_name:
                continue  # the archive's top folder
            add_name(is_folder_by_name, member_name, name, is_folder)
            self._members[member_name] = None if is_folder else entry

    def __iter__(self) -> Iterator[ArchiveMember]:
        self._check_open()
        for name, entry in self._members.items():
            if entry is None:
                yield ArchiveMember(name, 0, is_folder=True)
            else:
                yield ArchiveMember(name, entry.file_size)

    def open(self, member: ArchiveMember | str) -> io.BufferedReader:
        self._check_open()
        name = member if isinstance(member, str) else member.name
        entry = self._members.get(name)
        if entry is None:
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

        n_recorded = directory.n_recorded(len(entries))
        is_hidden = not entries and file.read_at(0, 4) == _MEMBER_SIGNATURE
        if n_recorded != len(entries) or is_hidden:
            raise self._damage_error(
                f"its directory has {n_recorded:,} entries, of which {len(entries):,} can be found"
            )

        n_bytes = sum(entry.file_size for entry in entries)
        self._limits.check_bytes(self.name, n_bytes)
        self._limits.check_ratio(self.name, n_bytes, file.size)

    def _member_name(self, entry: zipfile.ZipInfo, strip_parents: bool) -> str:
        """Return the checked name of an entry; empty for the archive's top folder.

        Raises:
            UnsafeArchiveError: the entry is no regular file or folder inside of the archive.
        """
        written_name = entry.orig_filename
        if strip_parents:
            written_name = _without_parents(written_name)
        name = check_name(written_name, self.name)

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
        return ArchiveError(f"{self.name!r} is damaged: {problem}. Fetch it again.")


def _unix_type(entry: zipfile.ZipInfo) -> int:
    """Return the Unix type of a file, such as ``stat.S_IFDIR``; 0 if it is not recorded."""
    return stat.S_IFMT(entry.external_attr >> 16)


def _is_folder(entry: zipfile.ZipInfo) -> bool:
    return entry.orig_filename.endswith("/") or _unix_type(entry) == stat.S_IFDIR


def _without_parents(name: str) -> str:
    """Return a name without ``..`` and a leading ``/``."""
    parts = [part for part in name.split("/") if part not in ("", "..")]
    return "/".join(parts) or "."


class _DirectoryFile(io.BufferedReader):
    """The file that zipfile reads.

    The directory comes in one read, and too many members are refused before they are parsed.
    """

    #: Where the last read ended.
    _end_of_read: int

    def __init__(self, file: StreamedResource, name: str, limits: ArchiveLimits) -> None:
        super().__init__(window(file).detach(), 1 << 12)
        self._archive = name
        self._limits = limits
        self._end_of_read = 0

    def read(self, size: int | None = -1, /) -> bytes:
        check_request(size or 0, f"the directory of {self._archive!r}")
        data = super().read(size)
        self._end_of_read = self.tell()
        is_directory = len(data) > CHUNK_BYTES  # reads of members are shorter
        if is_directory:
            self._limits.check_count(self._archive, _count_entries(data))
        return data

    def n_recorded(self, n_entries: int) -> int:
        """Return how many entries the record behind the directory counts.

        zipfile has just read the directory, and ignores the count. A damaged length may hide an
        entry in the comment of the one before. The signature of an entry does not tell, as a
        comment may hold it: https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT, sections
        4.3.14 and 4.3.16.

        Args:
            n_entries: how many entries were found. It is returned if the record cannot tell more
                than its last 16 bits, or is not behind the directory.
        """
        self.seek(self._end_of_read)
        record = super().read(40)
        if record.startswith(_END64_SIGNATURE) and len(record) == 40:
            return int.from_bytes(record[32:40], "little")
        if not record.startswith(_END_SIGNATURE) or len(record) < 12:
            return n_entries
        n_recorded = int.from_bytes(record[10:12], "little")
        # Old writers without the 64-bit record count modulo 65,536.
        if n_recorded == n_entries % 65_536:
            return n_entries
        return n_recorded


def _count_entries(directory: bytes) -> int:
    """Return how many entries a directory has, found by walking from one to the next."""
    n_entries = 0
    start = 0
    while directory.startswith(_ENTRY_SIGNATURE, start) and start + _ENTRY_BYTES <= len(directory):
        name_bytes, extra_bytes, comment_bytes = struct.unpack_from("<3H", directory, start + 28)
        start += _ENTRY_BYTES + name_bytes + extra_bytes + comment_bytes
        n_entries += 1
    return n_entries
