"""A file of this machine that grows at its end, over what an interrupted writer left there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import numpy as np

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.records.manifest import FileRecord
from data_stack.io.integrity import (
    BLOCK_BYTES,
    DIGEST_BYTES,
    Digest,
    HashingThread,
    differing_blocks,
    digests_of_blocks,
)
from data_stack.io.storage_errors import storage_errors

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined]  # typeshed: Python 3.12

__all__ = ["BytesDifferError", "GrowingFile", "disk_errors", "sync_folder"]

_READ_BYTES = 1 << 20
#: After so many bytes the operating system is told to begin to bring them to the disk.
_WRITEBACK_BYTES = 4 << 20
_PAGE_BYTES = 1 << 16


class BytesDifferError(Exception):
    """What is to be written differs, from ``offset`` on, from what an interrupted writer left. Never leaves this package."""

    def __init__(self, path: str, offset: int) -> None:
        super().__init__(path, offset)
        self.path, self.offset = path, offset


class GrowingFile:
    """Bytes at the end of a file, each written once.

    :meth:`write` may fail half-way and be tried again; what it wrote counts once :meth:`advance` is called. Bytes that were there
    before must be the same.

    Attributes:
        path: of the file.
        size: bytes that count.
        found: bytes that were there when it was opened, or :meth:`cut` since; those from ``size`` on are held against what is
            written.
    """

    def __init__(self, path: str, hashing: HashingThread) -> None:
        self.path = path
        with disk_errors("open", path):
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
            self.size, self.found = 0, os.fstat(self._handle).st_size
        self._hashing = hashing
        self._digest: Digest | None = Digest(hashing)
        self._written: memoryview | None = None
        self._n_on_their_way = 0

    def begin_at(self, size: int) -> None:
        """Let the first ``size`` bytes count; they are hashed when a record of them is asked for."""
        self.size = self._n_on_their_way = size
        self._digest = Digest(self._hashing) if size == 0 else None

    @property
    def is_ahead(self) -> bool:
        """Whether there are bytes that have not been written again yet."""
        return self.found > self.size

    def write(self, data: Buffer) -> None:
        """Write bytes behind those that count; nobody may change them any more.

        Raises:
            BytesDifferError: other bytes are there.
            StorageError: the disk is full or broken; nothing counts that did not before.
        """
        view = memoryview(data).cast("B")
        self._written = view
        n_found = min(self.found - self.size, len(view))
        if n_found > 0:
            there = self.read(self.size, n_found)
            if there != view[:n_found]:
                pairs = np.frombuffer(there, np.uint8) != np.frombuffer(view[: len(there)], np.uint8)
                offset = self.size + (int(pairs.argmax()) if pairs.any() else len(there))
                if any(any(piece) for piece in self.pieces(offset, self.found)):
                    raise BytesDifferError(self.path, offset)
                # Nothing but zeros to its end: bytes that a power cut kept from arriving.
                self.found = offset
                n_found = offset - self.size
        n_done = max(0, n_found)
        with disk_errors("write", self.path):
            while n_done < len(view):
                n_done += os.pwrite(self._handle, view[n_done:], self.size + n_done)

    def advance(self) -> None:
        """What was written last counts."""
        if self._written is not None:
            if self._digest is not None:
                self._digest.update(self._written, is_fixed=True)
            self.size += len(self._written)
            self._written = None
            if self.size - self._n_on_their_way >= _WRITEBACK_BYTES:
                self._begin_writeback()

    def take_back(self) -> None:
        """What was written last does not count, and does not stay."""
        self._written = None
        with contextlib.suppress(OSError):
            os.ftruncate(self._handle, max(self.size, self.found))

    def cut(self) -> None:
        """Remove all that does not count."""
        with disk_errors("shorten", self.path):
            if os.fstat(self._handle).st_size > self.size:
                os.ftruncate(self._handle, self.size)
        self.found = min(self.found, self.size)

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of the file, fewer at its end."""
        with disk_errors("read", self.path):
            parts = [os.pread(self._handle, size, offset)]
            while parts[-1] and sum(map(len, parts)) < size:
                n_read = sum(map(len, parts))
                parts.append(os.pread(self._handle, size - n_read, offset + n_read))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def pieces(self, start: int, stop: int, piece_bytes: int = _READ_BYTES) -> Iterator[bytes]:
        """The bytes from ``start`` to ``stop``, a piece at a time.

        Raises:
            DatasetFileCorruptError: the file is shorter.
        """
        while start < stop:
            piece = self.read(start, min(piece_bytes, stop - start))
            if not piece:
                raise DatasetFileCorruptError(f"{self.path!r} ends at byte {start}, though it had {stop}: something cut it short")
            start += len(piece)
            yield piece

    def sync(self) -> None:
        """Have the operating system bring it to the disk."""
        with disk_errors("write", self.path):
            os.fsync(self._handle)

    def record(self, earlier: FileRecord | None) -> FileRecord:
        """The digests of what counts.

        Args:
            earlier: what a manifest said of its first bytes; held against them where they have to be read.

        Raises:
            DatasetFileCorruptError: they are not what they were.
        """
        if self._digest is None:
            digest = Digest(self._hashing)
            for piece in self.pieces(0, self.size):
                digest.update(piece)
            if earlier is not None:
                self._check(digest.blocks, earlier)
            self._digest = digest
        return FileRecord.of(self._digest)

    def _begin_writeback(self) -> None:
        """Let the disk work while the rest is hashed and written: :meth:`sync` has less to wait for.

        Pages that are not on the disk yet are what this advice has Linux write, without waiting; it forgets those that are, of
        which there are none yet among what was just written.
        """
        start, stop = (size // _PAGE_BYTES * _PAGE_BYTES for size in (self._n_on_their_way, self.size))
        self._n_on_their_way = stop
        if hasattr(os, "posix_fadvise"):  # not on macOS
            with contextlib.suppress(OSError):
                os.posix_fadvise(self._handle, start, stop - start, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """Give the file back."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)

    def _check(self, blocks: bytes, earlier: FileRecord) -> None:
        n_whole, n_rest = divmod(earlier.size, BLOCK_BYTES)
        rest = digests_of_blocks(self.read(n_whole * BLOCK_BYTES, n_rest))
        differs = differing_blocks(blocks[: n_whole * DIGEST_BYTES] + rest, earlier.blocks)
        if differs:
            raise DatasetFileCorruptError(
                f"{self.path!r} is damaged in the {BLOCK_BYTES} bytes from {differs[0] * BLOCK_BYTES} on: they differ from the "
                f"digest that the manifest has of them. Take the dataset from a copy, or write it anew; nothing was published"
            )


def sync_folder(path: str | os.PathLike[str]) -> None:
    """Make what was created, renamed or removed in a folder durable."""
    with disk_errors("write", os.fspath(path)):
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def disk_errors(action: str, path: str) -> AbstractContextManager[None]:
    """Errors of the operating system as ours."""
    goes_on = "it goes on behind its last complete sample"
    return storage_errors(
        action,
        path,
        if_full=f"Make room, then flush() again or open the dataset anew: {goes_on}",
        otherwise=f"Open the dataset anew when that is mended: {goes_on}",
    )
