"""What a cache keeps on the local disk.

::

    whole/<sha256>-<size>           sealed bytes, under the digest that they were held against
    whole/<sha256>-<size>.facts     size, inode and times they were left with; its own time is that of the last use
    parts/<sha256>-<size>           a sparse file: those blocks of a resource that were read
    parts/<sha256>-<size>.map       8 bytes a block: the digest of what was written there, zeros for nothing
    notes/<remote>/a/b.gz~          what the remote said last of "a/b.gz": for reading offline
    unfinished/…                    temporaries, which name the process that writes them
    used                            how much all that takes (limit.py)

Nothing of it is trusted. A file of facts or notes begins with a digest of the rest. Bytes are handed out only while the
file has the facts that were noted when its digest was right, the time of its last change among them, which no program can
set back; else they are held against their digest once more. What does not fit is removed, and comes again from the remote.
"""

from __future__ import annotations

import contextlib
import errno
import functools
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
from dataclasses import dataclass
from typing import Any, Literal

from data_stack.io.storage_connectors.cached.limit import PAGE_BYTES, Item, SizeLimit, disk_bytes, remove
from data_stack.io.storage_connectors.connector import DAY_SECONDS, Garbage, ResourceInfo
from data_stack.io.storage_connectors.owners import is_dead, this_process
from data_stack.io.storage_connectors.writer import COPY_BYTES

__all__ = ["CacheFolder", "Content", "facts_of", "stamp", "written_whole"]

logger = logging.getLogger(__name__)

#: How often a use is noted where nothing is evicted, and how often notes on the disk are looked at.
_USE_SECONDS = 60.0
#: What is at least so long is made durable; what is shorter is held against its digest again after the next boot.
_SYNC_BYTES = 1 << 20
_REMEMBERED = 1 << 16
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
#: What the files of a folder have beside them.
_SUFFIXES = {"parts": ".map", "whole": ".facts"}
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


