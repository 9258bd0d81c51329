"""What a cache keeps on the local disk.

::

    whole/<sha256>-<size>           all bytes, held against their digest before they came here
    parts/<sha256>-<size>           a sparse file: those blocks of a resource that were read
    parts/<sha256>-<size>.map       8 bytes a block: the digest of what was written there, zeros for nothing
    notes/<remote>/a/b.gz~          what the remote said last of "a/b.gz": for reading offline
    unfinished/…                    temporaries, which name the process that writes them
    used                            how much all that takes (limit.py)

Nothing of it is trusted. A whole file that was found right gets a time of change that lies in the last century and stands for
its content; whoever writes to it later changes that time, and then it is held against its digest once more. Its time of access is
that of its last use. What does not fit is removed, and comes again from the remote.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import Any, Literal

from data_stack.io.integrity import DIGEST_BYTES, block_digest, block_digest_at
from data_stack.io.storage_connectors.cached.limit import PAGE_BYTES, Item, SizeLimit, item_of, remove
from data_stack.io.storage_connectors.connector import DAY_SECONDS, Garbage, ResourceInfo
from data_stack.io.storage_connectors.owners import is_dead, this_machine, this_process
from data_stack.io.storage_connectors.writer import COPY_BYTES
from data_stack.util.forks import call_in_forks

__all__ = ["CacheFolder", "Content", "written_whole"]

logger = logging.getLogger(__name__)

#: How often a use is noted where nothing is evicted.
_USE_SECONDS = 60.0
#: What is at least so long is made durable; what is shorter is held against its digest again after the next boot.
_SYNC_BYTES = 1 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
#: What opening says if a folder is missing, or a folder, link or socket is where a file belongs.
_IN_THE_WAY = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENXIO)
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
        boot = b"" if self.size >= _SYNC_BYTES else this_machine().encode()
        return (1 + int.from_bytes(block_digest_at(boot, self.key.encode()), "big") % (1 << 29)) * 1_000_000_000


class CacheFolder:
    """The local side of a cache. Every method copes with a folder that is full, read-only, damaged or gone.

    Args:
        path: absolute path of the folder; made when first written to.
        remote: names the remote, as the notes of several remotes may lie in one folder; their bytes are shared.
        max_bytes: what all files together may take on the disk; None: no limit.
    """

    def __init__(self, path: str, remote: str, max_bytes: int | None) -> None:
        self.path = path
        self.limit = SizeLimit(lambda: self.opened(os.path.join(path, "used"), os.O_RDWR | os.O_CREAT), max_bytes)
        self._use_seconds = _USE_SECONDS if max_bytes is None else 0.0
        self._notes = os.path.join(path, "notes", hashlib.sha256(remote.encode()).hexdigest()[:16])
        self._said: set[str] = set()
        self._begin()
        call_in_forks(self._begin)

    def _begin(self) -> None:
        self._owner = ""

    # ------------------------------------------------------------------ whole resources

    def open_whole(self, content: Content) -> int | None:
        """A descriptor of all bytes of ``content``, which are known to be right; None if they are not here."""
        self._begun()
        path = self.whole_path(content)
        handle = -1
        try:
            handle = os.open(path, _READ_FLAGS)
            if self._is_right(content, handle):
                result, handle = handle, -1
                return result
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self.cannot("read", error)
            if error.errno in (errno.EMFILE, errno.ENFILE, errno.EACCES):
                return None
        finally:
            if handle >= 0:
                os.close(handle)
        self.drop(content)
        return None

    def store_whole(self, content: Content, data: bytes) -> int | None:
        """Keep ``data``, which was held against its digest, and open it; None if it cannot be kept."""
        path = self.whole_path(content)
        try:
            with self.room(len(data)) as fits:
                if not fits:
                    return None
                self._replace(path, data, content.seal_ns)
                return os.open(path, _READ_FLAGS)
        except OSError as error:
            self.cannot("write to", error)
            return None

    def is_sealed_as(self, content: Content, handle: int) -> bool:
        """Hold all bytes of an open file against their digest; if they are right, it is known from now on."""
        os.utime(handle, ns=(0, 0))  # another time than any clock's, so that a change meanwhile shows
        digest, size = hashlib.sha256(), 0
        while chunk := os.pread(handle, COPY_BYTES, size):
            digest.update(chunk)
            size += len(chunk)
        if (digest.hexdigest(), size) != (content.sha256, content.size):
            return False
        if os.fstat(handle).st_mtime_ns == 0:
            os.utime(handle, ns=(time.time_ns(), content.seal_ns))
        return True

    def holds(self, content: Content) -> bool:
        """Whether all or a part of the bytes is here, as far as can be seen without reading them."""
        return os.path.exists(self.whole_path(content)) or os.path.exists(self.parts_path(content))

    def drop(self, content: Content) -> None:
        """Forget the bytes of ``content``; whoever has them open reads on."""
        whole, parts = self.whole_path(content), self.parts_path(content)
        are_removed = [remove(path) for path in (whole, parts + ".map", parts)]
        if not all(are_removed):
            self.say("what is damaged there cannot be removed; the remote is read instead")

    def verify(self, content: Content) -> None:
        """Hold what is whole here against its digest, whatever its time says; what is damaged is dropped."""
        with contextlib.suppress(OSError):
            os.utime(self.whole_path(content), ns=(0, 0), follow_symlinks=False)
        handle = self.open_whole(content)
        if handle is not None:
            os.close(handle)

    def whole_path(self, content: Content) -> str:
        """Where all bytes lie."""
        return os.path.join(self.path, "whole", content.key)

    def parts_path(self, content: Content) -> str:
        """Where single blocks lie."""
        return os.path.join(self.path, "parts", content.key)

    def _is_right(self, content: Content, handle: int) -> bool:
        status = os.fstat(handle)
        if status.st_size != content.size or status.st_mtime_ns != content.seal_ns:
            if stat.S_ISREG(status.st_mode) and status.st_size == content.size and self.is_sealed_as(content, handle):
                return True
            self.say(f"{self.whole_path(content)!r} is damaged; it is dropped and comes again from the remote", once=False)
            return False
        if time.time() - status.st_atime >= self._use_seconds:
            with contextlib.suppress(OSError):
                os.utime(handle, ns=(time.time_ns(), content.seal_ns))
        return True

    # ------------------------------------------------------------------ notes

    def note(self, identifier: str, info: ResourceInfo | None) -> bool:
        """Remember what the remote said of a resource (None: that there is none); whether that was possible."""
        if self.noted(identifier) == info:
            return True
        record: dict[str, Any] = {"identifier": identifier}
        if info is not None:
            record = {**asdict(info), "blocks": info.blocks.hex()}
        text = json.dumps(record).encode()
        data = block_digest(text) + text
        try:
            with self.room(len(data)) as fits:
                if fits:
                    self._replace(self._note_path(identifier), data)
                return fits
        except OSError as error:
            self.cannot("write to", error)
            return False

    def noted(self, identifier: str) -> ResourceInfo | Literal[False] | None:
        """What the remote said last of a resource: None, that there is none; False: nothing is known."""
        record = _read_note(self._note_path(identifier))
        if record.pop("identifier", None) != identifier:
            return False
        try:
            return ResourceInfo(identifier, **{**record, "blocks": bytes.fromhex(record["blocks"])}) if record else None
        except (ValueError, KeyError, TypeError):
            return False

    def forget(self, identifier: str) -> None:
        """Know nothing of a resource any more."""
        with contextlib.suppress(OSError):
            os.unlink(self._note_path(identifier))

    def _note_path(self, identifier: str) -> str:
        # No identifier ends with "~", so the note of "a" never meets the folder of the note of "a/b".
        return os.path.join(self._notes, identifier + "~")

    # ------------------------------------------------------------------ upkeep

    def room(self, size: int) -> AbstractContextManager[bool]:
        """Make room for a file of ``size`` bytes to be written while the block lasts; False: there is none."""
        return self.limit.room(-(-size // PAGE_BYTES) * PAGE_BYTES, self._items())

    def held_bytes(self) -> int:
        """What all files take on the disk now."""
        return sum(item.disk_bytes for item in self._items())

    def sweep(self) -> list[str]:
        """Remove what processes that died left behind; return the paths."""
        removed = []
        for path in self._files("unfinished"):
            with contextlib.suppress(OSError):
                age = time.time() - os.stat(path, follow_symlinks=False).st_mtime
                if (is_dead(os.path.basename(path).rpartition("-")[0]) or age > DAY_SECONDS) and remove(path):
                    removed.append(path)
        for path in self._files("parts"):
            # Completed by a process that died before it could remove the map.
            key = os.path.basename(path).removesuffix(".map")
            if os.path.exists(os.path.join(self.path, "whole", key)) and remove(path):
                removed.append(path)
        return removed

    def unnamed(self, grace_seconds: float) -> list[tuple[Content | None, Garbage]]:
        """Content that no note of any remote names, and that was not used for a while: of replaced and deleted resources."""
        notes = [_read_note(path) for path in self._files("notes")]
        named = {f"{note.get('sha256')}-{note.get('size')}" for note in notes}
        found = []
        for item in self._items(("parts", "whole")):
            key = os.path.basename(item.paths[-1])
            if key not in named and time.time() - item.used > grace_seconds:
                sha256, _, size = key.partition("-")
                content = Content.of(sha256, int(size)) if size.isdecimal() and size.isascii() else None
                found.append((content, Garbage(item.paths[-1], item.disk_bytes, "cached, and no resource has these bytes now")))
        return found

    def say(self, text: str, *, once: bool = True) -> None:
        """Log a warning, once for each kind of trouble."""
        if text not in self._said or not once:
            self._said.add(text)
            logger.warning("cache at %s: %s", self.path, text)

    def cannot(self, action: str, error: OSError) -> None:
        """The cache is an aid: what goes wrong with it is said once, and is no error of the reader."""
        self.say(f"cannot {action} it ({error.strerror or type(error).__name__}); the remote is read instead")

    def _items(self, folders: tuple[str, ...] = ("unfinished", "parts", "whole", "notes")) -> Iterator[Item]:
        # In the order in which a file moves through the folders: one that does so meanwhile is met twice rather than never.
        for folder in folders:
            paths = set(self._files(folder))
            if folder == "parts":  # maps go first: bytes without them are no bytes
                for path in {path.removesuffix(".map") for path in paths}:
                    yield item_of(path + ".map", path)
            else:
                # What is unfinished is removed by nobody but sweep().
                yield from (item_of(path, is_removable=folder != "unfinished") for path in paths)

    def _files(self, folder: str) -> Iterator[str]:
        pending = [os.path.join(self.path, folder)]
        while pending:
            with contextlib.suppress(OSError), os.scandir(pending.pop()) as entries:
                for entry in entries:
                    if folder == "notes" and entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    else:
                        yield entry.path

    def _begun(self) -> str:
        """The name of this process, which sweeps before it does anything else here."""
        if not self._owner:
            self._owner = this_process()
            self.sweep()
        return self._owner

    def moved(self, path: str, target: str) -> None:
        """Give a file its final name."""
        try:
            os.replace(path, target)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            self._make_folder(os.path.dirname(target))
            if os.path.isdir(target):
                remove(target)
            os.replace(path, target)

    def _replace(self, path: str, data: bytes, time_ns: int | None = None) -> None:
        """Write a file whole, or not at all; with a time of change, if one is given."""
        temporary = os.path.join(self.path, "unfinished", f"{self._begun()}-{secrets.token_hex(4)}")
        handle = self.opened(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            try:
                written_whole(handle, data, 0)
                if len(data) >= _SYNC_BYTES:
                    os.fsync(handle)
                if time_ns is not None:
                    os.utime(handle, ns=(time.time_ns(), time_ns))
            finally:
                os.close(handle)
            self.moved(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise

    def opened(self, path: str, flags: int) -> int:
        """Open a file of the folder to write to, and make what is missing above it."""
        flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            handle = os.open(path, flags, 0o600)
            if stat.S_ISREG(os.fstat(handle).st_mode):
                return handle
            os.close(handle)
        except OSError as error:
            if error.errno not in _IN_THE_WAY:
                raise
        remove(path)
        self._make_folder(os.path.dirname(path))
        return os.open(path, flags, 0o600)

    def _make_folder(self, path: str) -> None:
        try:
            os.makedirs(self.path, mode=0o700, exist_ok=True)  # of those above the last, the mode is not heeded
            os.makedirs(path, mode=0o700, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            inside = self.path
            for name in os.path.relpath(path, self.path).split(os.sep):
                inside = os.path.join(inside, name)
                if os.path.lexists(inside) and not os.path.isdir(inside):
                    os.unlink(inside)  # a file where a folder of ours belongs
            os.makedirs(path, mode=0o700, exist_ok=True)


def written_whole(handle: int, data: bytes | memoryview, offset: int) -> None:
    """Write all of ``data``: a disk that is filling up takes a part and says so only at the next write."""
    view = memoryview(data)
    while view:
        n_written = os.pwrite(handle, view, offset)
        offset, view = offset + n_written, view[n_written:]


def _read_note(path: str) -> dict[str, Any]:
    """The fields of a note; none if a bit of it is not as it was written."""
    with contextlib.suppress(OSError, ValueError):
        handle = os.open(path, _READ_FLAGS)
        try:
            data = os.read(handle, 1 << 24)
        finally:
            os.close(handle)
        if data[:DIGEST_BYTES] == block_digest(data[DIGEST_BYTES:]):
            record = json.loads(data[DIGEST_BYTES:])
            if isinstance(record, dict):
                return record
    return {}
