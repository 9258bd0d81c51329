"""The room in the folder of a cache: what its files take, and which of them go first."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from data_stack.io.checked_json import read_checked_json
from data_stack.io.integrity import DIGEST_BYTES
from data_stack.io.storage_connectors.cached.checked_file import PAGE_BYTES
from data_stack.io.storage_connectors.cached.health import FolderHealth, make_cache_folder
from data_stack.io.storage_connectors.cached.shared_work import CLAIMS_FILE
from data_stack.io.storage_connectors.connector import Garbage
from data_stack.util.forks import fork_lock

#: The folders of the files of a content, see :mod:`.folder`.
CONTENT_FOLDERS: Final = ("bytes", "blocks", "pages")
NOTES_FOLDER: Final = "notes"

#: A file system stores files in pages of this size.
DISK_PAGE_BYTES: Final = 4096
#: How much the files of one content may take on the disk besides its bytes and their digests: the
#: last pages of its files, its note, and the folders.
_MAX_EXTRA_BYTES: Final = 8 * DISK_PAGE_BYTES
#: Eviction continues until the folder takes this part of its limit. Scanning the folder for each
#: new file would take longer than fetching the file.
_PART_AFTER_EVICTION: Final = 0.9
#: The unit of ``st_blocks``.
_STAT_BLOCK_BYTES: Final = 512


@dataclass(frozen=True, order=True, slots=True)
class CachedFile:
    """A file in the folder of a cache. The least recently used file is the smallest.

    Attributes:
        used_at: when it was used last, in seconds since 1970.
        disk_bytes: its size on the disk.
        path: its path.
    """

    used_at: float
    disk_bytes: int
    path: str

    @property
    def is_note(self) -> bool:
        """Whether it is a note, not a file of a content."""
        return self.path.endswith("~")

    @property
    def key(self) -> str:
        """The name of the content, if it is a file of one."""
        return os.path.basename(self.path)


class CacheRoom:
    """Evicts the least recently used files of a folder that has a limit.

    Args:
        path: the path of the folder.
        max_bytes: the limit of its size on the disk; None: no limit.
        health: records that there is no room.
    """

    _path: str
    _max_bytes: int | None
    _health: FolderHealth
    #: How many bytes may be written before the folder is scanned again.
    _n_left: int
    #: Held while room is made and taken.
    _lock: threading.Lock

    def __init__(self, path: str, max_bytes: int | None, health: FolderHealth) -> None:
        self._path = path
        self._max_bytes = max_bytes
        self._health = health
        self._n_left = 0
        self._lock = fork_lock()

    def admits(self, size: int) -> bool:
        """Return whether a resource of this size fits below the limit."""
        if self._max_bytes is None:
            return True
        digests_size = size // (PAGE_BYTES // DIGEST_BYTES)
        return size + digests_size + _MAX_EXTRA_BYTES <= self._max_bytes

    def has_room(self, size: int) -> bool:
        """Return whether ``size`` more bytes may be written; evict files if that makes room.

        Raises:
            OSError: the folder cannot be written to.
        """
        make_cache_folder(self._path)
        if self._max_bytes is None:
            return True
        size = -(-size // DISK_PAGE_BYTES) * DISK_PAGE_BYTES
        # One thread scans the folder and evicts, while the others wait for the room.
        with self._lock:
            if size > self._n_left:
                self._n_left = self._make_room(size, self._max_bytes)
            has_room = size <= self._n_left
            if has_room:
                self._n_left -= size
        if not has_room:
            self._health.pause()
        return has_room

    def drop(self, key: str) -> None:
        """Remove the files of a content. Open readers keep theirs."""
        for folder in CONTENT_FOLDERS:
            remove_if_possible(os.path.join(self._path, folder, key))

    def remove_unnamed(self, grace_seconds: float, *, dry_run: bool) -> Iterator[Garbage]:
        """Remove the content of resources that were replaced or deleted.

        It is the content that no note of any remote names, and that was not used lately.

        Args:
            grace_seconds: how long ago the last use must be.
            dry_run: only yield what would be removed.

        Yields:
            Each file that was removed.
        """
        named_keys = set()
        for note_file in self._files(NOTES_FOLDER):
            # Files of other names are notes that were never finished.
            if note_file.is_note:
                note = read_checked_json(note_file.path)
                named_keys.add(f"{note.get('sha256')}-{note.get('size')}")

        for file in list(self._files()):
            if file.is_note or file.key in named_keys:
                continue
            if time.time() - file.used_at <= grace_seconds:
                continue
            if not dry_run:
                remove_if_possible(file.path)
                remove_if_possible(os.path.join(self._path, "pages", file.key))
            yield Garbage(
                file.path, file.disk_bytes, "cached bytes that no resource has any longer"
            )

    def _make_room(self, size: int, max_bytes: int) -> int:
        """Evict files until ``size`` bytes fit; return how many bytes may be written now."""
        files = sorted(self._files(), reverse=True)
        n_used = DISK_PAGE_BYTES + sum(file.disk_bytes for file in files)
        if n_used + size > max_bytes:
            max_used = int(max_bytes * _PART_AFTER_EVICTION) - size
            while files and n_used > max_used:
                file = files.pop()
                self._evict(file)
                n_used -= file.disk_bytes
        if n_used + size > max_bytes:
            return 0
        # After a fourth of the free room is written, the folder is scanned again, as other
        # processes write to it too.
        return max(size, (max_bytes - n_used) // 4)

    def _evict(self, file: CachedFile) -> None:
        if file.is_note:
            remove_if_possible(file.path)
        else:
            # All files of the content: bytes without the digests of their blocks would be taken
            # for a damaged whole file.
            self.drop(file.key)

    def _files(self, folder: str = "") -> Iterator[CachedFile]:
        """Yield the files of the cache, or of one of its folders."""
        for parent, _, names in os.walk(os.path.join(self._path, folder)):
            for name in names:
                if name == CLAIMS_FILE:
                    continue
                # Another process may have removed the file.
                with contextlib.suppress(OSError):
                    file = self._describe_file(parent, name)
                    if file is not None:
                        yield file

    def _describe_file(self, parent: str, name: str) -> CachedFile | None:
        """Return a file with its last use and its size on the disk.

        Returns:
            None for the digests of the pages of a file of bytes, which count with that file.

        Raises:
            OSError: the file is gone.
        """
        path = os.path.join(parent, name)
        bytes_path = os.path.join(self._path, "bytes", name)
        pages_path = os.path.join(self._path, "pages", name)
        if path == pages_path and os.path.exists(bytes_path):
            return None

        status = os.stat(path, follow_symlinks=False)
        n_stat_blocks = status.st_blocks
        if path == bytes_path and os.path.exists(pages_path):
            n_stat_blocks += os.stat(pages_path).st_blocks
        used_at = max(status.st_atime, status.st_mtime)
        return CachedFile(used_at, n_stat_blocks * _STAT_BLOCK_BYTES, path)


def remove_if_possible(path: str) -> None:
    """Remove a file. Errors are ignored: a file that stays is verified before it is read."""
    with contextlib.suppress(OSError):
        os.unlink(path)
