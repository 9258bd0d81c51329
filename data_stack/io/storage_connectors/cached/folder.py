"""What a cache keeps on the local disk.

::

    whole/<sha256>-<size>           all bytes, held against their digest before they came here
    parts/<sha256>-<size>           a sparse file: the blocks that were read, then 8 bytes for each block: its digest, or zeros
    notes/<remote>/a/b.gz~          what the remote said last of "a/b.gz": for reading offline
    unfinished/…                    temporaries
    used                            the lock of all who write here, and how much all that takes

Nothing of it is trusted. A whole file that was found right gets a time of change that lies in the last century and stands for
its content; whoever writes to it later changes that time, and then it is held against its digest once more. Its time of access is
that of its last use. What does not fit is removed, and comes again from the remote.
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
from data_stack.util.lock_file import locked_file, unlock

__all__ = ["WHOLE_BYTES", "CacheFolder", "Content"]

logger = logging.getLogger(__name__)

#: What is no longer comes in one request. It is not made durable, but held against its digest again after the next boot.
WHOLE_BYTES = 1 << 20
_PAGE_BYTES = 4096
#: How often a use is noted where nothing is evicted.
_USE_SECONDS = 60.0
#: Who holds the lock only counts, writes a few MiB, or evicts; who waits longer than this reads on without caching …
_LOCK_SECONDS = 2.0
#: … and for so long does not even try: the holder is stopped, or scans a huge folder.
_LOCKED_OUT_SECONDS = 20.0
#: Of more items than these some more are removed at a time: counting them for each one that comes takes longer than fetching it.
_MANY = 500
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Content:
    """The bytes of a resource, whatever its name: of which length, with which SHA-256."""

    sha256: str
    size: int

    @classmethod
    def of(cls, sha256: str | None, size: int) -> Content | None:
        """None where the digest is not known. It becomes a file's name, so what is no digest is none."""
        return cls(sha256, size) if isinstance(sha256, str) and _SHA256.fullmatch(sha256) else None

    @property
    def key(self) -> str:
        """Its name in the folder."""
        return f"{self.sha256}-{self.size}"

    @property
    def seal_ns(self) -> int:
        """The time of change of a file that has these bytes for certain: in whole seconds, which all file systems keep."""
        boot = b"" if self.size > WHOLE_BYTES else this_machine().encode()
        return (1 + int.from_bytes(block_digest_at(boot, self.key.encode()), "big") % (1 << 29)) * 1_000_000_000


class _Item(NamedTuple):
    """A file of the cache: when it was used last, seconds since 1970; what it takes on the disk."""

    used: float
    disk_bytes: int
    path: str


