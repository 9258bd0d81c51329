"""Reading of zip archives.

:mod:`zipfile` parses the directory. Where members lie and what they unpack to is checked here, for zipfile lets members overlap
and unpacks some kinds of them whole, however large.
"""

from __future__ import annotations

import io
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import Final

from data_stack.exception import ArchiveError, ConfigError, UnsafeArchiveError
from data_stack.io.archives.archive import Archive, ArchiveMember, checked_name
from data_stack.io.archives.decompression import decompressed
from data_stack.io.archives.limits import ArchiveLimits
from data_stack.io.archives.streams import LentFile, chunks_of, held_back, stream_of
from data_stack.util.request_limit import check_request

_LOCAL: Final = struct.Struct("<4s5H3L2H")
_METHODS: Final = {0: "stored", 8: "deflate", 12: "bz2", 93: "zstd"}
_ENCRYPTED: Final = 1 | 1 << 6 | 1 << 13
_IS_UTF8: Final = 1 << 11
_LARGE_BYTES: Final = 1 << 17


class ZipArchive(Archive):
    """A zip archive in a stream that can seek.

    Its directory is read and checked as a whole when it is opened; each member is then read by position.

    Args:
        name_encoding: of names that are not marked as UTF-8.
        skip_special: leave links and devices out.
    """

    def __init__(self, name: str, file: LentFile, limits: ArchiveLimits, name_encoding: str, skip_special: bool) -> None:
        super().__init__(name, limits)
        self._file, self._name_encoding = file, name_encoding
        #: None for folders.
        self._members: dict[str, zipfile.ZipInfo | None] = {}
        #: Where that ends which a member may lie in, by the offset of its header.
        self._ends: dict[int, int] = {}
        n_total = 0
        infos = self._directory()
        for info in infos:
            member, is_folder, is_special = self._checked(info)
            if is_special and skip_special:
                continue
            if is_special:
                raise UnsafeArchiveError(
                    f"{name!r}: {member!r} is a link or a device; only regular files and folders are read. "
                    f"skip_special=True leaves the others out."
                )
            if member or not is_folder:
                # A folder may be named once for each of its files.
                if member in self._members and not (is_folder and self._members[member] is None):
                    raise UnsafeArchiveError(f"{name!r} has two members {member!r}; which one is meant cannot be known")
                self._members[member] = None if is_folder else info
            n_total += info.file_size
        limits.check_bytes(name, n_total)
        limits.check_ratio(name, n_total, file.size)
        self._check_overlaps(infos)

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
        if info.flag_bits & _ENCRYPTED:
            raise UnsafeArchiveError(f"{self._name!r}: {name!r} is encrypted; unpack it by other means")
        if info.compress_type not in _METHODS:
            raise ArchiveError(
                f"{self._name!r}: {name!r} is compressed by method {info.compress_type}; known are {', '.join(_METHODS.values())}"
            )
        self._limits.check_member(self._name, info.file_size)
        self._limits.check_ratio(self._name, info.file_size, info.compress_size)
        return stream_of(held_back(self._chunks(name, info)), name)

    def _chunks(self, name: str, info: zipfile.ZipInfo) -> Iterator[bytes]:
        """The content of a file; an error before the last chunk is given out if it is not what the directory says."""
        head = self._file.read_at(info.header_offset, _LOCAL.size)
        if len(head) < _LOCAL.size:
            raise self._damaged("it ends inside of a member's header")
        signature, _, flags, method, _, _, _, _, _, n_name, n_extra = _LOCAL.unpack(head)
        start = info.header_offset + _LOCAL.size + n_name + n_extra
        if (
            (signature, method) != (b"PK\3\4", info.compress_type)
            or self._file.read_at(info.header_offset + _LOCAL.size, n_name) != _raw_name(info)
            or flags & _ENCRYPTED
            or start + info.compress_size > self._ends[info.header_offset]
        ):
            raise UnsafeArchiveError(f"{self._name!r}: the header of {name!r} differs from what the directory says")
        stream = self._file.stream(start, start + info.compress_size)
        if info.compress_type == zipfile.ZIP_STORED:
            chunks = chunks_of(stream)
        else:
            chunks = decompressed(stream, f"{self._name}:{name}", _METHODS[info.compress_type], self._limits)
        size, crc = 0, 0
        for chunk in chunks:
            size, crc = size + len(chunk), zlib.crc32(chunk, crc)
            if size > info.file_size:
                raise self._damaged(f"{name!r} is longer than the {info.file_size:,} bytes that the directory says")
            yield chunk
        if size != info.file_size:
            raise self._damaged(f"{name!r} has {size:,} bytes, the directory says {info.file_size:,}")
        if crc != info.CRC:
            raise self._damaged(f"{name!r} has CRC-32 {crc:08x}, the directory says {info.CRC:08x}")

    # ------------------------------------------------------------------ directory

    def _directory(self) -> list[zipfile.ZipInfo]:
        file = _DirectoryFile(self._file, self._name, self._limits)
        try:
            infos = zipfile.ZipFile(file).infolist()
        except UnicodeDecodeError as error:
            raise UnsafeArchiveError(
                f"{self._name!r} has a name marked as UTF-8 that is none (name_encoding is of others): {error}"
            ) from error
        except (zipfile.BadZipFile, NotImplementedError, struct.error, ValueError, OverflowError, OSError) as error:
            raise self._damaged(str(error)) from error
        self._limits.check_count(self._name, len(infos))
        if len(infos) != file.n_entries or (not infos and self._file.read_at(0, 4) == b"PK\3\4"):
            raise self._damaged(f"its directory has {file.n_entries:,} entries, of which {len(infos):,} can be found")
        return infos

    def _checked(self, info: zipfile.ZipInfo) -> tuple[str, bool, bool]:
        """The checked name of a member, and whether it is a folder, or neither that nor a file."""
        name = info.orig_filename
        if not info.flag_bits & _IS_UTF8:
            try:
                name = _raw_name(info).decode(self._name_encoding, "surrogateescape")
            except (LookupError, UnicodeError) as error:
                raise ConfigError(
                    f"the names in {self._name!r} cannot be decoded by name_encoding={self._name_encoding!r}: {error}"
                ) from error
        kind = stat.S_IFMT(info.external_attr >> 16)
        is_folder = name.endswith("/") or kind == stat.S_IFDIR
        checked = checked_name(name, self._name)
        if (is_folder and info.file_size) or not (checked or is_folder):
            raise UnsafeArchiveError(f"{self._name!r} has a file without a name ({name!r})")
        return checked, is_folder, kind not in (0, stat.S_IFREG, stat.S_IFDIR)

    def _check_overlaps(self, infos: list[zipfile.ZipInfo]) -> None:
        """No byte belongs to two members (D. Fifield, "A better zip bomb", WOOT 2019); note where each has to end."""
        end = self._file.size
        for info in sorted(infos, key=lambda each: each.header_offset, reverse=True):
            if info.header_offset < 0:
                raise self._damaged("its directory does not lie where it says")
            if info.header_offset + _LOCAL.size + len(_raw_name(info)) + info.compress_size > end:
                raise UnsafeArchiveError(f"{self._name!r}: {info.orig_filename!r} overlaps what comes after it")
            self._ends[info.header_offset], end = end, info.header_offset

    def _damaged(self, how: str) -> ArchiveError:
        return ArchiveError(f"{self._name!r} is damaged: {how}. Fetch it again.")


class _DirectoryFile(io.BufferedReader):
    """What zipfile reads a directory from, in one piece; a large one with too many members is refused before it is parsed.

    Attributes:
        n_entries: how many entries begin in the last piece that was read.
    """

    def __init__(self, file: LentFile, name: str, limits: ArchiveLimits) -> None:
        super().__init__(file.stream().detach(), 1 << 12)
        self._archive, self._limits, self.n_entries = name, limits, 0

    def read(self, size: int | None = -1, /) -> bytes:
        check_request(size or 0, f"the directory of {self._archive!r}")
        data = super().read(size)
        self.n_entries = data.count(b"PK\1\2")
        if len(data) > _LARGE_BYTES:
            self._limits.check_count(self._archive, self.n_entries)
        return data


def _raw_name(info: zipfile.ZipInfo) -> bytes:
    return info.orig_filename.encode("utf-8" if info.flag_bits & _IS_UTF8 else "cp437")
