"""Notes on what a remote answered, which the processes of a machine share.

The note on ``a/b.gz`` is a file. Its modification time is that of the request, by the monotonic
clock of this boot, so that a process can tell whether the answer is fresh enough.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from dataclasses import dataclass
from typing import Final

from data_stack.io.storage_connectors.cached.content import boot_ns
from data_stack.io.storage_connectors.cached.health import FolderHealth
from data_stack.io.storage_connectors.cached.room import (
    DISK_PAGE_BYTES,
    NOTES_FOLDER,
    CacheRoom,
)
from data_stack.io.storage_connectors.connector import ResourceInfo
from data_stack.io.storage_connectors.file.digest_notes import DigestNote, DigestNotes
from data_stack.util.interrupts import open_descriptor

#: Not through a link, and without waiting if the name is that of a pipe.
_FLAGS: Final = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAX_NOTE_BYTES: Final = 1 << 16
#: Stands for the answer that the remote has no such resource.
_MISSING: Final = DigestNote(-1, "")


@dataclass(frozen=True, slots=True)
class AnswerNote:
    """What a remote answered.

    Attributes:
        info: the metadata of the resource; None if the remote had no such resource.
    """

    info: ResourceInfo | None


class AnswerNotes:
    """The last answer of one remote for each identifier.

    Args:
        path: the path of the folder of the cache, which several remotes may share.
        remote: the name of the remote.
        room: says whether another note may be written.
        health: records that a note could not be written.
    """

    _notes: DigestNotes
    _room: CacheRoom
    _health: FolderHealth

    def __init__(self, path: str, remote: str, room: CacheRoom, health: FolderHealth) -> None:
        name = hashlib.sha256(remote.encode()).hexdigest()[:16]
        self._notes = DigestNotes(os.path.join(path, NOTES_FOLDER, name))
        self._room = room
        self._health = health

    def write(self, identifier: str, info: ResourceInfo | None, asked_at: float) -> None:
        """Note an answer.

        Args:
            identifier: the resource.
            info: its metadata; None: the remote has no such resource.
            asked_at: when the request was sent, by the monotonic clock.
        """
        note = _note_on(info)
        asked_ns = boot_ns() + int(asked_at * 1e9)
        try:
            if self._renew(identifier, note, asked_ns):
                return
            if self._room.has_room(DISK_PAGE_BYTES):
                self._notes.write(identifier, note, asked_ns)
        except OSError as error:
            self._health.report("write to", error)

    def read(self, identifier: str, since: float | None = None) -> AnswerNote | None:
        """Return the last answer; None if there is none.

        Args:
            identifier: the resource.
            since: a time of the monotonic clock, in seconds. The answer to a request that was sent
                before it, or before this boot, counts as none.
        """
        if since is not None and not self._is_from(identifier, since):
            return None
        note = self._notes.read(identifier)
        if note is None:
            return None
        return AnswerNote(_info_in(note, identifier))

    def remove(self, identifier: str) -> None:
        """Remove the note on a resource, if there is one."""
        with contextlib.suppress(OSError):
            self._notes.remove(identifier)

    def _renew(self, identifier: str, note: DigestNote, asked_ns: int) -> bool:
        """Set the time of the stored note if it is equal to ``note``. Return whether it is.

        Raises:
            OSError: the stored note cannot be read or changed.
        """
        path = self._notes.path_of(identifier)
        with contextlib.suppress(FileNotFoundError), open_descriptor(path, _FLAGS) as handle:
            if os.read(handle, _MAX_NOTE_BYTES) == note.to_bytes():
                os.utime(handle, ns=(time.time_ns(), asked_ns))
                return True
        return False

    def _is_from(self, identifier: str, since: float) -> bool:
        """Return whether the request of the noted answer was sent in this boot, not before a time.

        Args:
            identifier: the resource.
            since: the time, by the monotonic clock.
        """
        try:
            status = os.stat(self._notes.path_of(identifier))
        except OSError:
            return False
        asked_at = (status.st_mtime_ns - boot_ns()) / 1e9
        return max(since, 0.0) <= asked_at <= time.monotonic()


def _note_on(info: ResourceInfo | None) -> DigestNote:
    """Return the note that holds an answer. Its ``state`` holds when the resource was modified."""
    if info is None:
        return _MISSING
    state = () if info.modified is None else (info.modified,)
    return DigestNote(info.size, info.sha256 or "", state)


def _info_in(note: DigestNote, identifier: str) -> ResourceInfo | None:
    """Return the answer that :func:`_note_on` has put into a note."""
    if note.size < 0:
        return None
    modified = note.state[0] if note.state else None
    return ResourceInfo(identifier, note.size, note.sha256 or None, modified)
