"""What a file store noted of its files when it published them: size and digests, and the facts by which the file is known again.

The note on ``a/b.gz`` is the file ``a/b.gz~`` below the folder of notes: a line of JSON, the digests of the blocks, and a digest
of both. It is removed before a file gets its name, and written after while the writer still has the file open: a writer that is
killed in between leaves a file without one, and no later file can have the inode that it states. A file that has the inode,
size and times of its note is trusted. One that has the inode only was changed in place, and is held against the digests. Of any
other one nothing is known. Losing a note costs a reading, never an answer.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
from dataclasses import dataclass
from typing import Final

from data_stack.io.integrity import BLOCK_BYTES, DIGEST_BYTES, Digest, block_digest
from data_stack.io.storage_connectors.owners import this_process
from data_stack.io.storage_connectors.partials import TEMPORARY

__all__ = ["DigestNotes", "FileVersion"]

_FORMAT: Final = 2


@dataclass(frozen=True, slots=True)
class FileVersion:
    """One version of a file.

    Attributes:
        size: length in bytes.
        sha256: 64 hex digits.
        blocks: the digests of its blocks, 8 bytes each.
        facts: size, inode and times of the file that it was taken of.
    """

    size: int
    sha256: str
    blocks: bytes
    facts: tuple[int, ...] = ()

    @classmethod
    def of(cls, digest: Digest) -> FileVersion:
        """The version of bytes that have this digest."""
        return cls(digest.size, digest.sha256, digest.blocks)

    def is_of(self, status: os.stat_result) -> bool:
        """Whether this is the version of a file of this status: nothing touched it since."""
        return self.facts == _facts(status)

    def was_of(self, status: os.stat_result) -> bool:
        """Whether this is what a file of this status was published as; it may have been changed in place since."""
        return self.facts[1:2] == (status.st_ino,)


class DigestNotes:
    """The notes on the files of one store.

    Args:
        folder: where they are kept.
    """

    def __init__(self, folder: str) -> None:
        self._root = folder

    def read(self, identifier: str) -> FileVersion | None:
        """What was noted last of a resource; None if there is no note, or a damaged one, or one of an earlier format."""
        try:
            with open(self._path(identifier), "rb") as file:
                data = file.read()
        except OSError:
            return None
        content, digest = data[:-DIGEST_BYTES], data[-DIGEST_BYTES:]
        if block_digest(content) != digest:
            return None
        line, _, blocks = content.partition(b"\n")
        with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
            record = json.loads(line)
            version = FileVersion(record["size"], record["sha256"], blocks, tuple(record["facts"]))
            if record["format"] == _FORMAT and len(blocks) == -(-version.size // BLOCK_BYTES) * DIGEST_BYTES:
                return version
        return None

    def write(self, identifier: str, version: FileVersion, status: os.stat_result, *, is_trusted: bool = True) -> None:
        """Note the version of a published file of this status; ``is_trusted=False``: which it was found not to have any more."""
        path = self._path(identifier)
        temporary = os.path.join(os.path.dirname(path), f"{TEMPORARY}{this_process()}-{secrets.token_hex(4)}")
        facts = _facts(status) if is_trusted else (*_facts(status)[:-1], -1)
        record = {"format": _FORMAT, "size": version.size, "sha256": version.sha256, "facts": facts}
        content = json.dumps(record).encode("ascii") + b"\n" + version.blocks
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(temporary, "wb") as file:
                file.write(content + block_digest(content))
            if os.path.isdir(path):
                shutil.rmtree(path)  # the notes of an earlier format
            os.replace(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)

    def remove(self, identifier: str) -> None:
        """Remove the note on a resource.

        Raises:
            OSError: that was not possible.
        """
        path = self._path(identifier)
        try:
            os.unlink(path)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError:
            if not os.path.isdir(path):
                raise
            shutil.rmtree(path)

    def identifier_of(self, path: str) -> str | None:
        """The resource that a note is on, by its path; None if it is no note."""
        name = os.path.relpath(path, self._root)
        return name[:-1] if name.endswith("~") else None

    def _path(self, identifier: str) -> str:
        # No identifier ends with "~", so the note on "a" never meets the folder of that on "a/b".
        return os.path.join(self._root, identifier + "~")


def _facts(status: os.stat_result) -> tuple[int, ...]:
    # ctime cannot be set back, as mtime can.
    return status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns
