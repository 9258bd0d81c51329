"""What a file store noted of its files when it wrote them: size and digests, and the times and inode they were taken of.

The note on a version of ``a/b.gz`` is ``a/b.gz~/INODE`` below the folder of notes. It is there before its file gets its name,
as ``a/b.gz~/.~OWNER-INODE``, and those on earlier versions go after that. So at any time, with any number of writers and
wherever one of them is killed, a file that a store published either has a note of its own, or there is none at all:
no file is ever held against the digests of another version.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from data_stack.io.storage_connectors.connector import BLOCK_BYTES
from data_stack.io.storage_connectors.owners import this_process

__all__ = ["TEMPORARY", "DigestRecords", "FileVersion"]

#: Names that begin so are unfinished: of files, and of notes on them.
TEMPORARY = ".~"


@dataclass(frozen=True, slots=True)
class FileVersion:
    """One version of a file.

    Attributes:
        size: length in bytes.
        sha256: 64 hex digits.
        blocks: CRC-32 of each block of 1 MiB.
    """

    size: int
    sha256: str
    blocks: tuple[int, ...]


class DigestRecords:
    """The notes on the files of one store.

    Losing one costs a reading, never an answer; so does one that cannot be written.

    Args:
        folder: where they are kept.
    """

    def __init__(self, folder: str) -> None:
        self._root = folder

    def found(self, identifier: str, status: os.stat_result) -> tuple[FileVersion | None, list[FileVersion]]:
        """What is known of a file of this status: its version, or those that it should be one of.

        Returns:
            The version, if nobody touched the file since its digests were taken. Else None, and the versions noted: that of
            this very file, or, where its inode is unknown (the store was copied, the file replaced by other means), all of them.
            None and no version: nothing is known.
        """
        folder, own = self._folder(identifier), str(status.st_ino)
        for look in range(3):  # once more if it was settled between two looks
            record = _read(os.path.join(folder, own))
            names = _names(folder)
            announced = [name for name in names if name.startswith(TEMPORARY) and name.endswith(f"-{own}")]
            if record is not None:
                version, taken_of = record
                if taken_of == _fingerprint(status):
                    return version, []
                # The inode may have been an earlier version's, and the note still be on that.
                others = [_read(os.path.join(folder, name)) for name in announced]
                return None, [version, *(other[0] for other in others if other is not None)]
            # A listing may miss both what was announced, and what it was replaced with meanwhile: the second look finds that.
            if own not in names and (announced or look):
                records = [_read(os.path.join(folder, name)) for name in announced or names]
                return None, [record[0] for record in records if record is not None]
        return None, []  # a damaged note

    def announce(self, identifier: str, status: os.stat_result, version: FileVersion) -> Announcement:
        """Note the version of a file before it gets its name.

        Raises:
            OSError: neither that, nor removing the notes on earlier versions, was possible.
        """
        folder = self._folder(identifier)
        earlier = _settled(folder)
        path: str | None = os.path.join(folder, f"{TEMPORARY}{this_process()}-{status.st_ino}")
        try:
            _make_folder(folder)
            _write(str(path), status, version, settled=False)
            # The inode is this file's now: what is noted of it is on an earlier one, which is gone.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, str(status.st_ino)))
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(str(path))
            # No room for a note: then there must be none, or an earlier one would be held against the new file.
            self.forget(identifier)
            path = None
        return Announcement(identifier, version, path, earlier)

    def settle(self, announcement: Announcement, status: os.stat_result) -> None:
        """The announced file has got its name, and this status with it."""
        folder, name = self._folder(announcement.identifier), str(status.st_ino)
        try:
            self._replace(folder, status, announcement.version)
        except OSError:
            if announcement.path is not None:
                with contextlib.suppress(OSError):
                    os.rename(announcement.path, os.path.join(folder, name))
        self.withdraw(announcement)
        # One whose inode another file has by now is that file's, and stays.
        now = dict(_settled(folder))
        _remove(folder, [each for each, note in announcement.earlier if each != name and now.get(each) == note])

    def withdraw(self, announcement: Announcement) -> None:
        """The announced file did not get its name, or lost it already."""
        if announcement.path is not None:
            with contextlib.suppress(OSError):
                os.unlink(announcement.path)

    def announce_found(self, identifier: str, version: FileVersion) -> Announcement:
        """For a file that has its name already, and was found to be this version."""
        earlier = _settled(self._folder(identifier))
        return Announcement(identifier, version, None, earlier)

    def distrust(self, identifier: str, status: os.stat_result, version: FileVersion) -> None:
        """Let a file that was found damaged be checked whenever it is read, though nobody seems to have touched it."""
        with contextlib.suppress(OSError):
            self._replace(self._folder(identifier), status, version, settled=False)

    def forget(self, identifier: str) -> None:
        """Remove what is noted of a resource; what writers have announced stays theirs.

        Raises:
            OSError: that was not possible.
        """
        folder = self._folder(identifier)
        for name in _names(folder):
            if name.isdigit():
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(folder, name))
        with contextlib.suppress(OSError):
            os.rmdir(folder)

    def adopt(self, path: str) -> None:
        """Keep what a writer announced that died after it gave the file its name; it is checked at the next reading."""
        folder, name = os.path.split(path)
        with contextlib.suppress(OSError):
            os.rename(path, os.path.join(folder, name.rpartition("-")[2]))

    def note_at(self, path: str) -> tuple[str, str] | None:
        """The resource and inode that a note is on, by its path; None if it is no note."""
        folder, name = os.path.split(os.path.relpath(path, self._root))
        inode = name.rpartition("-")[2]
        return (folder[:-1], inode) if folder.endswith("~") and inode.isdigit() else None

    def _replace(self, folder: str, status: os.stat_result, version: FileVersion, *, settled: bool = True) -> None:
        temporary = os.path.join(folder, f"{TEMPORARY}{this_process()}-x{secrets.token_hex(4)}")
        try:
            _make_folder(folder)
            _write(temporary, status, version, settled=settled)
            os.replace(temporary, os.path.join(folder, str(status.st_ino)))
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise

    def _folder(self, identifier: str) -> str:
        # No identifier ends with "~", so the notes on "a" never meet the folder of those on "a/b".
        return os.path.join(self._root, identifier + "~")


@dataclass(frozen=True, slots=True)
class Announcement:
    """A note on a file that is about to get its name.

    Attributes:
        identifier: the resource.
        version: what is noted.
        path: where; None if that was not possible or not needed.
        earlier: names of the notes on what was published before, and which files these notes are.
    """

    identifier: str
    version: FileVersion
    path: str | None
    earlier: tuple[tuple[str, tuple[int, int]], ...]


def _fingerprint(status: os.stat_result) -> list[int]:
    # ctime cannot be set back, as mtime can.
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def _write(path: str, status: os.stat_result, version: FileVersion, *, settled: bool) -> None:
    record = {
        "size": version.size,
        "mtime_ns": status.st_mtime_ns,
        "ctime_ns": status.st_ctime_ns if settled else None,
        "inode": status.st_ino,
        "sha256": version.sha256,
        "blocks": b"".join(crc.to_bytes(4, "big") for crc in version.blocks).hex(),
    }
    with open(path, "w", encoding="ascii") as file:
        json.dump(record, file)


def _read(path: str) -> tuple[FileVersion, list[Any]] | None:
    """A version, and what its digests were taken of; None if there is no such note, or a damaged one."""
    try:
        with open(path, "rb") as file:
            record = json.loads(file.read())
        crcs = bytes.fromhex(record["blocks"])
        blocks = tuple(int.from_bytes(crcs[i : i + 4], "big") for i in range(0, len(crcs), 4))
        version = FileVersion(record["size"], bytes.fromhex(record["sha256"]).hex(), blocks)
        if type(version.size) is not int or len(blocks) != -(-version.size // BLOCK_BYTES) or len(version.sha256) != 64:
            return None
        return version, [record["size"], record["mtime_ns"], record["ctime_ns"], record["inode"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _settled(folder: str) -> tuple[tuple[str, tuple[int, int]], ...]:
    """The names of all settled notes, each with what tells it from a later one of its name."""
    found = []
    for name in filter(str.isdigit, _names(folder)):
        with contextlib.suppress(OSError):
            status = os.stat(os.path.join(folder, name))
            found.append((name, (status.st_ino, status.st_ctime_ns)))
    return tuple(found)


def _remove(folder: str, names: Sequence[str]) -> None:
    for name in names:
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, name))


def _make_folder(folder: str) -> None:
    try:
        os.makedirs(folder, exist_ok=True)
    except FileExistsError:
        os.unlink(folder)  # the one note of a store of an earlier time
        os.makedirs(folder, exist_ok=True)
