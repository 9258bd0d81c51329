"""Reading of zip archives (APPNOTE.TXT 6.3.10) from the directory at their end.

The directory is parsed here, for :mod:`zipfile` reads one of any size at once, lets members overlap, and takes many
damaged ones for good; the content is decompressed by the standard modules.
"""

from __future__ import annotations

import io
import stat
import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from data_stack.exception import ArchiveError, UnsafeArchiveError
from data_stack.io.archives.archive import Archive, ArchiveMember, checked_name, decoded
from data_stack.io.archives.chunks import held_back, stream_of
from data_stack.io.archives.cursor import CHUNK_BYTES, Cursor, LentFile, PositionalCursor
from data_stack.io.archives.decompression import decompressed
from data_stack.io.archives.limits import ArchiveLimits

_END: Final = struct.Struct("<4s4H2LH")
_END_64: Final = struct.Struct("<4sQ2H2L4Q")
_END_64_LOCATOR: Final = struct.Struct("<4sLQL")
_ENTRY: Final = struct.Struct("<4s6H3L5H2L")
_LOCAL: Final = struct.Struct("<4s5H3L2H")
_METHODS: Final = {0: "stored", 8: "deflate", 12: "bz2", 93: "zstd"}
_ENCRYPTED: Final = 1 | 1 << 6 | 1 << 13
_PATCH: Final = 1 << 5
_IS_UTF8: Final = 1 << 11


class _Entry(NamedTuple):
    """What the directory says of a file, and the offset at which whatever comes next in the archive begins."""

    raw_name: bytes
    size: int
    stored_size: int
    crc: int
    method: int
    flags: int
    offset: int
    end: int


class ZipArchive(Archive):
    """A zip archive in a stream that can seek.

    Its directory is read and checked as a whole when it is opened; each member is then read by position.

    Args:
        name_encoding: of names that are not marked as UTF-8.
        skip_special: leave links and devices out.
    """

    def __init__(self, name: str, file: LentFile, limits: ArchiveLimits, name_encoding: str, skip_special: bool) -> None:
        super().__init__(name, limits)
        self._file = file
        self._name_encoding, self._skip_special = name_encoding, skip_special
        self._entries: dict[str, _Entry | None] = {}
        self._read_directory()

    def __iter__(self) -> Iterator[ArchiveMember]:
        self._check_open()
        for name, entry in self._entries.items():
            yield ArchiveMember(name, entry.size if entry else 0, entry is None)

    def open(self, member: ArchiveMember | str) -> io.BufferedReader:
        self._check_open()
        name = member if isinstance(member, str) else member.name
        entry = self._entries.get(name)
        if entry is None:
            raise self._no_member(name, self._entries)
        if entry.flags & (_ENCRYPTED | _PATCH):
            raise UnsafeArchiveError(f"{self._name!r}: {name!r} is encrypted; unpack it by other means")
        if entry.method not in _METHODS:
            raise ArchiveError(
                f"{self._name!r}: {name!r} is compressed by method {entry.method}; known are {', '.join(_METHODS.values())}"
            )
        self._limits.check_member(self._name, entry.size)
        self._limits.check_ratio(self._name, entry.size, entry.stored_size)
        return stream_of(held_back(self._chunks(name, entry)), name)

    def _chunks(self, name: str, entry: _Entry) -> Iterator[bytes]:
        """The content of a file; an error before the last chunk is given out if it is not what the directory says."""
        head = self._file.read_at(entry.offset, _LOCAL.size + len(entry.raw_name))
        if len(head) < _LOCAL.size + len(entry.raw_name):
            raise self._damaged("it ends inside of a member's header")
        signature, _, flags, method, _, _, _, _, _, n_name, n_extra = _LOCAL.unpack_from(head)
        start = entry.offset + _LOCAL.size + n_name + n_extra
        if (
            (signature, method, n_name) != (b"PK\3\4", entry.method, len(entry.raw_name))
            or head[_LOCAL.size :] != entry.raw_name
            or flags & (_ENCRYPTED | _PATCH)
            or start + entry.stored_size > entry.end
        ):
            raise UnsafeArchiveError(f"{self._name!r}: the header of {name!r} differs from what the directory says")
        cursor = PositionalCursor(self._file, f"{self._name}:{name}", start, start + entry.stored_size)
        if entry.method == 0:
            chunks = _stored(cursor)
        else:
            chunks = decompressed(cursor, _METHODS[entry.method], self._limits)
        size, crc = 0, 0
        for chunk in chunks:
            size, crc = size + len(chunk), zlib.crc32(chunk, crc)
            if size > entry.size:
                raise self._damaged(f"{name!r} is longer than the {entry.size:,} bytes that the directory says")
            yield chunk
        if size != entry.size:
            raise self._damaged(f"{name!r} has {size:,} bytes, the directory says {entry.size:,}")
        if crc != entry.crc:
            raise self._damaged(f"{name!r} has CRC-32 {crc:08x}, the directory says {entry.crc:08x}")

    # ------------------------------------------------------------------ directory

    def _read_directory(self) -> None:
        start, n_bytes, n_members, shift = self._directory()
        cursor = PositionalCursor(self._file, self._name, start, start + n_bytes)
        spans: list[tuple[int, int, str]] = []
        n_total, n_entries = 0, 0
        while cursor.position < n_bytes:
            n_entries += 1
            self._limits.check_count(self._name, n_entries)
            name, entry, is_folder, is_special = self._read_entry(cursor, shift)
            spans.append((entry.offset, entry.offset + _LOCAL.size + len(entry.raw_name) + entry.stored_size, name))
            if is_special and self._skip_special:
                continue
            if name or not is_folder:
                # A folder may be named once for each of its files.
                if name in self._entries and not (is_folder and self._entries[name] is None):
                    raise UnsafeArchiveError(f"{self._name!r} has two members {name!r}; which one is meant cannot be known")
                self._entries[name] = None if is_folder else entry
            n_total += entry.size
        if n_entries != n_members:
            raise self._damaged(f"its directory has {n_entries:,} entries, not {n_members:,}")
        self._limits.check_bytes(self._name, n_total)
        self._limits.check_ratio(self._name, n_total, self._file.size)
        self._check_overlaps(spans, start)

    def _check_overlaps(self, spans: list[tuple[int, int, str]], end: int) -> None:
        """No byte belongs to two members (D. Fifield, "A better zip bomb", WOOT 2019); note where each has to end."""
        spans.sort(reverse=True)
        for offset, least_end, name in spans:
            if least_end > end:
                raise UnsafeArchiveError(f"{self._name!r}: {name!r} overlaps what comes after it")
            entry = self._entries.get(name)
            if entry is not None and entry.offset == offset:
                self._entries[name] = entry._replace(end=end)
            end = offset

    def _directory(self) -> tuple[int, int, int, int]:
        """Where the directory starts, its bytes and entries, and by how much a program before the zip shifts all offsets."""
        tail_at = max(0, self._file.size - _END.size - 0xFFFF)
        tail = self._file.read_at(tail_at, self._file.size - tail_at)
        at = end_of_central_directory(tail)
        if at < 0:
            raise ArchiveError(f"{self._name!r} is cut short, or is no zip: the directory at its end is missing. Fetch it again.")
        _, disk, first_disk, n_here, n_members, n_bytes, offset, _ = _END.unpack_from(tail, at)
        end = tail_at + at
        if 0xFFFF in (disk, first_disk, n_here, n_members) or 0xFFFFFFFF in (n_bytes, offset):
            found = self._directory_64(end)
            if found is not None:
                disk, first_disk, n_here, n_members, n_bytes, offset, end = found
        if disk or first_disk or n_here != n_members:
            raise ArchiveError(f"{self._name!r} is one of several volumes of a zip; join them first")
        shift = end - n_bytes - offset
        if shift < 0:
            raise self._damaged("its directory does not lie where it says")
        return end - n_bytes, n_bytes, n_members, shift

    def _directory_64(self, end: int) -> tuple[int, int, int, int, int, int, int] | None:
        at = end - _END_64_LOCATOR.size - _END_64.size
        both = self._file.read_at(at, _END_64.size + _END_64_LOCATOR.size) if at >= 0 else b""
        if both[_END_64.size : _END_64.size + 4] != b"PK\6\7":
            return None  # exactly 65,535 members, without zip64
        signature, _, _, _, disk, first_disk, n_here, n_members, n_bytes, offset = _END_64.unpack_from(both)
        if signature != b"PK\6\6":
            raise self._damaged("its zip64 directory does not lie where it says")
        return disk, first_disk, n_here, n_members, n_bytes, offset, at

    def _read_entry(self, cursor: Cursor, shift: int) -> tuple[str, _Entry, bool, bool]:
        what = "its directory"
        (
            signature,
            _,
            _,
            flags,
            method,
            _,
            _,
            crc,
            stored_size,
            size,
            n_name,
            n_extra,
            n_comment,
            disk,
            _,
            attributes,
            offset,
        ) = _ENTRY.unpack(cursor.read_exactly(_ENTRY.size, what))
        if signature != b"PK\1\2":
            raise self._damaged("an entry of its directory does not begin as one")
        raw_name = cursor.read_exactly(n_name, what)
        extra = cursor.read_exactly(n_extra, what)
        cursor.skip(n_comment, what)
        if 0xFFFFFFFF in (size, stored_size, offset):
            size, stored_size, offset = self._sizes_64(extra, size, stored_size, offset)
        name = decoded(raw_name, "utf-8" if flags & _IS_UTF8 else self._name_encoding, self._name)
        kind = stat.S_IFMT(attributes >> 16)
        is_folder = name.endswith("/") or kind == stat.S_IFDIR
        is_special = kind not in (0, stat.S_IFREG, stat.S_IFDIR)
        checked = checked_name(name, self._name)
        if is_special and not self._skip_special:
            raise UnsafeArchiveError(
                f"{self._name!r}: {name!r} is a link or a device; only regular files and folders are read. "
                f"skip_special=True leaves the others out."
            )
        if (is_folder and size) or not (checked or is_folder):
            raise UnsafeArchiveError(f"{self._name!r} has a file without a name ({name!r})")
        if disk not in (0, 0xFFFF):
            raise ArchiveError(f"{self._name!r} is one of several volumes of a zip; join them first")
        entry = _Entry(raw_name, size, stored_size, crc, method, flags, offset + shift, 0)
        return checked, entry, is_folder, is_special

    def _sizes_64(self, extra: bytes, *fields: int) -> list[int]:
        """Fields that do not fit in 32 bits, from the extra field 1 (APPNOTE 4.5.3)."""
        at = 0
        while at + 4 <= len(extra):
            kind, n_bytes = struct.unpack_from("<2H", extra, at)
            if kind == 1:
                values = iter(struct.unpack_from(f"<{min(n_bytes, len(extra) - at - 4) // 8}Q", extra, at + 4))
                return [next(values, field) if field == 0xFFFFFFFF else field for field in fields]
            at += 4 + n_bytes
        return list(fields)

    def _damaged(self, how: str) -> ArchiveError:
        return ArchiveError(f"{self._name!r} is damaged: {how}. Fetch it again.")


def end_of_central_directory(tail: bytes) -> int:
    """Where in the last bytes of a file the end record of a zip begins, whose comment ends with the file; -1 if it is no zip."""
    at = tail.rfind(b"PK\5\6")
    while at >= 0:
        if len(tail) - at >= _END.size and at + _END.size + int.from_bytes(tail[at + 20 : at + 22], "little") == len(tail):
            return at
        at = tail.rfind(b"PK\5\6", 0, at)
    return -1


def _stored(cursor: Cursor) -> Iterator[bytes]:
    while chunk := cursor.read(CHUNK_BYTES):
        yield chunk
