"""The local folder of a cache.

::

    bytes/<sha256>-<size>           the bytes; a sparse file while blocks are missing
    blocks/<sha256>-<size>          while blocks are missing: their length; and for each of them its digest, or zeros; all 8 bytes
    pages/<sha256>-<size>           once the bytes are whole: the digest of each page of 4 KiB; none of files up to 64 KiB
    notes/<remote>/a/b.gz~          the last ``stat`` of "a/b.gz" in the remote; its modification time is that of the request
    claims                          an empty file whose locks say what a process is fetching, so that others wait for it

None of it is trusted. A verified whole file gets a modification time in the last century that stands for its content. Any later
write changes that time, and the file is verified again; what a failing disk changes without a write is found by the digests of
the pages, on every read. The access time of a file is that of its last use. Damaged files are removed, and come again from the
remote.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import logging
import mmap
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from data_stack.io.byte_source import ByteSource
from data_stack.io.checked_json import read_checked_json, to_checked_json
from data_stack.io.integrity import (
    BLOCK_BYTES,
    DIGEST_BYTES,
    Digest,
    block_digest,
    block_digest_at,
    digests_of_blocks,
)
from data_stack.io.storage_connectors.blocks import runs_of
from data_stack.io.storage_connectors.checked_file import PAGE_BYTES, CheckedFile
from data_stack.io.storage_connectors.connector import Garbage, ResourceInfo
from data_stack.io.storage_connectors.file_source import (
    DigestNotes,
    FileVersion,
    OpenedFile,
    replace_file,
)
from data_stack.io.storage_connectors.memory import BytesSource
from data_stack.io.storage_connectors.owners import this_machine
from data_stack.io.storage_connectors.writer import COPY_BYTES
from data_stack.io.storage_errors import storage_error
from data_stack.util.interrupts import open_descriptor
from data_stack.util.lock_file import RangeLocks
from data_stack.util.polling import polls

logger = logging.getLogger(__name__)
_Result = TypeVar("_Result")

#: Resources up to this size come in one request. Their files are not synced, but verified again after the next boot.
WHOLE_BYTES = 1 << 20
#: Files up to this size are read whole when they are opened, and verified by their SHA-256.
IN_MEMORY_BYTES = 1 << 16
#: Longer blocks of a remote are cached in parts.
MAX_BLOCK_BYTES = 4 << 20
_PAGE_BYTES = 4096
#: Those of a file of 512 MiB.
_MAX_READ_DIGEST_BYTES = 1 << 20
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CLAIMS = "claims"
#: How long to wait for another process before fetching the same. A process that is killed loses its claims at once.
_PATIENCE_SECONDS = 10.0
#: How long nothing is awaited, after something could not be written here.
_USELESS_SECONDS = 10.0
#: The note on an identifier that the remote does not have.
_ABSENT = FileVersion(-1, "")


@dataclass(frozen=True, slots=True)
class Content:
    """The bytes of a resource, by SHA-256 and length."""

    sha256: str
    size: int

    @classmethod
    def of(cls, resource: Any) -> Content | None:
        """That of a resource or its info; None if ``sha256`` is unknown or, as it becomes a file name, not a digest."""
        sha256 = resource.sha256
        return (
            cls(sha256, resource.size)
            if isinstance(sha256, str) and _SHA256.fullmatch(sha256)
            else None
        )

    @property
    def key(self) -> str:
        """Its name in the folder."""
        return f"{self.sha256}-{self.size}"

    @property
    def seal_ns(self) -> int:
        """The modification time of a verified file with these bytes: in whole seconds, which all file systems keep."""
        boot = b"" if self.size > WHOLE_BYTES else this_machine().encode()
        return (
            1 + int.from_bytes(block_digest_at(boot, self.key.encode()), "big") % (1 << 29)
        ) * 1_000_000_000

    def digest_bytes(self, block_bytes: int) -> int:
        """Length of the digests of all blocks."""
        return -(-self.size // block_bytes) * DIGEST_BYTES


class CacheFolder:
    """The local side of a cache. If the folder is full, read-only, damaged or gone, it logs that once and keeps nothing.

    Args:
        path: absolute path of the folder; created by the first write.
        remote: names the remote, as several remotes may share the folder; their notes are separate, their bytes shared.
        max_bytes: limit of the size on the disk; None: no limit.
    """

    def __init__(self, path: str, remote: str, max_bytes: int | None) -> None:
        self.path, self._max_bytes = path, max_bytes
        #: How often the access time is updated; rarely where nothing is evicted.
        self._use_seconds = 60.0 if max_bytes is None else 0.0
        self._notes = DigestNotes(
            os.path.join(path, "notes", hashlib.sha256(remote.encode()).hexdigest()[:16])
        )
        self._said: set[str] = set()
        #: What may be written before the folder is scanned again.
        self._left = 0
        #: Until when, by the monotonic clock, other processes are not waited for, as this folder takes nothing.
        self._useless_until = 0.0

    # ------------------------------------------------------------------ processes of one machine

    def share(
        self,
        key: str,
        numbers: Sequence[int],
        find: Callable[[Sequence[int]], dict[int, _Result]],
        make: Callable[[Sequence[int]], dict[int, _Result]],
    ) -> dict[int, _Result]:
        """Results of numbered work of which one process (or thread) of this machine does each, while the others wait for it.

        This only saves requests: if a process dies, or is too slow, the waiting ones do its work themselves.

        Args:
            key: names the work.
            numbers: which results are wanted, ascending.
            find: returns those that are in this folder.
            make: makes results, and writes them where ``find`` finds them.
        """
        found, waits = find(numbers), polls(_PATIENCE_SECONDS, first=0.001, longest=0.1)
        while missing := [number for number in numbers if number not in found]:
            if time.monotonic() < self._useless_until or not next(waits, False):
                return found | make(missing)
            with self._claim(key, missing) as free:
                found |= find(missing)
                if own := [number for number in free if number not in found]:
                    found |= make(own)
        return found

    def share_one(
        self, key: str, find: Callable[[], _Result | None], make: Callable[[], _Result]
    ) -> _Result:
        """As :meth:`share` for a single result, of which ``find`` returns None if it is missing."""

        def find_it(numbers: Sequence[int]) -> dict[int, _Result]:
            found = find()
            return {} if found is None else {0: found}

        return self.share(key, (0,), find_it, lambda numbers: {0: make()})[0]

    @contextlib.contextmanager
    def _claim(self, key: str, numbers: Sequence[int]) -> Iterator[list[int]]:
        """Yields those numbers that nobody else has claimed, and claims them until the end of the block."""
        try:
            os.makedirs(self.path, mode=0o700, exist_ok=True)
            locks = RangeLocks(os.path.join(self.path, _CLAIMS))
        except OSError:  # who cannot write here shares nothing
            yield list(numbers)
            return
        with contextlib.closing(locks):
            # Each key has 2^24 places of 2^62; a collision costs time.
            start = int.from_bytes(block_digest(key.encode()), "big") >> 26 << 24
            free = list[int]()
            for first, n_numbers in runs_of(numbers):
                run = range(first, first + n_numbers)
                is_free = locks.try_lock(start + first, n_numbers)
                free += [number for number in run if is_free or locks.try_lock(start + number, 1)]
            yield free

    # ------------------------------------------------------------------ content

    def open_whole(
        self, content: Content, read_again: Callable[[], ByteSource]
    ) -> ByteSource | None:
        """Open the verified whole file of ``content``; None if it is missing, or blocks of it are.

        Args:
            content: the bytes of the resource.
            read_again: opens the same bytes where a later read finds damage. The files are removed before it is called.
        """
        path = self._path("bytes", content)
        try:
            with contextlib.ExitStack() as exits:
                handle = os.open(path, os.O_RDONLY | _FLAGS)
                exits.callback(os.close, handle)
                is_partial = self.has(
                    "blocks", content
                )  # asked first: whoever removes them has sealed the file before
                status = os.fstat(handle)
                is_sealed = status.st_size == content.size and status.st_mtime_ns == content.seal_ns
                if is_partial and not is_sealed:
                    return None
                opened: ByteSource | None = None
                if status.st_size != content.size:
                    pass
                elif content.size <= IN_MEMORY_BYTES:
                    opened = _read_verified(content, handle)
                elif (is_sealed and self._has_pages(content)) or self.seal(content, handle):
                    file = OpenedFile(
                        handle, functools.partial(storage_error, f"could not read {path!r}")
                    )
                    opened = CheckedFile(
                        file,
                        content.sha256,
                        self._read_pages(content),
                        functools.partial(self._replace, content, read_again),
                    )
                if opened is not None:
                    if time.time() - status.st_atime >= self._use_seconds:
                        with contextlib.suppress(OSError):
                            os.utime(handle, ns=(time.time_ns(), content.seal_ns))
                    if isinstance(opened, CheckedFile):
                        exits.pop_all()  # it closes the file
                    return opened
        except FileNotFoundError:
            return None
        except OSError as error:
            self.cannot("read", error)
            return None
        self._drop_damaged(content)
        return None

    def _drop_damaged(self, content: Content) -> None:
        self.say(
            f"{content.key!r} is damaged; it is removed and read from the remote again", once=False
        )
        self.drop(content.key)

    def _replace(self, content: Content, read_again: Callable[[], ByteSource]) -> ByteSource:
        """Remove the damaged files of a content, and open its bytes again."""
        self._drop_damaged(content)
        return read_again()

    def _has_pages(self, content: Content) -> bool:
        """Whether there is a digest of each page of the whole file."""
        try:
            status = os.stat(self._path("pages", content), follow_symlinks=False)
        except FileNotFoundError:
            return False
        return status.st_size == content.digest_bytes(PAGE_BYTES)

    def _read_pages(self, content: Content) -> Any:
        """The digests of the pages; many of them mapped, as those of 100 GB take 200 MB, of which a read needs a few bytes.

        Raises:
            OSError: the file is gone or damaged.
        """
        with open_descriptor(self._path("pages", content), _FLAGS) as handle:
            n_bytes = content.digest_bytes(PAGE_BYTES)
            if os.fstat(handle).st_size != n_bytes:
                raise OSError(errno.EIO, "the digests of the pages are incomplete")
            if n_bytes > _MAX_READ_DIGEST_BYTES:
                return mmap.mmap(handle, n_bytes, access=mmap.ACCESS_READ)
            digests = os.pread(
                handle, n_bytes, 0
            )  # an error of the disk is an OSError here, and a signal in a map
        if len(digests) != n_bytes:
            raise OSError(errno.EIO, "the digests of the pages are incomplete")
        return digests

    def seal(self, content: Content, handle: int) -> bool:
        """Verify an open file that has all bytes, and set its modification time unless it was written to meanwhile.

        One process does so, while the others wait for it.

        Raises:
            OSError: the disk failed.
        """

        def is_sealed() -> bool | None:
            has_time = os.fstat(handle).st_mtime_ns == content.seal_ns
            is_complete = has_time and (content.size <= IN_MEMORY_BYTES or self._has_pages(content))
            return True if is_complete else None

        return self.share_one(
            f"{content.key} whole", is_sealed, lambda: self._seal(content, handle)
        )

    def _seal(self, content: Content, handle: int) -> bool:
        os.utime(handle, ns=(0, 0))
        digest, pages = Digest(), list[bytes]()
        while chunk := os.pread(handle, COPY_BYTES, digest.size):
            digest.update(chunk)
            pages.append(digests_of_blocks(chunk, PAGE_BYTES))
        if (digest.sha256, digest.size) != (content.sha256, content.size):
            return False
        if content.size > IN_MEMORY_BYTES:
            replace_file(self._path("pages", content), b"".join(pages))
        if content.size > WHOLE_BYTES:
            os.fsync(handle)
        if os.fstat(handle).st_mtime_ns == 0:
            os.utime(handle, ns=(time.time_ns(), content.seal_ns))
            _remove(self._path("blocks", content))
        return True

    def store_whole(self, content: Content, data: bytes) -> None:
        """Keep verified ``data`` if there is room."""
        try:
            if self.has_room(len(data) + content.digest_bytes(PAGE_BYTES)):
                if content.size > IN_MEMORY_BYTES:
                    replace_file(self._path("pages", content), digests_of_blocks(data, PAGE_BYTES))
                replace_file(self._path("bytes", content), data, content.seal_ns)
        except OSError as error:
            self.cannot("write to", error)

    def open_blocks(self, content: Content, block_bytes: int) -> tuple[int, int, int]:
        """Open or create the files of blocks: that of the bytes, that of the digests, and the length of the blocks.

        Args:
            content: the bytes of the resource.
            block_bytes: length of the blocks of new files.

        Raises:
            OSError: that is not possible.
        """
        if not self.has_room(2 * _PAGE_BYTES):
            raise OSError("the cache is full")
        # Bytes alone were whole, and were written to since by a process that was slow.
        was_whole = self.has("bytes", content) and not self.has("blocks", content)
        with contextlib.ExitStack() as exits:
            handles = []
            for kind in ("blocks", "bytes"):
                os.makedirs(os.path.join(self.path, kind), exist_ok=True)
                handles.append(
                    os.open(self._path(kind, content), os.O_RDWR | os.O_CREAT | _FLAGS, 0o600)
                )
                exits.callback(os.close, handles[-1])
            digests, data = handles
            if os.fstat(data).st_size != content.size:
                os.truncate(data, content.size)
            elif was_whole:
                self.seal(content, data)
            noted = int.from_bytes(os.pread(digests, DIGEST_BYTES, 0), "little")
            is_length = BLOCK_BYTES <= noted <= MAX_BLOCK_BYTES
            if not is_length or os.fstat(digests).st_size != DIGEST_BYTES + content.digest_bytes(
                noted
            ):
                noted = block_bytes
                os.pwrite(digests, noted.to_bytes(DIGEST_BYTES, "little"), 0)
                os.truncate(digests, DIGEST_BYTES + content.digest_bytes(noted))
            if os.fstat(data).st_mtime_ns == content.seal_ns:  # another process was faster
                _remove(self._path("blocks", content))
            exits.pop_all()
            return data, digests, noted

    def has(self, kind: str, content: Content) -> bool:
        """Whether there is a file of the ``"bytes"``, whole or in part, or of the digests of the ``"blocks"``."""
        return os.path.exists(self._path(kind, content))

    def drop(self, key: str) -> None:
        """Remove the files of a content; open readers keep theirs."""
        for kind in ("bytes", "blocks", "pages"):
            _remove(os.path.join(self.path, kind, key))

    def verify(self, content: Content) -> None:
        """Verify the whole file regardless of its modification time, and remove it if it is damaged."""
        with contextlib.suppress(OSError):
            os.utime(self._path("bytes", content), ns=(0, 0), follow_symlinks=False)
        opened = self.open_whole(content, read_nothing)
        if opened is not None:
            opened.close()

    def _path(self, kind: str, content: Content) -> str:
        return f"{self.path}/{kind}/{content.key}"

    # ------------------------------------------------------------------ notes

    def note(self, identifier: str, info: ResourceInfo | None, asked: float = 0.0) -> None:
        """Remember the ``stat`` of a resource in the remote (None: there is no such resource), asked at a monotonic time."""
        facts = () if info is None or info.modified is None else (info.modified,)
        version = _ABSENT if info is None else FileVersion(info.size, info.sha256 or "", facts)
        path, times = (
            self._notes.path_of(identifier),
            (time.time_ns(), _boot_ns() + int(asked * 1e9)),
        )
        try:
            with contextlib.suppress(FileNotFoundError), open_descriptor(path, _FLAGS) as handle:
                if os.read(handle, 1 << 16) == to_checked_json(asdict(version)):
                    return os.utime(handle, ns=times)
            if self.has_room(_PAGE_BYTES):
                self._notes.write(identifier, version, times[1])
        except OSError as error:
            self.cannot("write to", error)

    def read_note(self, identifier: str, since: float | None = None) -> ResourceInfo | None:
        """The last known ``stat`` of a resource; one of size -1 if there was no such resource, None if that is unknown.

        Args:
            identifier: the resource.
            since: only an answer to a request of this monotonic time, or later, since the machine booted.
        """
        if since is not None:
            try:
                asked = (os.stat(self._notes.path_of(identifier)).st_mtime_ns - _boot_ns()) / 1e9
            except OSError:
                return None
            if not max(since, 0.0) <= asked <= time.monotonic():
                return None
        noted = self._notes.read(identifier)
        if noted is None:
            return None
        return ResourceInfo(
            identifier, noted.size, noted.sha256 or None, noted.facts[0] if noted.facts else None
        )

    def forget(self, identifier: str) -> None:
        """Remove the note on a resource."""
        with contextlib.suppress(OSError):
            self._notes.remove(identifier)

    # ------------------------------------------------------------------ room

    def admits(self, size: int) -> bool:
        """Whether a resource of this size fits below the limit."""
        return (
            self._max_bytes is None
            or size + size // (PAGE_BYTES // DIGEST_BYTES) + 8 * _PAGE_BYTES <= self._max_bytes
        )

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
            used = _PAGE_BYTES + sum(disk_bytes for _, disk_bytes, _ in items)
            # Some more is evicted, as scanning the folder for each new file would take longer than fetching it.
            most = (
                self._max_bytes - size
                if used + size <= self._max_bytes
                else self._max_bytes * 9 // 10 - size
            )
            while items and used > most:
                _, disk_bytes, path = items.pop()
                # Both files of a content: one without the digests of its blocks would be taken for a damaged whole one.
                if path.endswith("~"):
                    _remove(path)
                else:
                    self.drop(os.path.basename(path))
                used -= disk_bytes
            # The scan lasts for a fourth of the room that it found: several processes may fill it at once.
            self._left = (
                max(size, (self._max_bytes - used) // 4) if used + size <= self._max_bytes else 0
            )
        if size > self._left:
            self._useless_until = time.monotonic() + _USELESS_SECONDS
            return False
        self._left -= size
        return True

    def remove_unnamed(self, grace_seconds: float, *, dry_run: bool) -> Iterator[Garbage]:
        """Remove content of replaced and deleted resources: that no note of any remote names, and that was not used lately."""
        notes = [
            read_checked_json(path) for _, _, path in self._items("notes") if path.endswith("~")
        ]  # others were never finished
        named = {f"{note.get('sha256')}-{note.get('size')}" for note in notes}
        for used, disk_bytes, path in list(self._items()):
            if (
                not path.endswith("~")
                and os.path.basename(path) not in named
                and time.time() - used > grace_seconds
            ):
                if not dry_run:
                    _remove(path)
                    _remove(os.path.join(self.path, "pages", os.path.basename(path)))
                yield Garbage(path, disk_bytes, "cached bytes that no resource has any longer")

    def _items(self, folder: str = "") -> Iterator[tuple[float, int, str]]:
        """The files of the cache: last use in seconds since 1970, size on the disk, path."""
        for above, _, names in os.walk(os.path.join(self.path, folder)):
            for path in (os.path.join(above, name) for name in names if name != _CLAIMS):
                with contextlib.suppress(OSError):
                    status = os.stat(path, follow_symlinks=False)
                    used, n_blocks = max(status.st_atime, status.st_mtime), status.st_blocks
                    kind, name = os.path.basename(above), os.path.basename(path)
                    if kind == "pages" and os.path.exists(os.path.join(self.path, "bytes", name)):
                        continue  # it counts with the bytes, which know when they were used
                    pages = os.path.join(self.path, "pages", name)
                    if kind == "bytes" and os.path.exists(pages):
                        n_blocks += os.stat(pages).st_blocks
                    yield used, n_blocks * 512, path

    # ------------------------------------------------------------------ trouble

    def say(self, text: str, *, once: bool = True) -> None:
        """Log a warning, once per text."""
        if text not in self._said or not once:
            self._said.add(text)
            logger.warning("cache at %s: %s", self.path, text)

    def cannot(self, action: str, error: OSError) -> None:
        """Log an error of the cache; readers go on with the remote."""
        self._useless_until = time.monotonic() + _USELESS_SECONDS
        self.say(
            f"cannot {action} it ({error.strerror or type(error).__name__}); the remote is read instead"
        )


def _read_verified(content: Content, handle: int) -> ByteSource | None:
    """The bytes of a small file; None if it has others."""
    data = os.pread(handle, content.size + 1, 0)
    if len(data) != content.size or hashlib.sha256(data).hexdigest() != content.sha256:
        return None
    return BytesSource(data, ResourceInfo(content.key, content.size, content.sha256))


def read_nothing() -> ByteSource:
    """For a reader that has another way to the bytes of a damaged file.

    Raises:
        OSError: always.
    """
    raise OSError(errno.EIO, "a cached file is damaged")


@functools.lru_cache(maxsize=1)
def _boot_ns() -> int:
    """Where the monotonic clock of this boot begins, in modification times of the last century: notes of others look too old."""
    return int.from_bytes(block_digest(this_machine().encode()), "big") % (1 << 29) * 1_000_000_000


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
