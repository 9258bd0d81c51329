"""Some blocks of a resource in a sparse file, each with its digest, until all are there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence

from data_stack.io.integrity import BLOCK_BYTES, DIGEST_BYTES, block_digest
from data_stack.io.storage_connectors.cached.folder import CacheFolder, Content, written_whole
from data_stack.io.storage_connectors.cached.limit import PAGE_BYTES, lock_soon
from data_stack.util.forks import ForkLock
from data_stack.util.lock_file import unlock

__all__ = ["PartialContent"]

_NOTHING = bytes(DIGEST_BYTES)


class PartialContent:
    """Those blocks of a resource that are on the local disk.

    A block counts as there if its slot of the map holds its digest. Bytes are written before the slot, but nothing rests
    on that: after a kill, a torn write, a power cut or a flipped bit, in the bytes or in the map, the two do not fit, and
    the block is fetched again. Any number of threads and processes may fill in at once.

    Raises:
        OSError: the cache cannot be written to.
    """

    def __init__(self, folder: CacheFolder, content: Content) -> None:
        self._folder, self._content = folder, content
        self._path = folder.parts_path(content)
        self.n_blocks = -(-content.size // BLOCK_BYTES)
        self._lock = ForkLock()
        self._data = self._map = -1
        try:
            self._data = self._opened(self._path, content.size)
            self._map = self._opened(self._path + ".map", self.n_blocks * DIGEST_BYTES)
            os.utime(self._map)
        except BaseException:
            self.close()
            raise
        self._count()

    def read(self, numbers: Sequence[int]) -> dict[int, bytes]:
        """Those of these blocks that are here, and right.

        Raises:
            OSError: the disk failed.
        """
        found = {}
        for number in numbers:
            slot = os.pread(self._map, DIGEST_BYTES, number * DIGEST_BYTES)
            if slot not in (_NOTHING, b""):
                block = os.pread(self._data, self.size_of(number), number * BLOCK_BYTES)
                if len(block) == self.size_of(number) and block_digest(block) == slot:
                    found[number] = block
        return found

    def size_of(self, number: int) -> int:
        """Length of a block."""
        return min(BLOCK_BYTES, self._content.size - number * BLOCK_BYTES)

    def put(self, blocks: Mapping[int, bytes]) -> bool:
        """Write blocks, whole and right ones; False: there is no room, or the file was evicted or completed by somebody else.

        Raises:
            OSError: they could not be written.
        """
        runs = list(_runs(blocks))
        size = sum(len(run) + 2 * PAGE_BYTES for _, run in runs)
        with self._alone() as is_ours:
            if not is_ours:
                return False  # if evicted, going on would fill a disk with what nobody can count or find
            with self._folder.room(size) as fits:
                if not fits:
                    return False
                # In long pieces: a file that was written in short ones is read more slowly, out of memory too.
                for start, run in runs:
                    written_whole(self._data, run, start * BLOCK_BYTES)
                for start, run in _runs({number: block_digest(block) for number, block in blocks.items()}):
                    written_whole(self._map, run, start * DIGEST_BYTES)
        self._n_put += len(blocks)
        return True

    def seems_complete(self) -> bool:
        """Whether all blocks are here, as far as can be seen without reading the map after each block."""
        if 2 * self._n_put < self._n_missing:
            return False
        self._count()
        return self._n_missing == 0

    def complete(self) -> bool:
        """Make a whole resource of all blocks, if they are right.

        Returns:
            False if the bytes as they came from the remote are not what the remote said. If it is not whole now, it is completed
            by somebody else, has no room, or was damaged on the local disk.

        Raises:
            OSError: the disk failed.
        """
        with self._alone() as is_ours:
            if not is_ours:
                return True
            os.fsync(self._data)
            if self._folder.is_sealed_as(self._content, self._data):
                # With the count locked: whoever counts or evicts finds the bytes in one place, not in neither.
                with self._folder.room(PAGE_BYTES) as fits:
                    if fits and self._is_linked():
                        self._folder.moved(self._path, self._folder.whole_path(self._content))
                        with contextlib.suppress(OSError):
                            os.unlink(self._path + ".map")
                return True
            is_as_it_came = all(self.read([number]) for number in range(self.n_blocks))
            self._folder.drop(self._content)
            return not is_as_it_came

    def close(self) -> None:
        """Let go of the files; what is in them stays."""
        for handle in (self._data, self._map):
            if handle >= 0:
                os.close(handle)
        self._data = self._map = -1

    # ------------------------------------------------------------------ inside

    @contextlib.contextmanager
    def _alone(self) -> Iterator[bool]:
        """Keep other threads and processes from writing; False: they take long, or the file has no name any more."""
        with self._lock:
            # Opened anew, for a descriptor that a fork inherited shares its lock with the parent.
            handle = os.open(self._path + ".map", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC) if self._is_linked() else -1
            is_locked = handle >= 0 and lock_soon(handle)
            try:
                yield is_locked and self._is_linked()
            finally:
                if is_locked:
                    unlock(handle)
                if handle >= 0:
                    os.close(handle)

    def _count(self) -> None:
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
