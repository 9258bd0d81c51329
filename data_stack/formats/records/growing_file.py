"""A local file of records that is appended to."""

from __future__ import annotations

import ctypes
import functools
import os

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.records.manifest import FileRecord
from data_stack.io.integrity import Digest
from data_stack.io.storage_errors import storage_errors

#: What a user does after an error of the disk.
_REMEDY = (
    "Fix the cause, then open the dataset again: "
    "the writer resumes after the samples that were flushed"
)

#: A file is hashed in pieces of this size in bytes.
_READ_BYTES = 1 << 20

#: The disk begins to write pieces of this size in bytes while the next ones are made.
_EARLY_BYTES = 2 << 20

#: A function of Linux that begins to write to the disk; None elsewhere.
_sync_file_range = getattr(ctypes.CDLL(None), "sync_file_range", None)

#: The flag of this function that begins to write, and waits for nothing.
_SYNC_FILE_RANGE_WRITE = 2

#: A context that makes a StorageError of an error of the disk; the arguments are what was to be
#: done, such as ``"write"``, and the path.
disk_errors = functools.partial(storage_errors, if_full=_REMEDY, otherwise=_REMEDY)


class GrowingFile:
    """A local file that is appended to.

    Args:
        path: the path of the file, which is created if it does not exist.

    Attributes:
        path: the path of the file.
        size: the number of valid bytes. Bytes of a write that failed may follow them in the file.

    Raises:
        StorageError: the file cannot be opened.
    """

    #: The descriptor; -1 once the file is closed.
    _handle: int

    #: The digest of the valid bytes; None until :meth:`record` has read those of earlier writers.
    _digest: Digest | None

    #: The number of bytes, from the beginning, that the disk was told to write already.
    _n_early: int

    def __init__(self, path: str) -> None:
        self.path = path
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        with disk_errors("open", path):
            self._handle = os.open(path, flags, 0o666)
            self.size = os.fstat(self._handle).st_size
        self._digest = None
        self._n_early = self.size

    def put(self, data: bytes | memoryview) -> None:
        """Append bytes, which must not change until more are put or :meth:`record` is called.

        Raises:
            StorageError: the disk is full or broken; the bytes are not part of the file.
        """
        view = memoryview(data).cast("B")
        n_written = 0
        with disk_errors("write", self.path):
            while n_written < len(view):
                n_written += os.pwrite(self._handle, view[n_written:], self.size + n_written)
        if self._digest is not None:
            self._digest.update(view, is_fixed=True)
        self.size += len(view)
        if self.size - self._n_early >= _EARLY_BYTES:
            self._begin_writing_to_disk()

    def _begin_writing_to_disk(self) -> None:
        """Tell the disk to write what was put, so that :meth:`sync` has less to wait for.

        The call waits for nothing, and leaves errors of the disk to fsync.
        """
        if _sync_file_range is None:
            return
        start = ctypes.c_int64(self._n_early)
        n_bytes = ctypes.c_int64(self.size - self._n_early)
        _sync_file_range(self._handle, start, n_bytes, _SYNC_FILE_RANGE_WRITE)
        self._n_early = self.size

    def cut(self, size: int) -> None:
        """Truncate the file to ``size`` bytes, which :meth:`record` hashes when it is called.

        Raises:
            DatasetFileCorruptError: the file is shorter.
        """
        if self.size < size:
            raise self._cut_short(self.size)
        self.size = size
        self._n_early = size
        self._digest = Digest() if size == 0 else None
        self.trim()

    def trim(self) -> None:
        """Remove bytes after the valid ones."""
        with disk_errors("shorten", self.path):
            if os.fstat(self._handle).st_size > self.size:
                os.ftruncate(self._handle, self.size)

    def read(self, offset: int, size: int) -> bytes:
        """Read bytes of the file.

        Raises:
            DatasetFileCorruptError: the file is shorter.
        """
        with disk_errors("read", self.path):
            data = os.pread(self._handle, size, offset)
        if len(data) < size:
            raise self._cut_short(offset + len(data))
        return data

    def _cut_short(self, size: int) -> DatasetFileCorruptError:
        """Return the error to raise for a file that has only ``size`` bytes."""
        return DatasetFileCorruptError(f"{self.path!r} ends at byte {size}: the file was truncated")

    def sync(self) -> None:
        """Flush the file to disk."""
        with disk_errors("write", self.path):
            os.fsync(self._handle)

    def record(self, earlier: FileRecord | None = None) -> FileRecord:
        """Return the size and the digests of the valid bytes.

        Args:
            earlier: what a manifest says of the first bytes; None without one.

        Raises:
            DatasetFileCorruptError: the first bytes differ from ``earlier``.
        """
        if self._digest is None:
            self._digest = self._hash_valid_bytes(earlier)
        return FileRecord(self._digest.size, self._digest.sha256, self._digest.blocks)

    def _hash_valid_bytes(self, earlier: FileRecord | None) -> Digest:
        """Return the digest of the valid bytes; compare the first bytes with ``earlier``.

        Raises:
            DatasetFileCorruptError: the first bytes differ.
        """
        digest = Digest()
        if earlier is not None:
            self._hash_range(digest, 0, earlier.size)
            if digest.sha256 != earlier.sha256:
                raise DatasetFileCorruptError(
                    f"{self.path!r} is damaged: it does not match the digest in the manifest"
                )
        self._hash_range(digest, digest.size, self.size)
        return digest

    def _hash_range(self, digest: Digest, start: int, end: int) -> None:
        """Add the bytes of a range to a digest."""
        for offset in range(start, end, _READ_BYTES):
            digest.update(self.read(offset, min(_READ_BYTES, end - offset)))

    def __enter__(self) -> GrowingFile:
        return self

    def __exit__(self, *_: object) -> None:
        # Another file may get the number of a closed one.
        handle = self._handle
        self._handle = -1
        os.close(handle)
