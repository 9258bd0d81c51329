"""Files that grow while a dataset is written: local ones, and those of a store."""

from __future__ import annotations

import functools
import os
from typing import IO, TYPE_CHECKING, Any

from data_stack.exception import DatasetFileCorruptError
from data_stack.formats.records.manifest import FileRecord
from data_stack.io.integrity import Digest
from data_stack.io.storage_errors import storage_errors

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined]  # typeshed: Python 3.12

_READ_BYTES = 1 << 20
_REMEDY = "Fix the cause, then open the dataset again: the writer resumes after the samples that were flushed"

disk_errors = functools.partial(storage_errors, if_full=_REMEDY, otherwise=_REMEDY)


class UploadedFile:
    """A file in a store, which publishes it as a whole."""

    def __init__(self, file: IO[bytes] | Any) -> None:
        self.file, self._digest = file, Digest()

    def put(self, data: Buffer) -> None:
        """Write bytes at the end."""
        data = bytes(data)  # which stores hash in the background
        self.file.write(data)
        self._digest.update(data)

    @property
    def size(self) -> int:
        """Number of bytes written."""
        return self._digest.size

    def record(self) -> FileRecord:
        """Size and digests."""
        return FileRecord.of(self._digest)


class GrowingFile:
    """A local file that is appended to.

    Attributes:
        path: path of the file.
        size: number of valid bytes.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        with disk_errors("open", path):
            self._handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
            self.size = os.fstat(self._handle).st_size
        self._digest: Digest | None = None

    def put(self, data: Buffer) -> None:
        """Append bytes, which must not change afterwards.

        Raises:
            StorageError: the disk is full or broken; the bytes are not part of the file.
        """
        view, n_done = memoryview(data).cast("B"), 0
        with disk_errors("write", self.path):
            while n_done < len(view):
                n_done += os.pwrite(self._handle, view[n_done:], self.size + n_done)
        if self._digest is not None:
            self._digest.update(view, is_fixed=True)
        self.size += len(view)

    def cut(self, size: int) -> None:
        """Truncate the file to ``size`` bytes; :meth:`record` hashes them when it is called."""
        self.size = size
        self._digest = None if size else Digest()
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
            raise DatasetFileCorruptError(f"{self.path!r} ends at byte {offset + len(data)}: the file was truncated")
        return data

    def sync(self) -> None:
        """Flush the file to disk."""
        with disk_errors("write", self.path):
            os.fsync(self._handle)

    def record(self, earlier: FileRecord | None = None) -> FileRecord:
        """Size and digests of the valid bytes; ``earlier`` is the manifest's record of the first bytes.

        Raises:
            DatasetFileCorruptError: the first bytes differ from ``earlier``.
        """
        if self._digest is None:
            digest, n_earlier = Digest(), 0 if earlier is None else earlier.size
            for start, stop in ((0, n_earlier), (n_earlier, self.size)):
                for offset in range(start, stop, _READ_BYTES):
                    digest.update(self.read(offset, min(_READ_BYTES, stop - offset)))
                if start == 0 and earlier is not None and digest.sha256 != earlier.sha256:
                    raise DatasetFileCorruptError(f"{self.path!r} is damaged: it does not match the digest in the manifest")
            self._digest = digest
        return FileRecord.of(self._digest)

    def close(self) -> None:
        """Close the file."""
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)


def make_folder(path: str) -> None:
    """Create a folder and its parents durably."""
    if not os.path.isdir(path):
        above = os.path.dirname(path)
        make_folder(above)
        with disk_errors("create the folder", path):
            os.makedirs(path, exist_ok=True)
        sync_folder(above)


def sync_folder(path: str) -> None:
    """Flush the entries of a folder to disk, after files in it were created, renamed or removed."""
    with disk_errors("write", path):
        handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