class CacheFolder:
    """The local side of a cache. Every method copes with a folder that is full, read-only, damaged or gone.

    Args:
        path: absolute path of the folder; made when first written to.
        remote: names the remote, as the notes of several remotes may lie in one folder; their bytes are shared.
        max_bytes: what all files together may take on the disk; None: no limit.
    """

    def __init__(self, path: str, remote: str, max_bytes: int | None) -> None:
        self.path = path
        self.limit = SizeLimit(os.path.join(path, "used"), max_bytes)
        self._use_seconds = _USE_SECONDS if max_bytes is None else 0.0
        self._notes = os.path.join(path, "notes", hashlib.sha256(remote.encode()).hexdigest()[:16])
        #: Facts of files known to be right, and when their use was noted last.
        self._known: dict[str, tuple[list[int], float]] = {}
        self._noted: dict[str, tuple[ResourceInfo | Literal[False] | None, float]] = {}
        self._said: set[str] = set()
        self._owner = (0, "")

    # ------------------------------------------------------------------ whole resources

    def open_whole(self, content: Content) -> int | None:
        """A descriptor of all bytes of ``content``, which are known to be right; None if they are not here."""
        self._begun()
        path = self.whole_path(content)
        try:
            handle = os.open(path, _READ_FLAGS)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            self.cannot("read", error)
            if error.errno not in (errno.EMFILE, errno.ENFILE, errno.EACCES):
                self.drop(content)
            return None
        try:
            if self._is_right(content, handle):
                result, handle = handle, -1
                return result
        except OSError as error:
            self.cannot("read", error)
        finally:
            if handle >= 0:
                os.close(handle)
        self.drop(content)
        return None

    def store_whole(self, content: Content, data: bytes) -> int | None:
        """Keep ``data``, which was held against its digest, and open it; None if it cannot be kept."""
        try:
            with self.room(_rounded(len(data)) + 2 * PAGE_BYTES) as fits:
                if not fits:
                    return None
                self._replace(self.whole_path(content), data)
                handle = os.open(self.whole_path(content), _READ_FLAGS)
        except OSError as error:
            self.cannot("write to", error)
            return None
        self.is_whole(content, facts_of(handle), durable=len(data) >= _SYNC_BYTES)
        return handle

    def is_whole(self, content: Content, facts: list[int], *, durable: bool) -> None:
        """Note that the file with these facts has the right bytes."""
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[content.key] = (facts, time.monotonic())
        try:
            self._replace(self.whole_path(content) + ".facts", _sealed({"facts": facts, "boot": None if durable else _boot()}))
        except OSError as error:
            self.cannot("write to", error)

    def holds(self, content: Content) -> bool:
        """Whether all or a part of the bytes is here, as far as can be seen without reading them."""
        return os.path.exists(self.whole_path(content)) or os.path.exists(self.parts_path(content))

    def drop(self, content: Content) -> None:
        """Forget the bytes of ``content``; whoever has them open reads on."""
        self._known.pop(content.key, None)
        whole, parts = self.whole_path(content), self.parts_path(content)
        for path in (whole + ".facts", whole, parts + ".map", parts):
            if not remove(path):
                self.say("what is damaged there cannot be removed; the remote is read instead")

    def verify(self, content: Content) -> None:
        """Hold what is whole here against its digest, whatever its facts say; what is damaged is dropped."""
        self._known.pop(content.key, None)
        remove(self.whole_path(content) + ".facts")
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
        facts, now = facts_of(handle), time.monotonic()
        known, used = self._known.get(content.key, (None, 0.0))
        if known != facts:
            record = _unsealed(_read(self.whole_path(content) + ".facts"))
            if not (record.get("facts") == facts and record.get("boot") in (None, _boot())):
                is_file = stat.S_ISREG(os.fstat(handle).st_mode)
                if not is_file or facts[0] != content.size or _sha256(handle) != content.sha256:
                    self.say(
                        f"{self.whole_path(content)!r} is damaged; it is dropped and comes again from the remote", once=False
                    )
                    return False
                self.is_whole(content, facts, durable=False)
                return True
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
        if known != facts or now - used >= self._use_seconds:
            self._known[content.key] = (facts, now)
            with contextlib.suppress(OSError):
                os.utime(self.whole_path(content) + ".facts")
        return True

    # ------------------------------------------------------------------ notes

    def note(self, identifier: str, info: ResourceInfo | None) -> None:
        """Remember what the remote said of a resource; None: that there is none."""
        now = time.monotonic()
        known, when = self._noted.get(identifier, (False, 0.0))
        if _same(known, info) and now - when < _USE_SECONDS:
            if self._use_seconds < _USE_SECONDS:
                with contextlib.suppress(OSError):
                    os.utime(self._note_path(identifier))
            return
        if _same(self._read_note(identifier), info):
            with contextlib.suppress(OSError):
                os.utime(self._note_path(identifier))
        else:
            record: dict[str, Any] = {"identifier": identifier, "absent": True}
            if info is not None:
                record = {"identifier": identifier, "size": info.size, "sha256": info.sha256, "blocks": info.blocks.hex()}
                record["modified"] = info.modified
            try:
                data = _sealed(record)
                with self.room(_rounded(len(data))) as fits:
                    if fits:
                        self._replace(self._note_path(identifier), data)
            except OSError as error:
                self.cannot("write to", error)
        if len(self._noted) >= _REMEMBERED:
            self._noted.clear()
        self._noted[identifier] = info, now

    def noted(self, identifier: str) -> ResourceInfo | Literal[False] | None:
        """What the remote said last of a resource: None, that there is none; False: nothing is known."""
        noted = self._read_note(identifier)
        return self._noted.get(identifier, (False, 0.0))[0] if noted is False else noted

    def _read_note(self, identifier: str) -> ResourceInfo | Literal[False] | None:
        record = _unsealed(_read(self._note_path(identifier)))
        with contextlib.suppress(ValueError, KeyError, TypeError):
            if record["identifier"] != identifier:
                return False
            if record.get("absent"):
                return None
            blocks = bytes.fromhex(record["blocks"])
            return ResourceInfo(identifier, int(record["size"]), record["sha256"], blocks, record["modified"])
        return False

    def forget(self, identifier: str) -> None:
        """Know nothing of a resource any more."""
        self._noted.pop(identifier, None)
        with contextlib.suppress(OSError):
            os.unlink(self._note_path(identifier))

    def _note_path(self, identifier: str) -> str:
        # No identifier ends with "~", so the note of "a" never meets the folder of the note of "a/b".
        return os.path.join(self._notes, identifier + "~")

    # ------------------------------------------------------------------ upkeep

    def room(self, size: int) -> AbstractContextManager[bool]:
        """Make room for ``size`` bytes to be written while the block lasts; False: there is none."""
        return self.limit.room(size, self._items())

    def held_bytes(self) -> int:
        """What all files take on the disk now."""
        return sum(item.disk_bytes for item in self._items())

    def sweep(self) -> list[str]:
        """Remove what processes that died left behind; return the paths."""
        removed = []
        for path in self._files("unfinished"):
            with contextlib.suppress(OSError):
                owner = os.path.basename(path).rpartition("-")[0]
                age = time.time() - os.stat(path, follow_symlinks=False).st_mtime
                if (is_dead(owner) or age > DAY_SECONDS) and remove(path):
                    removed.append(path)
        for path in self._files("parts"):
            # Completed by a process that died before it could remove the map.
            key = os.path.basename(path).removesuffix(".map")
            if os.path.exists(os.path.join(self.path, "whole", key)) and remove(path):
                removed.append(path)
        return removed

    def unnamed(self, grace_seconds: float) -> list[tuple[Content | None, Garbage]]:
        """Content that no note of any remote names, and that was not used for a while: of replaced and deleted resources."""
        named = set()
        for path in self._files("notes", deep=True):
            record = _unsealed(_read(path))
            named.add(f"{record.get('sha256')}-{record.get('size')}")
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
            if folder in _SUFFIXES:
                suffix = _SUFFIXES[folder]
                for key in {path.removesuffix(suffix) for path in self._files(folder)}:
                    # Facts and maps first: bytes without them are just held against their digest, or are no bytes.
                    paths = (key + suffix, key)
                    size, used = disk_bytes(key, key + suffix)
                    yield Item(paths, used, size)
                continue
            for path in self._files(folder, deep=True):
                size, used = disk_bytes(path)
                # What is unfinished is removed by nobody but sweep().
                yield Item((path,) if folder == "notes" else (), used, size)

    def _files(self, folder: str, *, deep: bool = False) -> Iterator[str]:
        pending = [os.path.join(self.path, folder)]
        while pending:
            with contextlib.suppress(OSError), os.scandir(pending.pop()) as entries:
                for entry in entries:
                    if deep and entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    else:
                        yield entry.path

    def _begun(self) -> str:
        """The name of this process, which sweeps before it does anything else here."""
        pid, owner = self._owner
        if pid != os.getpid():
            owner = this_process()
            self._owner = os.getpid(), owner
            self.sweep()
        return owner

    def moved(self, path: str, target: str) -> None:
        """Give a file its final name."""
        try:
            os.replace(path, target)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            self._make_folder(os.path.dirname(target))
            if os.path.isdir(target):
                remove(target)
            os.replace(path, target)

    def _replace(self, path: str, data: bytes) -> None:
        """Write a file whole, or not at all."""
        temporary = os.path.join(self.path, "unfinished", f"{self._begun()}-{secrets.token_hex(4)}")
        handle = self.opened(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            try:
                written_whole(handle, data, 0)
                stamp(handle)
                if len(data) >= _SYNC_BYTES:
                    os.fsync(handle)
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
            remove(path)  # a pipe
        except (FileNotFoundError, NotADirectoryError):
            self._make_folder(os.path.dirname(path))
        except OSError as error:
            if error.errno not in (errno.EISDIR, errno.ELOOP, errno.ENXIO):
                raise
            remove(path)  # a folder, a link, a socket
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


def stamp(handle: int) -> int:
    """Give a file the time that it is now, to the nanosecond, and return it.

    The clock that files get their times from may stand still for 4 ms, and a change within would not show.
    """
    now = time.time_ns()
    os.utime(handle, ns=(now, now))
    return now


def written_whole(handle: int, data: bytes | memoryview, offset: int) -> None:
    """Write all of ``data``: a disk that is filling up takes a part and says so only at the next write."""
    view = memoryview(data)
    while view:
        n_written = os.pwrite(handle, view, offset)
        offset, view = offset + n_written, view[n_written:]


def _rounded(size: int) -> int:
    return -(-size // PAGE_BYTES) * PAGE_BYTES


def facts_of(handle: int) -> list[int]:
    """What changes when a file does: its size, inode, and times."""
    status = os.fstat(handle)
    return [status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns]


def _sha256(handle: int) -> str:
    digest, offset = hashlib.sha256(), 0
    while chunk := os.pread(handle, COPY_BYTES, offset):
        digest.update(chunk)
        offset += len(chunk)
    return digest.hexdigest()


def _read(path: str) -> bytes:
    try:
        handle = os.open(path, _READ_FLAGS)
    except OSError:
        return b""
    try:
        return os.read(handle, 1 << 24)
    except OSError:
        return b""
    finally:
        os.close(handle)


def _sealed(record: dict[str, Any]) -> bytes:
    text = json.dumps(record).encode()
    return hashlib.sha256(text).hexdigest().encode() + b" " + text


def _unsealed(data: bytes) -> dict[str, Any]:
    """The record of :func:`_sealed`; an empty one if a bit of it is not as it was written."""
    digest, _, text = data.partition(b" ")
    if digest == hashlib.sha256(text).hexdigest().encode():
        with contextlib.suppress(ValueError):
            record = json.loads(text)
            if isinstance(record, dict):
                return record
    return {}


def _same(one: ResourceInfo | Literal[False] | None, other: ResourceInfo | None) -> bool:
    if not isinstance(one, ResourceInfo) or other is None:
        return one is other
    return (one.size, one.sha256, one.modified) == (other.size, other.sha256, other.modified)


@functools.lru_cache(maxsize=1)
def _boot() -> str:
    """Names this boot of the machine: what was written before another one may have been lost with the power."""
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()
    return secrets.token_hex(8)
