"""Keeps the files of a cache under a limit: counts what is added, and removes what was not used for longest."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from data_stack.util.lock_file import try_lock, unlock

__all__ = ["Item", "SizeLimit", "item_of", "lock_soon", "remove"]

PAGE_BYTES = 4096
#: Who holds the lock only counts, writes a few MiB, or evicts; who waits longer than this reads on without caching.
_LOCK_SECONDS = 2.0
#: … and for so long does not even try: the holder is stopped, or scans a huge folder.
_LOCKED_OUT_SECONDS = 20.0
#: So many items are looked at in a few milliseconds.
_MANY = 500


@dataclass(frozen=True, slots=True)
class Item:
    """What is evicted together.

    Attributes:
        paths: its files, the one that makes it usable last.
        used: when it was used last, seconds since 1970.
        disk_bytes: what it takes on the disk.
    """

    paths: tuple[str, ...]
    used: float
    disk_bytes: int


class SizeLimit:
    """A limit on what the files of a folder take on the disk, shared by all processes that use the folder.

    The count lies in a file: ``used crc``. Room is counted before it is written to, both under one lock, so that a process killed
    in between leaves the count too high, and the next one that needs the room counts again. Whatever cannot be locked, read or
    believed leads to no room, or to counting again: a reader is never held up for long.

    Args:
        open_count: opens the file of the count.
        max_bytes: the limit; None: there is none.
    """

    def __init__(self, open_count: Callable[[], int], max_bytes: int | None) -> None:
        self._open_count, self._max_bytes = open_count, max_bytes
        self._locked_out_until = 0.0

    def admits(self, size: int) -> bool:
        """Whether something of this size could be kept at all."""
        return self._max_bytes is None or size + size // PAGE_BYTES + 8 * PAGE_BYTES <= self._max_bytes

    @contextlib.contextmanager
    def room(self, size: int, items: Iterable[Item]) -> Iterator[bool]:
        """Make room for ``size`` bytes, to be written while the block lasts; False: there is none.

        Args:
            size: as the disk counts it, rounded up.
            items: what the folder holds, in any order; asked for only when it has to be counted.
        """
        if self._max_bytes is None:
            yield True
            return
        if time.monotonic() < self._locked_out_until:
            yield False
            return
        start = time.monotonic()
        with self._locked() as handle:
            if handle is None:
                if time.monotonic() - start >= _LOCK_SECONDS:
                    self._locked_out_until = time.monotonic() + _LOCKED_OUT_SECONDS
                yield False
                return
            used = self._count(handle)
            if used + size > self._max_bytes:
                used = self._evicted(self._max_bytes - size, items)
            if fits := used + size <= self._max_bytes:
                used += size
            text = b"%d" % used
            os.pwrite(handle, (b"%s %08x" % (text, zlib.crc32(text))).ljust(64), 0)
            yield fits

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int | None]:
        """The file of the count, locked for this thread alone; None if that cannot be had soon, or not at all."""
        try:
            handle = self._open_count()
        except OSError:
            yield None
            return
        is_locked = False
        try:
            is_locked = lock_soon(handle)
            yield handle if is_locked else None
        finally:
            if is_locked:
                unlock(handle)
            os.close(handle)

    def _count(self, handle: int) -> int:
        """The count; more than fits if it cannot be believed."""
        text, _, crc = os.pread(handle, 64, 0).strip().rpartition(b" ")
        is_right = crc == b"%08x" % zlib.crc32(text) and text.isdigit()
        return int(text) if is_right else (self._max_bytes or 0) + 1

    def _evicted(self, most: int, items: Iterable[Item]) -> int:
        """Count anew; if that is more than ``most``, remove the oldest until it fits."""
        found = sorted(items, key=lambda item: item.used, reverse=True)
        used = PAGE_BYTES + sum(item.disk_bytes for item in found)
        if used > most:
            # Of many, some more: counting them for each one that comes would take longer than fetching it.
            goal = most - (min(most // 2, (self._max_bytes or 0) // 10) if len(found) > _MANY else 0)
            while found and used > goal:
                item = found.pop()
                for path in item.paths:
                    remove(path)
                used -= item.disk_bytes
        return used


def lock_soon(handle: int) -> bool:
    """Lock an open file for this descriptor alone; False if that takes too long."""
    pause, end = 0.0005, time.monotonic() + _LOCK_SECONDS
    while not try_lock(handle):  # waiting in the kernel would have no end, should the holder be stopped
        if time.monotonic() > end:
            return False
        time.sleep(pause)
        pause = min(2 * pause, 0.02)
    return True


def item_of(*paths: str, is_removable: bool = True) -> Item:
    """What files take together on the disk; the last of them tells when they were used."""
    total, used = 0, 0.0
    for path in paths:
        with contextlib.suppress(OSError):
            status = os.stat(path, follow_symlinks=False)
            total += status.st_blocks * 512
            used = max(status.st_atime, status.st_mtime)
    return Item(paths if is_removable else (), used, total)


def remove(path: str) -> bool:
    """Remove a file, or whatever else lies in its place; whether that could be done."""
    try:
        os.unlink(path)
    except (IsADirectoryError, PermissionError):
        shutil.rmtree(path, ignore_errors=True)
        return not os.path.lexists(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return True
