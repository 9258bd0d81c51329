"""An open file, read by position, whose digest a note knows.

The note on the published file ``a/b.gz`` is the file ``a/b.gz~`` below a folder of notes: size, digest, inode and times. It is
removed before a file is renamed to its name, and written afterwards. The digest of a file is known while inode, size and times
match its note. A lost note costs another reading.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from dataclasses import asdict, dataclass

from data_stack.io.checked_json import read_checked_json, to_checked_json
from data_stack.io.integrity import Digest
from data_stack.io.resources import ByteSource
from data_stack.io.storage_connectors.owners import this_process
from data_stack.io.storage_connectors.writer import COPY_BYTES, TEMPORARY, Explain
from data_stack.util.group_rights import make_folders, share_with_group


@dataclass(frozen=True, slots=True)
class FileVersion:
    """One version of a file.

    Attributes:
        size: length in bytes.
        sha256: 64 hex digits.
        facts: size, inode and times of the file; empty after verification found another content.
    """

    size: int
    sha256: str
    facts: tuple[float, ...] = ()

    def is_of(self, status: os.stat_result) -> bool:
        """Whether a file of this status is untouched since."""
        return self.facts == facts_of(status)


class DigestNotes:
    """The notes on the files of one store.

    Args:
        folder: folder of the notes.
    """

    def __init__(self, folder: str) -> None:
        self._root = folder

    def read(self, identifier: str) -> FileVersion | None:
        """The last note on a resource; None if it is missing, damaged, or of an earlier format."""
        record = read_checked_json(self.path_of(identifier))
        try:
            return FileVersion(record["size"], record["sha256"], tuple(record["facts"]))
        except (KeyError, TypeError):
            return None

    def write(self, identifier: str, version: FileVersion, modified_ns: int | None = None) -> None:
        """Note the version of a published file, perhaps with a modification time; errors of the disk are ignored."""
        with contextlib.suppress(OSError):
            replace_file(self.path_of(identifier), to_checked_json(asdict(version)), modified_ns)

    def remove(self, identifier: str) -> None:
        """Remove the note on a resource.

        Raises:
            OSError: that was not possible.
        """
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(self.path_of(identifier))

    def path_of(self, identifier: str) -> str:
        """The path of the note on a resource."""
        # No identifier ends with "~", so the note on "a" never meets the folder of that on "a/b".
        return os.path.join(self._root, identifier + "~")


def digest_of(handle: int) -> Digest:
    """Size and digests of an open file, which is read whole."""
    digest = Digest()
    while chunk := os.pread(handle, COPY_BYTES, digest.size):
        digest.update(chunk)
    return digest


def facts_of(status: os.stat_result) -> tuple[int, ...]:
    """Size, inode and times of a file, to detect changes."""
    # ctime cannot be set back, as mtime can.
    return status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns


def replace_file(path: str, data: bytes, modified_ns: int | None = None) -> None:
    """Write a small file atomically, without syncing it; its folder is made if it is missing.

    Raises:
        OSError: that was not possible.
    """
    temporary = os.path.join(
        os.path.dirname(path), f"{TEMPORARY}{this_process()}-{secrets.token_hex(4)}"
    )
    make_folders(os.path.dirname(path))
    try:
        with open(temporary, "xb") as file:
            share_with_group(file.fileno(), os.path.dirname(path))
            file.write(data)
        if modified_ns is not None:
            os.utime(temporary, ns=(time.time_ns(), modified_ns))
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


class OpenedFile(ByteSource):
    """A file that is open for reading. A fork may inherit it, as positional reads share no state.

    Args:
        handle: its descriptor, which is closed with the source.
        explain: returns our error for one of the operating system.
        noted: the last note on the resource, perhaps of another file.

    Attributes:
        handle: its descriptor.
        status: its status when it was opened.
        noted: the last note on the resource.
        version: the noted version of this file; None if the file was touched since.
    """

    size = 0
    sha256: str | None = None

    def __init__(self, handle: int, explain: Explain, noted: FileVersion | None = None) -> None:
        self.handle, self.noted, self._explain = handle, noted, explain
        self.status = os.fstat(handle)
        self.size = self.status.st_size
        self.version = noted if noted is not None and noted.is_of(self.status) else None
        self.sha256 = None if self.version is None else self.version.sha256

    def readinto_at(self, offset: int, buffer: memoryview) -> int:
        try:
            n_read = 0
            while n_read < len(buffer) and (
                more := os.preadv(self.handle, [buffer[n_read:]], offset + n_read)
            ):
                n_read += more
            return n_read
        except OSError as error:
            raise self._explain(error) from error

    def fileno(self) -> int:
        return self.handle

    def close(self) -> None:
        handle, self.handle = self.handle, -1
        if handle >= 0:
            os.close(handle)
