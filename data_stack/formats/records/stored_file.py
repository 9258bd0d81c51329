"""The bytes of one file of a record dataset: mapped, in memory or read by range; each block is checked before its first use."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.records.manifest import MANIFEST, FileRecord
from data_stack.formats.stored_rows import read_together
from data_stack.io.folder import Folder
from data_stack.io.integrity import BLOCK_BYTES, DIGEST_BYTES, block_digest, digest_of_block
from data_stack.io.local_files import map_file
from data_stack.io.positional import PositionalFile
from data_stack.io.versions import version_of
from data_stack.util.program_lines import warn_deprecated

_SHIFT = BLOCK_BYTES.bit_length() - 1

_Integers = npt.NDArray[np.int64]


def block_damage(file: str, block: int) -> DatasetFileCorruptError:
    """The error for a block that differs from its checksum."""
    problem = f"the block of {BLOCK_BYTES:,} bytes from byte {block * BLOCK_BYTES:,} on differs from its checksum in {MANIFEST}"
    remedy = "Restore the file from a copy, or write the dataset again; verify() checks all files"
    return DatasetFileCorruptError(f"{file} is damaged: {problem}. {remedy}")


class BlockChecks:
    """Checks the blocks of a file, and remembers which are checked. There is no lock: two threads may check a block twice.

    Args:
        name: name of the file.
        size: number of bytes that the digests cover; bytes after them are not checked.
        digests: digests of its blocks, 8 bytes each; None to check nothing.

    Attributes:
        is_done: whether all blocks are checked.
    """

    def __init__(self, name: str, size: int, digests: bytes | None) -> None:
        self.name, self.size, self._digests = name, size, digests
        self._checked = bytearray(0 if digests is None else len(digests) // DIGEST_BYTES)
        self.is_done = not self._checked
        self._first = 0  # all blocks before are checked

    def check(self, data: memoryview, starts: Sequence[int], ends: Sequence[int]) -> None:
        """Check the unchecked blocks of some ranges of ``data``, the whole file.

        Raises:
            DatasetFileCorruptError: a block is damaged.
        """
        checked, size = self._checked, self.size
        for start, stop in zip(starts, ends, strict=True):
            end = stop if stop < size else size
            first, last = start >> _SHIFT, (end - 1) >> _SHIFT
            if end <= start or (first == last and checked[first]):
                continue  # as nearly always: kept short
            for block in range(first, last + 1):
                if not checked[block]:
                    self.check_block(block, data[block << _SHIFT : (block + 1) << _SHIFT])

    def check_block(self, block: int, content: memoryview) -> None:
        """Compare a block with its checksum; the last one may be followed by bytes that were appended later."""
        content = content[: self.size - (block << _SHIFT)]
        if self._digests is not None and block_digest(content) != digest_of_block(
            self._digests, block
        ):
            raise block_damage(self.name, block)
        self._checked[block] = 1
        first = self._checked.find(0, self._first)
        if first < 0:
            self.is_done = True
        else:
            self._first = first

    def widen(self, offset: int, size: int) -> tuple[int, int] | None:
        """The range of whole blocks around a range, if one of them is unchecked."""
        end = min(offset + size, self.size)
        first, last = offset >> _SHIFT, (end - 1) >> _SHIFT
        if self.is_done or end <= offset or 0 not in self._checked[first : last + 1]:
            return None
        return first << _SHIFT, max(offset + size, min((last + 1) << _SHIFT, self.size)) - (
            first << _SHIFT
        )


class StoredFile:
    """One file, which threads and forked children may share: it has no position.

    Args:
        folder: the folder of the dataset.
        file: name of the file in it.
        record: the file's record in the manifest; None without a manifest.
        is_longer: whether bytes that were appended to those of the record belong to the dataset, too; they are not checked.
        mapped: map the file into memory if possible.
        load_bytes: a file up to this size is read into memory if it is not mapped.
        checks: the checks of the file from when it was open before.

    Attributes:
        name: full name, for messages.
        size: number of bytes that belong to the dataset.
        version: of the file, see :func:`~data_stack.io.versions.version_of`.
        buffer: the bytes of the dataset, mapped or in memory; None if they are read by range. **They may be unchecked.**
        checks: which blocks are checked.
        ranges: reads and checks ranges of the file; None if there is a buffer.

    Raises:
        ResourceNotFoundError: the file does not exist.
        DatasetFileCorruptError: the file is shorter than in the manifest, or another file.
    """

    def __init__(
        self,
        folder: Folder,
        file: str,
        record: FileRecord | None,
        *,
        is_longer: bool = False,
        mapped: bool = True,
        load_bytes: int = 0,
        checks: BlockChecks | None = None,
    ) -> None:
        self.name = folder.full_name(file)
        ranges = _CheckedRanges(folder.open(file))
        opened = ranges.resource
        self.version = version_of(opened)
        size = opened.size
        if record is not None:
            check_size(self.name, size, record)
            if size == record.size and opened.sha256 not in (None, record.sha256):
                raise DatasetFileCorruptError(
                    f"{self.name} is not the file that {MANIFEST} describes: its SHA-256 differs"
                )
        self.size = size if record is None or is_longer else record.size
        self.buffer: mmap.mmap | bytes | None = b"" if self.size == 0 else None
        if self.buffer is None and mapped:
            self.buffer = map_file(opened, self.size)
        # A store that checks each read has checked what is not mapped.
        is_checked = self.buffer is not None or not folder.checks_reads
        if checks is None:
            covered, blocks = (self.size, None) if record is None else (record.size, record.blocks)
            checks = BlockChecks(self.name, covered, blocks if is_checked else None)
        self.checks = ranges.checks = checks
        if self.buffer is None and self.size <= load_bytes:
            self.buffer = ranges.read_exactly_at(0, self.size)
        self.ranges = ranges if self.buffer is None else None
        self._view = memoryview(b"" if self.buffer is None else self.buffer)
        if self.ranges is None:
            opened.close()

    def check(self, starts: Sequence[int], ends: Sequence[int]) -> None:
        """Check the unchecked blocks of ranges of ``buffer``.

        Raises:
            DatasetFileCorruptError: a block is damaged.
        """
        if not self.checks.is_done:
            self.checks.check(self._view, starts, ends)

    def read(self, start: int, end: int) -> bytes:
        """Read a range of the file.

        Raises:
            DatasetFileCorruptError: a block in it is damaged.
        """
        return self.read_many(np.array([start]), np.array([end]))[0]

    def read_many(self, starts: _Integers, ends: _Integers) -> list[bytes]:
        """Read ranges of the file; without a buffer, ranges close to each other are fetched together.

        Raises:
            DatasetFileCorruptError: as for :meth:`read`.
        """
        if self.ranges is None:
            begins, stops, buffer = starts.tolist(), ends.tolist(), cast("Any", self.buffer)
            self.check(begins, stops)
            return [buffer[start:end] for start, end in zip(begins, stops, strict=True)]
        return read_together(self.ranges, starts, ends)

    def release_pages(self) -> None:
        """Release the pages of a mapped file, which count as memory of this process.

        They stay in the cache of the system.
        """
        if isinstance(self.buffer, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            self.buffer.madvise(mmap.MADV_DONTNEED)

    def give_back(self) -> None:
        """Release the pages of a mapped file; deprecated alias of :meth:`release_pages`."""
        warn_deprecated(
            "StoredFile.give_back()",
            instead="StoredFile.release_pages()",
            since="0.2",
            removed_in="1.0",
        )
        self.release_pages()

    def close(self) -> None:
        """Close a file that is read by range. A map stays until nothing refers to it: another thread may still read."""
        if self.ranges is not None:
            self.ranges.resource.close()


class _CheckedRanges(PositionalFile):
    """Reads by range, and checks each block on its first read, which fetches the whole block."""

    checks: BlockChecks

    name = property(attrgetter("checks.name"))

    def read_at(self, offset: int, size: int) -> bytes:
        return (
            super().read_at(offset, size)
            if self.checks.is_done
            else self.read_ranges([(offset, size)])[0]
        )

    def readinto_at(self, offset: int, buffer: Any, /) -> int:
        if self.checks.is_done:
            return super().readinto_at(offset, buffer)
        view = memoryview(buffer).cast("B")
        data = self.read_at(offset, len(view))
        view[: len(data)] = data
        return len(data)

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        checks = self.checks
        if checks.is_done:
            return super().read_ranges(ranges)
        widened = [checks.widen(offset, size) for offset, size in ranges]
        pieces = super().read_ranges(
            [span if wide is None else wide for span, wide in zip(ranges, widened, strict=True)]
        )
        for index, (wide, (offset, size)) in enumerate(zip(widened, ranges, strict=True)):
            if wide is not None:
                data = memoryview(pieces[index])
                for position in range(0, min(wide[1], checks.size - wide[0]), BLOCK_BYTES):
                    checks.check_block(
                        (wide[0] + position) >> _SHIFT, data[position : position + BLOCK_BYTES]
                    )
                pieces[index] = pieces[index][offset - wide[0] : offset - wide[0] + size]
        return pieces


def check_size(name: str, size: int, record: FileRecord) -> None:
    """Check that a file is not shorter than in the manifest.

    Raises:
        DatasetFileCorruptError: it is shorter.
    """
    if size < record.size:
        raise DatasetFileCorruptError(
            f"{name} is cut short: {size:,} of {record.size:,} bytes. Restore it from a copy"
        )
