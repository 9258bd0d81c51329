"""Some blocks of a resource in a sparse file, each with its digest, until all are there."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Iterator, Mapping

from data_stack.io.integrity import BLOCK_BYTES, DIGEST_BYTES, block_digest
from data_stack.io.storage_connectors.cached.folder import CacheFolder, Content, facts_of, stamp, written_whole
from data_stack.io.storage_connectors.cached.limit import PAGE_BYTES
from data_stack.io.storage_connectors.writer import COPY_BYTES
from data_stack.util.lock_file import try_lock, unlock

__all__ = ["PartialContent"]

_NOTHING = bytes(DIGEST_BYTES)


class PartialContent:
    """Those blocks of a resource that are on the local disk.

    A block counts as there if its slot of the map holds its digest. Bytes are written before the slot, but nothing rests
    on that: after a kill, a torn write, a power cut or a flipped bit, in the bytes or in the map, the two do not fit, and
    the block is fetched again. Any number of threads and processes may fill in at once, for all write the same bytes.

    Raises:
        OSError: the cache cannot be written to.
    """

    def __init__(self, folder: CacheFolder, content: Content) -> None:
        self._folder, self._content = folder, content
        self._path = folder.parts_path(content)
        self.n_blocks = -(-content.size // BLOCK_BYTES)
        #: 1 where a block was held against its digest through this very object: later reads of it are plain.
        self._checked = bytearray(self.n_blocks)
        self._n_checked = 0
        self._filling = threading.Lock()
        self._data = self._map = -1
        try:
            self._data = self._opened(self._path, content.size)
            self._map = self._opened(self._path + ".map", self.n_blocks * DIGEST_BYTES)
        except BaseException:
            self.close()
            raise
        self._rescan()

    # ------------------------------------------------------------------ reading

    def has_checked(self, first: int, end: int) -> bool:
        """Whether the blocks from ``first`` to before ``end`` are here and were found right."""
        return self._n_checked == self.n_blocks or self._checked.count(1, first, end) == end - first

    def missing(self, first: int, end: int) -> list[int]:
        """Which blocks from ``first`` to before ``end`` are not here, or not right.

        Raises:
            OSError: the disk failed.
        """
        return [number for number in range(first, end) if not self._checked[number] and not self._is_right(number)]

    def is_noted(self, number: int) -> bool:
        """Whether a block seems to be here, without looking at it."""
        return bool(self._checked[number]) or os.pread(self._map, DIGEST_BYTES, number * DIGEST_BYTES) not in (_NOTHING, b"")

    def readinto(self, offset: int, buffer: memoryview) -> int:
        """Read from blocks that are here."""
        n_read = 0
        while n_read < len(buffer):
            more = os.preadv(self._data, [buffer[n_read:]], offset + n_read)
            if more == 0:
                break
            n_read += more
        return n_read

    def _is_right(self, number: int) -> bool:
        slot = os.pread(self._map, DIGEST_BYTES, number * DIGEST_BYTES)
        if len(slot) < DIGEST_BYTES or slot == _NOTHING:
            return False
        size = min(BLOCK_BYTES, self._content.size - number * BLOCK_BYTES)
        block = os.pread(self._data, size, number * BLOCK_BYTES)
        if len(block) != size or block_digest(block) != slot:
            return False
        self._check([number])
        return True

    def _check(self, numbers: list[int]) -> None:
        with self._filling:
            for number in numbers:
                self._n_checked += not self._checked[number]
                self._checked[number] = 1

    # ------------------------------------------------------------------ filling

    def put(self, blocks: Mapping[int, bytes]) -> bool | None:
        """Write blocks, whole and right ones; None: somebody is completing the file just now. False: there is no room.

        Raises:
            OSError: they could not be written.
        """
        slots = {number: block_digest(block) for number, block in blocks.items()}
        runs = list(_runs(blocks))
        size = sum(len(run) + 2 * PAGE_BYTES for _, run in runs)
        with self._filling, _flock(self._map, exclusive=False) as free:
            if not free:
                return None
            if not self._is_linked():
                return False  # evicted: going on would fill a disk with what nobody can count or find
            with self._folder.room(size) as fits:
                if not fits:
                    return False
                # In long pieces: a file that was written in short ones is read more slowly, out of memory too.
                for start, run in runs:
                    written_whole(self._data, run, start * BLOCK_BYTES)
                for start, run in _runs(slots):
                    written_whole(self._map, run, start * DIGEST_BYTES)
        self._check(list(blocks))
        self._n_put += len(blocks)
        return True

    def seems_complete(self) -> bool:
        """Whether all blocks are here, as far as can be seen without reading the map after each block."""
        if self._n_checked < self.n_blocks and 2 * self._n_put < self._n_missing:
            return False
        self._rescan()
        return self._n_missing == 0

    def complete(self) -> str | None:
        """Make a whole resource of all blocks, if they are right.

        Returns:
            None if it is whole now, is completed by somebody else, has no room, or was damaged on the local disk. Else the
            SHA-256 of the bytes as they came from the remote, which is not what the remote said.

        Raises:
            OSError: the disk failed.
        """
        with self._filling, _flock(self._map, exclusive=True) as free:
            if not free or not self._is_linked():
                return None
            time_ns = stamp(self._data)
            digest, offset = hashlib.sha256(), 0
            while chunk := os.pread(self._data, COPY_BYTES, offset):
                digest.update(chunk)
                offset += len(chunk)
            if digest.hexdigest() == self._content.sha256 and offset == self._content.size:
                os.fsync(self._data)
                # With the count locked: whoever counts or evicts finds the bytes in one place, not in neither.
                with self._folder.room(PAGE_BYTES) as fits:
                    if not fits or not self._is_linked():
                        return None
                    self._folder.moved(self._path, self._folder.whole_path(self._content))
                    facts = facts_of(self._data)
                    if time_ns in facts:  # else it was changed while it was read
                        self._folder.is_whole(self._content, facts, durable=True)
                    with contextlib.suppress(OSError):
                        os.unlink(self._path + ".map")
                return None
        self._checked, self._n_checked = bytearray(self.n_blocks), 0
        is_as_it_came = not self.missing(0, self.n_blocks)
        self._folder.drop(self._content)
        return digest.hexdigest() if is_as_it_came else None

    def touch(self) -> None:
        """Note that it is used."""
        with contextlib.suppress(OSError):
            os.utime(self._map)

    def close(self) -> None:
        """Let go of the files; what is in them stays."""
        for handle in (self._data, self._map):
            if handle >= 0:
                os.close(handle)
        self._data = self._map = -1

    # ------------------------------------------------------------------ inside

    def _rescan(self) -> None:
        slots = os.pread(self._map, self.n_blocks * DIGEST_BYTES, 0).ljust(self.n_blocks * DIGEST_BYTES, b"\0")
        starts = range(0, len(slots), DIGEST_BYTES)
        self._n_missing, self._n_put = sum(slots[i : i + DIGEST_BYTES] == _NOTHING for i in starts), 0

    def _opened(self, path: str, size: int) -> int:
        handle = self._folder.opened(path, os.O_RDWR | os.O_CREAT)
        try:
            if os.fstat(handle).st_size != size:
                os.ftruncate(handle, size)
            return handle
        except BaseException:
            os.close(handle)
            raise

    def _is_linked(self) -> bool:
        return os.fstat(self._data).st_nlink > 0 and os.fstat(self._map).st_nlink > 0


def _runs(pieces: Mapping[int, bytes]) -> Iterator[tuple[int, bytes]]:
    """Pieces that follow each other, joined."""
    numbers = sorted(pieces)
    starts = [i for i, number in enumerate(numbers) if i == 0 or number != numbers[i - 1] + 1]
    for start, end in zip(starts, [*starts[1:], len(numbers)], strict=True):
        yield numbers[start], b"".join(pieces[number] for number in numbers[start:end])


@contextlib.contextmanager
def _flock(handle: int, *, exclusive: bool) -> Iterator[bool]:
    """Keep writers of blocks and the one who completes the file apart; False: somebody is at work, and nobody waits.

    Where there are no locks, all write the same bytes, so at worst the whole is held against its digest once more.
    """
    is_locked = try_lock(handle, shared=not exclusive)
    try:
        yield is_locked
    finally:
        if is_locked:
            unlock(handle)