class CacheFolder:
    """The local side of a cache. Where the folder is full, read-only, damaged or gone, that is said once, and nothing is kept.

    Args:
        path: absolute path of the folder; made when first written to.
        remote: names the remote, as the notes of several remotes may lie in one folder; their bytes are shared.
        max_bytes: what all files together may take on the disk; None: no limit.
    """

    def __init__(self, path: str, remote: str, max_bytes: int | None) -> None:
        self.path, self._max_bytes = path, max_bytes
        self._use_seconds = _USE_SECONDS if max_bytes is None else 0.0
        self._notes = os.path.join(path, "notes", hashlib.sha256(remote.encode()).hexdigest()[:16])
        self._said: set[str] = set()
        self._locked_out_until = 0.0
        self._is_counted = False

    # ------------------------------------------------------------------ content

    def path_of_whole(self, content: Content) -> str:
        """Where all bytes lie."""
        return f"{self.path}/whole/{content.key}"

    def parts_path(self, content: Content) -> str:
        """Where single blocks lie."""
        return f"{self.path}/parts/{content.key}"

    def open_whole(self, content: Content) -> OpenedFile | None:
        """All bytes of ``content``, which are known to be right; None if they are not here."""
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
        self.say(f"{path!r} is damaged; it is dropped and comes again from the remote", once=False)
        self.drop(content)
        return None

    def is_right(self, content: Content, handle: int) -> bool:
        """Hold the bytes of an open file against their digest; its time of change is 0 then, unless it is written toamid that."""
        os.utime(handle, ns=(0, 0))
        digest, size = hashlib.sha256(), 0
        while chunk := os.pread(handle, min(COPY_BYTES, content.size - size), size):
            digest.update(chunk)
            size += len(chunk)
        return (digest.hexdigest(), size) == (content.sha256, content.size)

    def store_whole(self, content: Content, data: bytes) -> None:
        """Keep ``data``, which was held against its digest, if there is room."""
        self._replace(self.path_of_whole(content), data, content.seal_ns)

    def complete(self, content: Content, handle: int) -> None:
        """Make a whole resource of its blocks, which were found right, unless they were evicted, or written to since.

        Raises:
            OSError: the disk failed.
        """
        os.fsync(handle)
        with self.room(_PAGE_BYTES) as fits:
            status = os.fstat(handle)
            if fits and status.st_nlink and status.st_mtime_ns == 0:
                os.truncate(handle, content.size)
                os.utime(handle, ns=(time.time_ns(), content.seal_ns))
                self._make_folder(self.path_of_whole(content))
                os.replace(self.parts_path(content), self.path_of_whole(content))

    def holds(self, content: Content) -> bool:
        """Whether all or a part of the bytes is here, as far as can be seen without reading them."""
        return os.path.exists(self.path_of_whole(content)) or os.path.exists(self.parts_path(content))

    def drop(self, content: Content) -> None:
        """Forget the bytes of ``content``; whoever has them open reads on."""
        for path in (self.path_of_whole(content), self.parts_path(content)):
            _remove(path)

    def verify(self, content: Content) -> None:
        """Hold what is whole here against its digest, whatever its time says; what is damaged is dropped."""
        with contextlib.suppress(OSError):
            os.utime(self.path_of_whole(content), ns=(0, 0), follow_symlinks=False)
        opened = self.open_whole(content)
        if opened is not None:
            os.close(opened.handle)

    # ------------------------------------------------------------------ notes

    def note(self, identifier: str, info: ResourceInfo | None) -> None:
        """Remember what the remote said of a resource (None: that there is none)."""
        if self.read_note(identifier) != info:
            record = {"identifier": identifier} if info is None else asdict(info)
            self._replace(self._note_path(identifier), seal_json(record))

    def read_note(self, identifier: str) -> ResourceInfo | Literal[False] | None:
        """What the remote said last of a resource: None, that there is none; False: nothing is known."""
        record = unseal_json(self._note_path(identifier))
        if record.pop("identifier", None) != identifier:
            return False
        try:
            return ResourceInfo(identifier, **record) if record else None
        except TypeError:  # of an earlier format
            return False

    def forget(self, identifier: str) -> None:
        """Know nothing of a resource any more."""
        _remove(self._note_path(identifier))

    def _note_path(self, identifier: str) -> str:
        # No identifier ends with "~", so the note of "a" never meets the folder of the note of "a/b".
        return os.path.join(self._notes, identifier + "~")

    # ------------------------------------------------------------------ room

    def admits(self, size: int) -> bool:
        """Whether something of this size could be kept at all."""
        return self._max_bytes is None or size + size // _PAGE_BYTES + 8 * _PAGE_BYTES <= self._max_bytes

    @contextlib.contextmanager
    def room(self, size: int) -> Iterator[bool]:
        """Write to the folder while the block lasts, alone, and ``size`` bytes at most; False: that cannot be.

        Room is counted before it is written to, so that a process killed in between leaves the count too high, and the next one
        that needs the room counts again. A count from before this process is not believed either: a power cut may have lost it.

        Raises:
            OSError: the folder cannot be written to.
        """
        os.makedirs(self.path, mode=0o700, exist_ok=True)
        handle = self._acquire_lock()
        if handle is None:
            yield False
            return
        try:
            fits = True
            if self._max_bytes is not None:
                size = -(-size // _PAGE_BYTES) * _PAGE_BYTES
                text = os.pread(handle, 64, 0).strip()
                used = int(text) if text.isdigit() and self._is_counted else self._max_bytes + 1
                if used + size > self._max_bytes:
                    used, self._is_counted = self._evict(self._max_bytes - size), True
                if fits := used + size <= self._max_bytes:
                    used += size
                os.pwrite(handle, (b"%d" % used).ljust(64), 0)
            yield fits
        finally:
            unlock(handle)
            os.close(handle)

    def _acquire_lock(self) -> int | None:
        """The file of the count, locked for this thread alone; None if that cannot be had soon."""
        end = time.monotonic() + _LOCK_SECONDS
        while time.monotonic() >= self._locked_out_until:
            handle = locked_file(os.path.join(self.path, "used"))
            if handle is not None:
                return handle
            if time.monotonic() > end:  # waiting in the kernel would have no end, should the holder be stopped
                self._locked_out_until = time.monotonic() + _LOCKED_OUT_SECONDS
            time.sleep(0.002)
        return None

    def _evict(self, most: int) -> int:
        """Count anew; if that is more than ``most``, remove what was not used for longest until it fits."""
        items = sorted(self._items(), reverse=True)
        used = _PAGE_BYTES + sum(item.disk_bytes for item in items)
        goal = most if used <= most or len(items) <= _MANY else most - most // 10
        while items and used > goal:
            item = items.pop()
            _remove(item.path)
            used -= item.disk_bytes
        return used

    def count_bytes(self) -> int:
        """What all files take on the disk now."""
        return sum(item.disk_bytes for item in self._items())

    def remove_unnamed(self, grace_seconds: float, *, dry_run: bool) -> Iterator[Garbage]:
        """Remove content that no note of any remote names, and that was not used for a while: of what was replaced or deleted."""
        notes = [unseal_json(item.path) for item in self._items(("notes",))]
        named = {f"{note.get('sha256')}-{note.get('size')}" for note in notes}
        for item in list(self._items(("unfinished", "parts", "whole"))):
            if os.path.basename(item.path) not in named and time.time() - item.used > grace_seconds:
                if not dry_run:
                    _remove(item.path)
                yield Garbage(item.path, item.disk_bytes, "cached, and no resource has these bytes now")

    def _items(self, folders: tuple[str, ...] = ("unfinished", "parts", "whole", "notes")) -> Iterator[_Item]:
        # In the order in which a file moves through the folders: one that does so meanwhile is met twice rather than never.
        for folder in folders:
            for above, _, names in os.walk(os.path.join(self.path, folder)):
                for name in names:
                    path = os.path.join(above, name)
                    with contextlib.suppress(OSError):
                        status = os.stat(path, follow_symlinks=False)
                        yield _Item(max(status.st_atime, status.st_mtime), status.st_blocks * 512, path)

    def _replace(self, path: str, data: bytes, time_ns: int | None = None) -> None:
        """Write a file whole, or not at all; with a time of change, if one is given."""
        temporary = os.path.join(self.path, "unfinished", secrets.token_hex(8))
        try:
            with self.room(len(data)) as fits:
                if not fits:
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
        """A descriptor of the file of blocks, ``size`` bytes long.

        Raises:
            OSError: there cannot be one.
        """
        path = self.parts_path(content)
        with self.room(_PAGE_BYTES) as fits:
            if not fits:
                raise OSError("there is no room")
            self._make_folder(path)
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
            try:
                if os.fstat(handle).st_size != size:
                    os.truncate(handle, size)
                return handle
            except BaseException:
                os.close(handle)
                raise

    def _make_folder(self, path: str) -> None:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)

    # ------------------------------------------------------------------ trouble

    def say(self, text: str, *, once: bool = True) -> None:
        """Log a warning, once for each kind of trouble."""
        if text not in self._said or not once:
            self._said.add(text)
            logger.warning("cache at %s: %s", self.path, text)

    def cannot(self, action: str, error: OSError) -> None:
        """The cache is an aid: what goes wrong with it is said once, and is no error of the reader."""
        self.say(f"cannot {action} it ({error.strerror or type(error).__name__}); the remote is read instead")


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
