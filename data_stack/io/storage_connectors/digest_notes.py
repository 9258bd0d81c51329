"""What a file store noted of its files when it published them: size and digest, and the facts by which the file is known again.

The note on ``a/b.gz`` is the file ``a/b.gz~`` below the folder of notes. It is removed before a file gets its name, and written
after. A file that has the inode, size and times of its note is trusted; of any other one no digest is known, until it was read.
Losing a note costs a reading, never an answer.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from dataclasses import asdict, dataclass

from data_stack.io.integrity import seal_json, unseal_json
from data_stack.io.storage_connectors.owners import this_process
from data_stack.io.storage_connectors.partials import TEMPORARY

__all__ = ["DigestNotes", "FileVersion", "facts_of"]


@dataclass(frozen=True, slots=True)
class FileVersion:
    """One version of a file.

    Attributes:
        size: length in bytes.
        sha256: 64 hex digits.
        facts: size, inode and times of the file that it was taken of; empty where it was found not to be that any more.
    """

    size: int
    sha256: str
    facts: tuple[int, ...] = ()

    def is_of(self, status: os.stat_result) -> bool:
        """Whether this is the version of a file of this status: nothing touched it since."""
        return self.facts == facts_of(status)


class DigestNotes:
    """The notes on the files of one store.

    Args:
        folder: where they are kept.
    """

    def __init__(self, folder: str) -> None:
        self._root = folder

    def read(self, identifier: str) -> FileVersion | None:
        """What was noted last of a resource; None if there is no note, or a damaged one, or one of an earlier format."""
        record = unseal_json(self._path(identifier))
        try:
            return FileVersion(record["size"], record["sha256"], tuple(record["facts"]))
        except (KeyError, TypeError):
            return None

    def write(self, identifier: str, version: FileVersion) -> None:
        """Note the version of a published file, if the disk lets us."""
        path = self._path(identifier)
        temporary = os.path.join(os.path.dirname(path), f"{TEMPORARY}{this_process()}-{secrets.token_hex(4)}")
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(temporary, "wb") as file:
                file.write(seal_json(asdict(version)))
            os.replace(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)

    def remove(self, identifier: str) -> None:
        """Remove the note on a resource.

        Raises:
            OSError: that was not possible.
        """
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(self._path(identifier))

    def _path(self, identifier: str) -> str:
        # No identifier ends with "~", so the note on "a" never meets the folder of that on "a/b".
        return os.path.join(self._root, identifier + "~")


def facts_of(status: os.stat_result) -> tuple[int, ...]:
    """By which a file is known to be the one that it was."""
    # ctime cannot be set back, as mtime can.
    return status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns
