"""The local folder of a cache.

::

    whole/<sha256>-<size>           all bytes, verified before they came here
    parts/<sha256>-<size>           a sparse file: the blocks that were read, then 8 bytes per block: its digest, or zeros
    notes/<remote>/a/b.gz~          the last ``stat`` of "a/b.gz" in the remote, for reading offline
    unfinished/…                    temporaries

None of it is trusted. A verified whole file gets a modification time in the last century that stands for its content. Any later
write changes that time, and the file is verified again. Its access time is that of its last use. Damaged files are removed, and
come again from the remote.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import secrets
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Literal, NamedTuple

from data_stack.io.integrity import block_digest_at, seal_json, unseal_json
from data_stack.io.storage_connectors.connector import Garbage, ResourceInfo
from data_stack.io.storage_connectors.digest_notes import FileVersion, facts_of
from data_stack.io.storage_connectors.file_source import OpenedFile
from data_stack.io.storage_connectors.owners import this_machine
from data_stack.io.storage_connectors.writer import COPY_BYTES

logger = logging.getLogger(__name__)

#: Resources up to this size come in one request. Their files are not synced, but verified again after the next boot.
WHOLE_BYTES = 1 << 20
_PAGE_BYTES = 4096
#: How often the access time is updated where nothing is evicted.
_USE_SECONDS = 60.0
#: A scan of the folder lasts for this share of the room that it found: several processes may fill it at once.
_SHARE = 4
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Content:
    """The bytes of a resource, by SHA-256 and length."""

    sha256: str
    size: int

    @classmethod
    def of(cls, sha256: str | None, size: int) -> Content | None:
        """None if ``sha256`` is unknown or, as it becomes a file name, not a digest."""
        return cls(sha256, size) if isinstance(sha256, str) and _SHA256.fullmatch(sha256) else None

    @property
    def key(self) -> str:
        """Its name in the folder."""
        return f"{self.sha256}-{self.size}"

    @property
    def seal_ns(self) -> int:
        """The modification time of a verified file with these bytes: in whole seconds, which all file systems keep."""
        boot = b"" if self.size > WHOLE_BYTES else this_machine().encode()
        return (1 + int.from_bytes(block_digest_at(boot, self.key.encode()), "big") % (1 << 29)) * 1_000_000_000


class _Item(NamedTuple):
    """A file of the cache: its last use, seconds since 1970; its size on the disk."""

    used: float
    disk_bytes: int
    path: str


class CacheFolder:
    """The local side of a cache. If the folder is full, read-only, damaged or gone, it logs that once and keeps nothing.

    Args:
        path: absolute path of the folder; created by the first write.
        remote: names the remote, as several remotes may share the folder; their notes are separate, their bytes shared.
        max_bytes: limit of the size on the disk; None: no limit.
    """

    def __init__(self, path: str, remote: str, max_bytes: int | None) -> None:
        self.path, self._max_bytes = path, max_bytes
        self._use_seconds = _USE_SECONDS if max_bytes is None else 0.0
        self._notes = os.path.join(path, "notes", hashlib.sha256(remote.encode()).hexdigest()[:16])
        self._said: set[str] = set()
        #: What may be written before the folder is scanned again.
        self._left = 0

    # ------------------------------------------------------------------ content

    def path_of_whole(self, content: Content) -> str:
        """Path of a whole file."""
        return f"{self.path}/whole/{content.key}"

    def parts_path(self, content: Content) -> str:
        """Path of a file of blocks."""
        return f"{self.path}/parts/{content.key}"

    def open_whole(self, content: Content) -> OpenedFile | None:
        """Open the verified whole file of ``content``; None if it is missing."""
        path = self.path_of_whole(content)
        handle = -1
        try:
            handle = os.open(path, _READ_FLAGS)
            status = os.fstat(handle)
            is_sealed = status.st_mtime_ns == content.seal_ns
            if status.st_size == content.size and (is_sealed or self.is_right(content, handle)):
                is_due = time.time() - status.st_atime >= self._use_seconds if is_sealed else os.fstat(handle).st_mtime_ns == 0
                if is_due:
                    with contextlib.suppress(OSError):
                        os.utime(handle, ns=(time.time_ns(), content.seal_ns))
                    status = os.fstat(handle)
                opened = OpenedFile(handle, status, FileVersion(content.size, content.sha256, facts_of(status)))
                handle = -1
                return opened
        except FileNotFoundError:
            return None
        except OSError as error:
            self.cannot("read", error)
            return None
        finally:
            if handle >= 0:
                os.close(handle)
        self.say(f"{path!r} is damaged; it is removed and read from the remote again", once=False)
        self.drop(content)
        return None

    def is_right(self, content: Content, handle: int) -> bool:
        """Verify an open file; its modification time is 0 afterwards, unless it was written to meanwhile."""
        os.utime(handle, ns=(0, 0))
        digest, size = hashlib.sha256(), 0
        while chunk := os.pread(handle, min(COPY_BYTES, content.size - size), size):
            digest.update(chunk)
            size += len(chunk)
        return (digest.hexdigest(), size) == (content.sha256, content.size)

    def store_whole(self, content: Content, data: bytes) -> None:
        """Keep verified ``data`` if there is room."""
        self._replace(self.path_of_whole(content), data, content.seal_ns)

    def complete(self, content: Content, handle: int) -> None:
        """Turn a verified file of blocks into a whole file, unless it was evicted or written to since.

        Raises:
            OSError: the disk failed.
        """
        os.fsync(handle)
        status = os.fstat(handle)
        if status.st_nlink and status.st_mtime_ns == 0 and self.has_room(_PAGE_BYTES):
            os.truncate(handle, content.size)
            os.utime(handle, ns=(time.time_ns(), content.seal_ns))
            self._make_folder(self.path_of_whole(content))
            os.replace(self.parts_path(content), self.path_of_whole(content))

    def holds(self, content: Content) -> bool:
        """Whether there is a whole file or a file of blocks."""
        return os.path.exists(self.path_of_whole(content)) or os.path.exists(self.parts_path(content))

    def drop(self, content: Content) -> None:
        """Remove the files of ``content``; open readers keep theirs."""
        for path in (self.path_of_whole(content), self.parts_path(content)):
            _remove(path)

    def verify(self, content: Content) -> None:
        """Verify the whole file regardless of its modification time, and remove it if it is damaged."""
        with contextlib.suppress(OSError):
            os.utime(self.path_of_whole(content), ns=(0, 0), follow_symlinks=False)
        opened = self.open_whole(content)
        if opened is not None:
            os.close(opened.handle)

    # ------------------------------------------------------------------ notes

    def note(self, identifier: str, info: ResourceInfo | None) -> None:
        """Remember the ``stat`` of a resource in the remote (None: there is no such resource)."""
        if self.read_note(identifier) != info:
            record = {"identifier": identifier} if info is None else asdict(info)
            self._replace(self._note_path(identifier), seal_json(record))

    def read_note(self, identifier: str) -> ResourceInfo | Literal[False] | None:
        """The last known ``stat`` of a resource; None: there is no such resource; False: unknown."""
        record = unseal_json(self._note_path(identifier))
        if record.pop("identifier", None) != identifier:
            return False
        try:
            return ResourceInfo(identifier, **record) if record else None
        except TypeError:  # of an earlier format
            return False

    def forget(self, identifier: str) -> None:
        """Remove the note on a resource."""
        _remove(self._note_path(identifier))

    def _note_path(self, identifier: str) -> str:
        # No identifier ends with "~", so the note of "a" never meets the folder of the note of "a/b".
        return os.path.join(self._notes, identifier + "~")

    # ------------------------------------------------------------------ room

    def admits(self, size: int) -> bool:
        """Whether a resource of this size fits below the limit."""
        return self._max_bytes is None or size + size // _PAGE_BYTES + 8 * _PAGE_BYTES <= self._max_bytes

    def has_room(self, size: int) -> bool:
        """Whether ``size`` more bytes may be written; removes the least recently used files if there is no room.

        Raises:
            OSError: the folder cannot be written to.
        """
        os.makedirs(self.path, mode=0o700, exist_ok=True)
        if self._max_bytes is None:
            return True
        size = -(-size // _PAGE_BYTES) * _PAGE_BYTES
        if size > self._left:
            items = sorted(self._items(), reverse=True)
            used = _PAGE_BYTES + sum(item.disk_bytes for item in items)
            # Some more is evicted, as scanning the folder for each new file would take longer than fetching it.
            most = self._max_bytes - size if used + size <= self._max_bytes else self._max_bytes * 9 // 10 - size
            while items and used > most:
                item = items.pop()
                _remove(item.path)
                used -= item.disk_bytes
            self._left = max(size, (self._max_bytes - used) // _SHARE) if used + size <= self._max_bytes else 0
        if size > self._left:
            return False
        self._left -= size
        return True

    def count_bytes(self) -> int:
        """Size of all files on the disk."""
        return sum(item.disk_bytes for item in self._items())

    def remove_unnamed(self, grace_seconds: float, *, dry_run: bool) -> Iterator[Garbage]:
        """Remove content of replaced and deleted resources: that no note of any remote names, and that was not used lately."""
        notes = [unseal_json(item.path) for item in self._items(("notes",))]
        named = {f"{note.get('sha256')}-{note.get('size')}" for note in notes}
        for item in list(self._items(("unfinished", "parts", "whole"))):
            if os.path.basename(item.path) not in named and time.time() - item.used > grace_seconds:
                if not dry_run:
                    _remove(item.path)
                yield Garbage(item.path, item.disk_bytes, "cached bytes that no resource has any longer")

    def _items(self, folders: tuple[str, ...] = ("unfinished", "parts", "whole", "notes")) -> Iterator[_Item]:
        # Files move through the folders in this order, so a file that moves meanwhile is listed twice rather than never.
        for folder in folders:
            for above, _, names in os.walk(os.path.join(self.path, folder)):
                for name in names:
                    path = os.path.join(above, name)
                    with contextlib.suppress(OSError):
                        status = os.stat(path, follow_symlinks=False)
                        yield _Item(max(status.st_atime, status.st_mtime), status.st_blocks * 512, path)

    def _replace(self, path: str, data: bytes, time_ns: int | None = None) -> None:
        """Write a file atomically, with a modification time if one is given."""
        temporary = os.path.join(self.path, "unfinished", secrets.token_hex(8))
        try:
            if not self.has_room(len(data)):
                return
            self._make_folder(temporary)
            try:
                with open(temporary, "xb") as file:
                    file.write(data)
                if time_ns is not None:
                    os.utime(temporary, ns=(time.time_ns(), time_ns))
                self._make_folder(path)
                os.replace(temporary, path)
            except BaseException:
                _remove(temporary)
                raise
        except OSError as error:
            self.cannot("write to", error)

    def open_parts(self, content: Content, size: int) -> int:
        """Open or create the file of blocks, ``size`` bytes long.

        Raises:
            OSError: that is not possible.
        """
        path = self.parts_path(content)
        if not self.has_room(_PAGE_BYTES):
            raise OSError("the cache is full")
        self._make_folder(path)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        try:
            if os.fstat(handle).st_size != size:
                os.truncate(handle, size)
            if os.path.exists(self.path_of_whole(content)):  # another process was faster: this file is for this reader alone
                _remove(path)
            return handle
        except BaseException:
            os.close(handle)
            raise

    def _make_folder(self, path: str) -> None:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)

    # ------------------------------------------------------------------ trouble

    def say(self, text: str, *, once: bool = True) -> None:
        """Log a warning, once per text."""
        if text not in self._said or not once:
            self._said.add(text)
            logger.warning("cache at %s: %s", self.path, text)

    def cannot(self, action: str, error: OSError) -> None:
        """Log an error of the cache; readers go on with the remote."""
        self.say(f"cannot {action} it ({error.strerror or type(error).__name__}); the remote is read instead")


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
