"""Reading of zip archives.

:mod:`zipfile` reads the directory and the members. It unpacks bzip2 and LZMA whole, of any size, so only stored and deflated
members are read; the total unpacked size is checked before the first.
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
_ERRORS: Final = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    ValueError,
    OverflowError,
    OSError,
)


class ZipArchive(Archive):
    """A zip archive.

    Opening it reads and checks its directory; members are read by position. Names that are not marked as UTF-8 are CP437.

    Args:
        strip_parents: leave ``..`` and a leading ``/`` out of names.
    """

    def __init__(
        self, name: str, file: StreamedResource, limits: ArchiveLimits, strip_parents: bool = False
    ) -> None:
        super().__init__(name, limits)
        directory = _DirectoryFile(file, name, limits)
        try:
            self._zip = zipfile.ZipFile(directory)
        except DataStackError:
            raise
        except _ERRORS as error:
            raise self._damage_error(error) from error
        infos = self._zip.infolist()
        limits.check_count(name, len(infos))
        n_recorded = directory.n_recorded(len(infos))
        if n_recorded != len(infos) or (not infos and file.read_at(0, 4) == b"PK\3\4"):
            raise self._damage_error(
                f"its directory has {n_recorded:,} entries, of which {len(infos):,} can be found"
            )
        limits.check_bytes(name, sum(info.file_size for info in infos))
        limits.check_ratio(name, sum(info.file_size for info in infos), file.size)
        #: None for folders.
        self._members: dict[str, zipfile.ZipInfo | None] = {}
        names: dict[str, bool] = {}
        for info in infos:
            kind = stat.S_IFMT(info.external_attr >> 16)
            is_folder = info.orig_filename.endswith("/") or kind == stat.S_IFDIR
            written = info.orig_filename
            if strip_parents:
                written = (
                    "/".join(part for part in written.split("/") if part not in ("", "..")) or "."
                )
            member = check_name(written, name)
            if (is_folder and info.file_size) or not (member or is_folder):
                raise UnsafeArchiveError(
                    f"{name!r} has a file without a name ({info.orig_filename!r})"
                )
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                why = "is a link or a device; only files and folders are read. Use another tool."
                raise UnsafeArchiveError(f"{name!r}: {member!r} {why}")
            if member:
                add_name(names, member, name, is_folder)
                self._members[member] = None if is_folder else info

    def __iter__(self) -> Iterator[ArchiveMember]:
        self._check_open()
        for name, info in self._members.items():
            yield ArchiveMember(name, info.file_size if info else 0, info is None)

    def open(self, member: ArchiveMember | str) -> io.BufferedReader:
        self._check_open()
        name = member if isinstance(member, str) else member.name
        info = self._members.get(name)
        if info is None:
            raise self._no_member(name, self._members)
        if info.flag_bits & (1 | 1 << 6 | 1 << 13):
            raise UnsafeArchiveError(
                f"{self.name!r}: {name!r} is encrypted; unpack it with another tool"
            )
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            method = info.compress_type
            raise ArchiveError(
                f"{self.name!r}: {name!r} is compressed by method {method}, not by deflate; use another tool"
            )
        self._limits.check_ratio(self.name, info.file_size, info.compress_size)
        return stream_of(delay_last_chunk(self._chunks(info)), name)

    def _chunks(self, info: zipfile.ZipInfo) -> Iterator[bytes]:
        """The content of a file; raises before the last chunk if its size differs from the directory."""
        size = 0
        try:
            with self._zip.open(info) as stream:
                for chunk in chunks_of(stream):
                    size += len(chunk)
                    yield chunk
        except DataStackError:
            raise
        except _ERRORS as error:
            raise self._damage_error(error) from error
        if size != info.file_size:
            raise self._damage_error(
                f"{info.orig_filename!r} has {size:,} bytes, the directory says {info.file_size:,}"
            )

    def _damage_error(self, how: object) -> ArchiveError:
        return ArchiveError(f"{self.name!r} is damaged: {how}. Fetch it again.")


class _DirectoryFile(io.BufferedReader):
    """The file that zipfile reads: the directory comes in one read, and too many members are refused before parsing."""

    def __init__(self, file: StreamedResource, name: str, limits: ArchiveLimits) -> None:
        super().__init__(window(file).detach(), 1 << 12)
        self._archive = name
        self._limits = limits
        self._end_of_read = 0

    def read(self, size: int | None = -1, /) -> bytes:
        check_request(size or 0, f"the directory of {self._archive!r}")
        data = super().read(size)
        self._end_of_read = self.tell()
        if len(data) > CHUNK_BYTES:  # reads of members are shorter
            self._limits.check_count(self._archive, _count_entries(data))
        return data

    def n_recorded(self, n_entries: int) -> int:
        """How many entries the record behind the directory counts, which zipfile has just read and ignored.

        A damaged length may hide an entry in the comment of the one before. The signature of an entry does not tell, as a
        comment may hold it: https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT, sections 4.3.14 and 4.3.16.

        Args:
            n_entries: how many there are, if the record cannot tell more than the last 16 bits, or is not behind the directory.
        """
        self.seek(self._end_of_read)
        record = super().read(40)
        if record.startswith(b"PK\6\6") and len(record) == 40:
            return int.from_bytes(record[32:40], "little")
        if not record.startswith(b"PK\5\6") or len(record) < 12:
            return n_entries
        n_recorded = int.from_bytes(record[10:12], "little")
        # Old writers without the 64-bit record count modulo 65,536.
        return n_entries if n_recorded == n_entries % 65_536 else n_recorded


def _count_entries(directory: bytes) -> int:
    """How many entries a directory has, found by walking from one to the next."""
    n_entries = 0
    start = 0
    while directory.startswith(b"PK\1\2", start) and start + 46 <= len(directory):
        # The lengths of name, extra field and comment.
        lengths = struct.unpack_from("<3H", directory, start + 28)
        start += 46 + sum(lengths)
        n_entries += 1
    return n_entries
