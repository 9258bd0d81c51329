"""What a file store noted of its files when it wrote them: size and digests, and the times and inode they were taken of.

The note on a version of ``a/b.gz`` is ``a/b.gz~/INODE.MTIME`` below the folder of notes. It is there before its file gets its
name, as ``a/b.gz~/.~OWNER-INODE.MTIME``, and those on earlier versions go after that. So at any time, with any number of writers
and wherever one of them is killed, a file that a store published either has a note of its own, or there is none at all: no file
is ever held against the digests of another version. An inode alone would not do: a file system gives it to the next file at once,
and a writer that removes the note on an earlier version would remove that one's.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from data_stack.io.storage_connectors.connector import BLOCK_BYTES
from data_stack.io.storage_connectors.owners import this_process

__all__ = ["TEMPORARY", "DigestRecords", "FileVersion"]

#: Names that begin so are unfinished: of files, and of notes on them.
TEMPORARY = ".~"
_NOTE = re.compile(r"(?:\.~.*-)?([0-9]+)(?:\.-?[0-9]+)?", re.ASCII)


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
        folder, own = self._folder(identifier), _name(status)
        for look in range(3):  # once more if it was settled between two looks
            record = _read(os.path.join(folder, own))
            names = _names(folder)
            announced = [name for name in names if name.startswith(TEMPORARY) and name.endswith(f"-{own}")]
            if record is not None:
                version, taken_of = record
                if taken_of == _fingerprint(status):
                    return version, []
                others = [_read(os.path.join(folder, name)) for name in announced]
                return None, [version, *(other[0] for other in others if other is not None)]
            if own not in names and (announced or look):
                # Who changes the times of a file, or writes into it, leaves it its inode.
                of_inode = [name for name in names if _inode_in(name) == str(status.st_ino)]
                records = [_read(os.path.join(folder, name)) for name in announced or of_inode or names]
                return None, [record[0] for record in records if record is not None]
        return None, []  # a damaged note

    def announce(self, identifier: str, status: os.stat_result, version: FileVersion) -> Announcement:
        """Note the version of a file before it gets its name. Its time of change is its own, to the nanosecond.

        Raises:
            OSError: neither that, nor removing the notes on earlier versions, was possible.
        """
        folder = self._folder(identifier)
        earlier = _settled(folder)
        path: str | None = os.path.join(folder, f"{TEMPORARY}{this_process()}-{_name(status)}")
        try:
            _make_folder(folder)
            _write(str(path), status, version, settled=False)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(str(path))
            # No room for a note: then there must be none, or an earlier one would be held against the new file.
            self.forget(identifier)
            path = None
        return Announcement(identifier, version, path, earlier)

    def settle(self, announcement: Announcement, status: os.stat_result) -> None:
        """The announced file has got its name, and this status with it."""
        folder, name = self._folder(announcement.identifier), _name(status)
        try:
            self._replace(folder, status, announcement.version)
        except OSError:
            if announcement.path is not None:
                with contextlib.suppress(OSError):
                    os.rename(announcement.path, os.path.join(folder, name))
        self.withdraw(announcement)
        _remove(folder, [each for each in announcement.earlier if each != name])

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
            if _inode_in(name) and not name.startswith(TEMPORARY):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(folder, name))
        with contextlib.suppress(OSError):
            os.rmdir(folder)

    def adopt(self, path: str) -> None:
        """Keep what a writer announced that died after it gave the file its name; it is checked at the next reading."""
        folder, name = os.path.split(path)
        with contextlib.suppress(OSError):
            os.rename(path, os.path.join(folder, name.rpartition("-")[2]))

    def remove_empty(self, folder: str) -> None:
        """Remove the folder of the notes on a resource, by its path, if there are none any more; leave any other folder alone."""
        if folder.startswith(self._root + os.sep) and folder.endswith("~"):
            with contextlib.suppress(OSError):
                os.rmdir(folder)

    def note_at(self, path: str) -> tuple[str, str] | None:
        """The resource that a note is on, and what notes on this version are called, by its path; None if it is no note."""
        folder, name = os.path.split(os.path.relpath(path, self._root))
        return (folder[:-1], name.rpartition("-")[2]) if folder.endswith("~") and _inode_in(name) else None

    @staticmethod
    def name_of(status: os.stat_result) -> str:
        """What the note on a file of this status is called."""
        return _name(status)

    def _replace(self, folder: str, status: os.stat_result, version: FileVersion, *, settled: bool = True) -> None:
        temporary = os.path.join(folder, f"{TEMPORARY}{this_process()}-x{secrets.token_hex(4)}")
        try:
            _make_folder(folder)
            _write(temporary, status, version, settled=settled)
            os.replace(temporary, os.path.join(folder, _name(status)))
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
        earlier: names of the notes on what was published before.
    """

    identifier: str
    version: FileVersion
    path: str | None
    earlier: tuple[str, ...]


def _name(status: os.stat_result) -> str:
    return f"{status.st_ino}.{status.st_mtime_ns}"


def _inode_in(name: str) -> str | None:
    """The inode in the name of a note, settled or announced; None if it is no note. (An earlier version had the inode alone.)"""
    match = _NOTE.fullmatch(name)
    return None if match is None else match[1]


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


def _settled(folder: str) -> tuple[str, ...]:
    """The names of all settled notes."""
    return tuple(name for name in _names(folder) if _inode_in(name) and not name.startswith(TEMPORARY))


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
