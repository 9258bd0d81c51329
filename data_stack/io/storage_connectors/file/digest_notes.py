"""Notes on the digests of files, which hold while a file is untouched.

The note on the published file ``a/b.gz`` is the file ``a/b.gz~`` below a folder of notes. It holds
size, digest, inode and times of the file. It is removed before a file is renamed to its name, and
written afterwards. A lost note costs another reading of the file.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import asdict, dataclass

from data_stack.io.checked_json import read_checked_json, to_checked_json
from data_stack.io.integrity import Digest
from data_stack.io.storage_connectors.file.publishing import replace_file
from data_stack.io.storage_connectors.storable import COPY_BYTES


@dataclass(frozen=True, slots=True)
class FileVersion:
    """One version of a file.

    Attributes:
        size: the length in bytes.
        sha256: the SHA-256 of the bytes, 64 hex digits.
        facts: :func:`facts_of` the file. They are empty once verification found other bytes in it,
            so that this version describes no file.
    """

    size: int
    sha256: str
    facts: tuple[float, ...] = ()

    def is_of(self, status: os.stat_result) -> bool:
        """Return whether a file with this status was not touched since it had this version."""
        return self.facts == facts_of(status)


class DigestNotes:
    """The notes on the files of one store.

    Args:
        folder: the folder of the notes.
    """

    _folder: str

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def read(self, identifier: str) -> FileVersion | None:
        """Return the last note on a resource.

        Returns:
            None if the note is missing, damaged or of an earlier format.
        """
        record = read_checked_json(self.path_of(identifier))
        try:
            return FileVersion(record["size"], record["sha256"], tuple(record["facts"]))
        except (KeyError, TypeError):
            return None

    def write(self, identifier: str, version: FileVersion, modified_ns: int | None = None) -> None:
        """Note the version of a published file. Errors of the disk are ignored.

        Args:
            identifier: the resource.
            version: the version of its file.
            modified_ns: the modification time of the note, in nanoseconds; None: now.
        """
        with contextlib.suppress(OSError):
            replace_file(self.path_of(identifier), to_checked_json(asdict(version)), modified_ns)

    def remove(self, identifier: str) -> None:
        """Remove the note on a resource if there is one.

        Raises:
            OSError: the note cannot be removed.
        """
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(self.path_of(identifier))

    def path_of(self, identifier: str) -> str:
        """Return the path of the note on a resource."""
        # No identifier ends with "~", so the note on "a" never meets the folder of that on "a/b".
        return os.path.join(self._folder, identifier + "~")


def digest_of(handle: int) -> Digest:
    """Read an open file whole, and return its size and digests."""
    digest = Digest()
    while chunk := os.pread(handle, COPY_BYTES, digest.size):
        digest.update(chunk)
    return digest


def facts_of(status: os.stat_result) -> tuple[int, ...]:
    """Return what changes whenever a file is touched: size, inode and both times."""
    # The change time (ctime) cannot be set back, as the modification time can.
    return status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns
