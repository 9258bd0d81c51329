"""The bytes of one file of a record dataset: mapped, in memory or read by range, and each block checked before its first use."""

from __future__ import annotations

import io
import itertools
import mmap
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.records.manifest import MANIFEST, FileRecord
from data_stack.io.folder import Folder
from data_stack.io.integrity import BLOCK_BYTES, DIGEST_BYTES, block_digest, digest_of_block
from data_stack.io.positional import PositionalFile
from data_stack.io.resources import StreamedResource

if sys.platform != "win32":
    import resource

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined]  # typeshed: Python 3.12

_SHIFT = BLOCK_BYTES.bit_length() - 1
#: What lies this close is fetched together: a request costs about as much as this many bytes.
_GAP_BYTES = 1 << 14
_MOST_OPEN_FILES = 4096

_Integers = npt.NDArray[np.int64]


def block_damage(file: str, block: int) -> DatasetFileCorruptError:
    """What to raise for a block that differs from its checksum."""
    return DatasetFileCorruptError(
        f"{file} is damaged: the block of {BLOCK_BYTES:,} bytes from byte {block * BLOCK_BYTES:,} on differs from its checksum "
        f"in {MANIFEST}. Restore the file from a copy, or write the dataset again; verify() looks at all of it"
    )


class BlockChecks:
    """Which blocks of a file are known to be right. There is no lock: what two threads check at once is merely checked twice.

    Args:
        name: of the file.
        size: of the file.
        digests: of its blocks, 8 bytes each; None to check nothing.
        covered: how many bytes these are of; None for all. What lies behind is not checked.

    Attributes:
        is_done: whether every block is known to be right, or none is to be looked at.
    """

    def __init__(self, name: str, size: int, digests: bytes | None, covered: int | None = None) -> None:
        self.name, self.size, self._digests = name, size, digests
        self._covered = size if covered is None else covered
        self._checked = bytearray(0 if digests is None else len(digests) // DIGEST_BYTES)
        self.is_done = not self._checked

    def check(self, data: memoryview, starts: _Integers, ends: _Integers) -> None:
        """Check the blocks of some ranges of ``data``, the whole file, that have not been checked yet.

        Raises:
            DatasetFileCorruptError: one is not what was stored.
        """
        for start, end in zip(starts.tolist(), np.minimum(ends, self._covered).tolist(), strict=True):
            for block in range(start >> _SHIFT, ((end - 1) >> _SHIFT) + 1 if end > start else 0):
                if not self._checked[block]:
                    self.check_block(block, data[block << _SHIFT : (block + 1) << _SHIFT])

    def check_block(self, block: int, content: memoryview) -> None:
        """Hold the content of a block, or of one that begins behind all checksums, against its checksum."""
        if block >= len(self._checked):
            return
        content = content[: self._covered - (block << _SHIFT)]
        if self._digests is not None and block_digest(content) != digest_of_block(self._digests, block):
            raise block_damage(self.name, block)
        self._checked[block] = 1
        if 0 not in self._checked:
            self.is_done = True

    def widen(self, offset: int, size: int) -> tuple[int, int] | None:
        """The whole blocks of a range, if one of them is unchecked."""
        size = min(size, self.size - offset)
        first, last = offset >> _SHIFT, (offset + size - 1) >> _SHIFT
        if self.is_done or size <= 0 or 0 not in self._checked[first : last + 1]:
            return None
        return first << _SHIFT, min((last + 1) << _SHIFT, self.size) - (first << _SHIFT)


class StoredFile:
    """One file.

    Any number of threads may use it, and so may a forked child: nothing has a position.

    Args:
        folder: where it lies.
        file: its name there.
        record: what the manifest says of it; None where there is no manifest.
        mapped: whether to map it into memory where the operating system can.
        whole: whether what lies behind the bytes that the manifest covers belongs to the dataset, too.
        load_bytes: up to which size it is read into memory where it is not mapped.
        checks: what was found of it when it was open before.

    Attributes:
        name: in full, for messages.
        size: number of bytes that belong to the dataset.
        n_behind: number of bytes behind these.
        buffer: the former, mapped or in memory, to be sliced; None if they are read by range. **They may not have been checked.**
        checks: which of them were.
        ranges: reads and checks ranges of the file; None where there is a buffer.

    Raises:
        ResourceNotFoundError: there is no such file.
        DatasetFileCorruptError: it is shorter than it was when the dataset was finished, or another one.
    """

    def __init__(
        self,
        folder: Folder,
        file: str,
        record: FileRecord | None,
        *,
        mapped: bool = True,
        whole: bool = False,
        load_bytes: int = 0,
        checks: BlockChecks | None = None,
    ) -> None:
        self.name = folder.full_name(file)
        ranges = _CheckedRanges(folder.open(file))
        resource = ranges.resource
        size = resource.size
        if record is not None:
            check_size(self.name, size, record)
            if size == record.size and resource.sha256 not in (None, record.sha256):
                raise DatasetFileCorruptError(
                    f"{self.name} is another file than the one that {MANIFEST} describes: its SHA-256 is {resource.sha256}, not "
                    f"{record.sha256}. Write the dataset again"
                )
        self.size = size if record is None or whole else record.size
        self.n_behind = size - self.size
        self.buffer: mmap.mmap | bytes | None = b"" if self.size == 0 else None
        if self.buffer is None and mapped:
            self.buffer = _map(resource, self.size)
        # A store that checks each read has checked what is not mapped.
        is_checked = record is not None and (self.buffer is not None or not folder.checks_reads)
        if checks is None:
            covering = record if is_checked else None
            checks = BlockChecks(self.name, self.size, *((covering.blocks, covering.size) if covering is not None else (None,)))
        self.checks = checks
        ranges.checks = self.checks
        if self.buffer is None and self.size <= load_bytes:
            self.buffer = ranges.read_exactly_at(0, self.size)
        self.ranges = ranges if self.buffer is None else None
        self._view = memoryview(b"" if self.buffer is None else self.buffer)
        if self.ranges is None:
            resource.close()

    def check(self, starts: _Integers, ends: _Integers) -> None:
        """Check the blocks of ranges of ``buffer`` that have not been checked yet.

        Raises:
            DatasetFileCorruptError: one is not what was stored.
        """
        if not self.checks.is_done:
            self.checks.check(self._view, starts, ends)

    def read(self, start: int, end: int) -> bytes:
        """A range within the file.

        Raises:
            DatasetFileCorruptError: a block in it is not what was stored.
        """
        if self.ranges is not None:
            return self.ranges.read_exactly_at(start, end - start)
        self.check(np.array([start]), np.array([end]))
        return self._view[start:end].tobytes()

    def read_many(self, starts: _Integers, ends: _Integers) -> list[bytes]:
        """Ranges within the file, those that are close to each other in one piece where it is read by range.

        Raises:
            DatasetFileCorruptError: as for :meth:`read`.
        """
        if self.ranges is None:
            self.check(starts, ends)
            buffer: Any = self.buffer
            return [buffer[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        if not len(starts):
            return []
        order = np.argsort(starts, kind="stable")
        firsts, lasts = starts[order], np.maximum.accumulate(ends[order])
        breaks = np.flatnonzero(firsts[1:] > lasts[:-1] + _GAP_BYTES) + 1
        runs = list(itertools.pairwise([0, *breaks.tolist(), len(order)]))
        spans = [(int(firsts[first]), int(lasts[stop - 1])) for first, stop in runs]
        pieces = self.ranges.read_ranges([(start, end - start) for start, end in spans])
        found = [b""] * len(order)
        for (start, end), piece, (first, stop) in zip(spans, pieces, runs, strict=True):
            if len(piece) != end - start:
                raise DatasetFileCorruptError(f"{self.name} is cut short: it ends within the bytes {start:,} to {end:,}")
            for index in order[first:stop].tolist():
                found[index] = piece[int(starts[index]) - start : int(ends[index]) - start]
        return found

    def close(self) -> None:
        """Let go of the file."""
        if self.ranges is not None:
            self.ranges.resource.close()
        self.buffer, self._view = b"", memoryview(b"")


class _CheckedRanges(PositionalFile):
    """Reads by range, and checks the blocks that have not been checked yet: it reads these whole, once."""

    checks: BlockChecks

    @property
    def name(self) -> str:
        return self.checks.name

    def read_at(self, offset: int, size: int) -> bytes:
        return super().read_at(offset, size) if self.checks.is_done else self.read_ranges([(offset, size)])[0]

    def readinto_at(self, offset: int, buffer: Buffer, /) -> int:
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
        pieces = super().read_ranges([span if wide is None else wide for span, wide in zip(ranges, widened, strict=True)])
        for index, (wide, (offset, size)) in enumerate(zip(widened, ranges, strict=True)):
            if wide is not None:
                data = memoryview(pieces[index])
                for position in range(0, wide[1], BLOCK_BYTES):
                    checks.check_block((wide[0] + position) >> _SHIFT, data[position : position + BLOCK_BYTES])
                pieces[index] = pieces[index][offset - wide[0] : offset - wide[0] + size]
        return pieces


def check_size(name: str, size: int, record: FileRecord) -> None:
    """Refuse a file that is shorter than it was.

    Raises:
        DatasetFileCorruptError: it is.
    """
    if size < record.size:
        raise DatasetFileCorruptError(
            f"{name} is cut short: it has {size:,} bytes, and had {record.size:,} when the dataset was finished. Restore it from "
            f"a copy, or write the dataset again"
        )


def _map(resource: StreamedResource, size: int) -> mmap.mmap | None:
    """The file in memory, as far as the operating system gives it; None where it is no file of this machine."""
    try:
        handle = resource.fileno()
        # A third party's resource may be what it reads out of a file, such as a compressed one.
        return mmap.mmap(handle, size, access=mmap.ACCESS_READ) if os.fstat(handle).st_size == resource.size else None
    except (AttributeError, io.UnsupportedOperation, OSError, ValueError):
        return None


def most_open_files() -> int:
    """How many files may be open at a time: a third of the descriptors of this process."""
    if sys.platform == "win32":
        return _MOST_OPEN_FILES
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_OPEN_FILES if soft == resource.RLIM_INFINITY else max(8, min(_MOST_OPEN_FILES, soft // 3))
