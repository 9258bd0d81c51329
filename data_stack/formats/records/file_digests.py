"""Digests of files that grow, taken in the background while they are written."""

from __future__ import annotations

import hashlib
import queue
import threading
import weakref
import zlib
from typing import TYPE_CHECKING, Any, Protocol, Union

import numpy as np

from data_stack.formats.records.manifest import BLOCK_BYTES, FileRecord

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined]  # typeshed: Python 3.12

__all__ = ["DigestThreads", "FileDigests"]

#: So many pieces at most wait for each thread: what is written is bounded in memory.
_MOST_WAITING = 4
#: Less than this is hashed at once, as long as no thread is needed for anything else.
_BACKGROUND_BYTES = 1 << 18


class _Hash(Protocol):
    def update(self, data: Any, /) -> None: ...


class _BlockDigests:
    """CRC-32 of each block."""

    def __init__(self) -> None:
        self.finished: list[int] = []
        self.crc, self.n_open = 0, 0

    def update(self, data: Any, /) -> None:
        view = memoryview(data)
        position, end = 0, len(view)
        while position < end:
            n = min(BLOCK_BYTES - self.n_open, end - position)
            self.crc = zlib.crc32(view[position : position + n], self.crc)
            self.n_open += n
            position += n
            if self.n_open == BLOCK_BYTES:
                self.finished.append(self.crc)
                self.crc, self.n_open = 0, 0


class FileDigests:
    """What a manifest says of a file, of bytes as they are appended to it.

    Attributes:
        size: bytes taken in.
    """

    def __init__(self, threads: DigestThreads) -> None:
        self.size = 0
        self._threads = threads
        self._sha256, self._blocks = hashlib.sha256(), _BlockDigests()

    def update(self, data: Buffer) -> None:
        """Take in the next bytes; nobody may change them from now on."""
        view = memoryview(data).cast("B")
        self.size += len(view)
        self._threads.update((self._sha256, self._blocks), view)

    def record(self) -> FileRecord:
        """The digests of all bytes so far; more may follow."""
        self._threads.wait()
        blocks = self._blocks.finished + ([self._blocks.crc] if self._blocks.n_open else [])
        return FileRecord(self.size, self._sha256.hexdigest(), np.array(blocks, np.uint32))


class DigestThreads:
    """Two threads that hash for several files, one for each kind of digest; they begin with the first large piece.

    :meth:`stop` ends them; those of an owner that forgets to end when nobody holds this any more.
    """

    def __init__(self) -> None:
        self._threads: list[_HashThread] = []

    def update(self, hashes: tuple[_Hash, _Hash], view: memoryview) -> None:
        """Take in bytes: here if they are few and no thread runs, else there."""
        if not self._threads:
            if len(view) < _BACKGROUND_BYTES:
                for each in hashes:
                    each.update(view)
                return
            self._threads = [_HashThread(), _HashThread()]
        for thread, each in zip(self._threads, hashes, strict=True):
            thread.update(each, view)

    def wait(self) -> None:
        """Until all is hashed."""
        for thread in self._threads:
            thread.wait()

    def stop(self) -> None:
        """End the threads."""
        threads, self._threads = self._threads, []
        for thread in threads:
            thread.stop()


_Queue = queue.SimpleQueue[Union[tuple[_Hash, memoryview], threading.Event, None]]


class _HashThread:
    def __init__(self) -> None:
        self._waiting: _Queue = queue.SimpleQueue()
        # An item for each piece that there is room for: a semaphore, which is written in Python, takes many times as long.
        self._room: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(_MOST_WAITING):
            self._room.put(None)
        # The thread holds no reference to us, and putting into this kind of queue is safe wherever garbage is collected.
        self._thread = threading.Thread(
            target=_hash_all, args=(self._waiting, self._room), name="data_stack-record-digests", daemon=True
        )
        self._thread.start()
        self._give_up = weakref.finalize(self, self._waiting.put, None)
        self._give_up.atexit = False

    def update(self, hashed: _Hash, view: memoryview) -> None:
        self._room.get()
        self._waiting.put((hashed, view))

    def wait(self) -> None:
        done = threading.Event()
        self._waiting.put(done)
        done.wait()

    def stop(self) -> None:
        self._give_up()
        self._thread.join()


def _hash_all(waiting: _Queue, room: queue.SimpleQueue[None]) -> None:
    while (piece := waiting.get()) is not None:
        if isinstance(piece, threading.Event):
            piece.set()
            continue
        piece[0].update(piece[1])
        del piece  # its memory goes now, not when the next one comes
        room.put(None)
