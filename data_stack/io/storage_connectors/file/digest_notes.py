"""Notes on the digests of files, which are valid as long as a file is untouched.

The note on the published file ``a/b.gz`` is the file ``a/b.gz~`` below a folder of notes. It holds
size, digest, inode and times of ``a/b.gz``. Before ``a/b.gz`` is replaced, its note is removed; the
note on the new file is written afterwards. If a note is lost, the file is read and hashed again.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import Any

from data_stack.io.checked_json import read_checked_json, to_checked_json
from data_stack.io.integrity import Digest
from data_stack.io.storage_connectors.file.publishing import replace_file
from data_stack.io.storage_connectors.storable import COPY_BYTES


@dataclass(frozen=True, slots=True)
class DigestNote:
    """A note on the digest that a file had.

    Attributes:
        size: the length of the file in bytes.
        sha256: the SHA-256 of its bytes, 64 hex digits.
        state: the :func:`state_of` the file when it had this digest. It is empty once verification
            has found other bytes in the file, so that the note is valid for no file.
    """

    size: int
    sha256: str
    state: tuple[float, ...] = ()

    def is_valid_for(self, status: os.stat_result) -> bool:
        """Return whether a file with this status is untouched since it had this digest."""
        return self.state == state_of(status)

    def to_bytes(self) -> bytes:
        """Return the content of the file of this note."""
        record: dict[str, Any] = {"size": self.size, "sha256": self.sha256, "facts": self.state}
        return to_checked_json(record)


class DigestNotes:
    """The notes on the files of one store.

    Args:
        folder: the folder of the notes.
    """

    _folder: str

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def read(self, identifier: str) -> DigestNote | None:
        """Return the last note on a resource.

        Returns:
            None if the note is missing, damaged or of an earlier format.
        """
        record = read_checked_json(self.path_of(identifier))
        try:
            return DigestNote(record["size"], record["sha256"], tuple(record["facts"]))
        except (KeyError, TypeError):
            return None

    def write(self, identifier: str, note: DigestNote, modified_ns: int | None = None) -> None:
        """Write the note on a resource. Errors of the disk are ignored.

        Args:
            identifier: the resource.
            note: the note.
            modified_ns: the modification time of the note, in nanoseconds; None: now.
        """
        with contextlib.suppress(OSError):
            replace_file(self.path_of(identifier), note.to_bytes(), modified_ns)

    def remove(self, identifier: str) -> None:
        """Remove the note on a resource if there is one.

        Raises:
            OSError: the note cannot be removed.
        """
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(self.path_of(identifier))

    def path_of(self, identifier: str) -> str:
        """Return the path of the note on a resource."""
        # No identifier ends with "~": the note on "a" is the file "a~", beside the folder "a" of
        # the note on "a/b".
        return os.path.join(self._folder, identifier + "~")


def digest_of(handle: int) -> Digest:
    """Read an open file whole, and return its size and digests."""
    digest = Digest()
    while chunk := os.pread(handle, COPY_BYTES, digest.size):
        digest.update(chunk)
    return digest


def state_of(status: os.stat_result) -> tuple[int, ...]:
    """Return what changes whenever a file is touched: size, inode, and both times in ns."""
    # The change time (ctime) cannot be set back, as the modification time can.
    return status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns
