"""The bytes of one file of a record dataset."""

from __future__ import annotations

import mmap
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.records.block_checks import BlockChecks
from data_stack.formats.records.checked_ranges import CheckedRanges
from data_stack.formats.records.manifest import MANIFEST, FileRecord
from data_stack.formats.stored_rows import read_together
from data_stack.io.folder import Folder
from data_stack.io.local_files import map_file
from data_stack.io.resources import StreamedResource
from data_stack.io.versions import version_of
from data_stack.util.program_lines import warn_deprecated

_Integers = npt.NDArray[np.int64]


class StoredFile:
    """A file that is mapped into memory, read into memory, or read by range.

    Each block is checked before its first use.
    Threads and forked children may share it: it has no position.

    Args:
        folder: the folder of the dataset.
        file: the name of the file.
        record: what the manifest says of the file; None without a manifest.
        is_longer: whether bytes that were appended to those of the record belong to the dataset,
            too. They are not checked.
        mapped: map the file into memory if possible.
        load_bytes: a file up to this size is read into memory if it is not mapped.
        checks: the checks of the file from when it was open before.

    Attributes:
        name: the full name, for messages.
        size: the number of bytes that belong to the dataset.
        version: the version of the file, see :func:`~data_stack.io.versions.version_of`.
        buffer: the bytes of the dataset, mapped or in memory; None if they are read by range.
            **They may be unchecked.**
        checks: which blocks are checked.
        ranges: reads and checks ranges of the file; None if there is a buffer.
        prefetches: whether the file is of a remote store, also if its cache has all bytes on the
            local disk.

    Raises:
        ResourceNotFoundError: the file does not exist.
        DatasetFileCorruptError: the file is shorter than in the manifest, or another file.
    """

    buffer: mmap.mmap | bytes | None
    ranges: CheckedRanges | None
    prefetches: bool

    #: The buffer as a memoryview, of which parts are taken without a copy.
    _view: memoryview

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
        ranges = CheckedRanges(folder.open(file))
        resource = ranges.resource
        self.version = version_of(resource)
        self.prefetches = resource.prefetches
        self.size = resource.size
        if record is not None:
            self._check_record(record, resource)
            if not is_longer:
                self.size = record.size

        self.buffer = None
        if self.size == 0:
            self.buffer = b""
        elif mapped:
            self.buffer = map_file(resource, self.size)

        if checks is None:
            # A store that checks each read has checked what is not mapped.
            needs_checks = self.buffer is not None or not folder.checks_reads
            checks = self._new_checks(record, needs_checks=needs_checks)
        self.checks = checks
        ranges.checks = checks

        if self.buffer is None and self.size <= load_bytes:
            self.buffer = ranges.read_exactly_at(0, self.size)
        if self.buffer is None:
            self.ranges = ranges
            self._view = memoryview(b"")
        else:
            self.ranges = None
            self._view = memoryview(self.buffer)
            resource.close()

    def _check_record(self, record: FileRecord, resource: StreamedResource) -> None:
        """Check that a file may be the one of which the manifest has a record.

        Raises:
            DatasetFileCorruptError: the file is shorter, or its digest shows that it is another.
        """
        record.check_size(self.name, resource.size)
        has_same_size = resource.size == record.size
        if has_same_size and resource.sha256 not in (None, record.sha256):
            raise DatasetFileCorruptError(
                f"{self.name} is not the file that {MANIFEST} describes: its SHA-256 differs"
            )

    def _new_checks(self, record: FileRecord | None, *, needs_checks: bool) -> BlockChecks:
        """Return the checks of a file that was not open before."""
        if record is None:
            return BlockChecks(self.name, self.size, None)
        return BlockChecks(self.name, record.size, record.blocks if needs_checks else None)

    def check(self, starts: _Integers, ends: _Integers) -> None:
        """Check the unchecked blocks of ranges of ``buffer``.

        Raises:
            DatasetFileCorruptError: a block is damaged.
        """
        if not self.checks.is_done:
            self.checks.check(self._view, starts, ends)

    def check_range(self, start: int, end: int) -> None:
        """Check the unchecked blocks of one range of ``buffer``, as :meth:`check` does."""
        if not self.checks.is_done:
            self.checks.check_range(self._view, start, end)

    def read(self, start: int, end: int) -> bytes:
        """Read a range of the file.

        Raises:
            DatasetFileCorruptError: a block in it is damaged.
        """
        return self.read_many(np.array([start]), np.array([end]))[0]

    def read_many(self, starts: _Integers, ends: _Integers) -> list[bytes]:
        """Read ranges of the file.

        Without a buffer, ranges close to each other are fetched together.

        Args:
            starts: the first byte of each range, shape ``(n,)``.
            ends: the end of each range, exclusive, shape ``(n,)``.

        Raises:
            DatasetFileCorruptError: a block in a range is damaged.
        """
        if self.ranges is not None:
            return read_together(self.ranges, starts, ends)
        self.check(starts, ends)
        buffer = cast("Any", self.buffer)
        bounds = zip(starts.tolist(), ends.tolist(), strict=True)
        return [buffer[start:end] for start, end in bounds]

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
        """Close a file that is read by range.

        A map stays until nothing refers to it: another thread may still read.
        """
        if self.ranges is not None:
            self.ranges.resource.close()
