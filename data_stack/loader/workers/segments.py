"""Shared memory in which batches travel: a worker writes, the consumer's arrays are views, garbage collection frees.

A worker has a few *segments*, pieces of anonymous memory that the consumer's process maps as well. It writes a batch into a free
one. The consumer gets arrays that lie in it, without a copy, and may keep them for as long as it likes and write into them:
the segment is free again when the last array on it is gone. A segment costs a descriptor in the consumer's process, so once
it keeps many batches, further ones are copied out and leave theirs at once. What a fork of the consumer's process finds lent is
not written to again.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from data_stack.loader.workers.anonymous_memory import anonymous_memory
from data_stack.loader.workers.parcels import ByteArray, Spans, aligned, spans_of
from data_stack.util.large_arrays import LARGE_BYTES, Memory, memory_in

__all__ = ["Leases", "SegmentReader", "SegmentWriter"]

_SMALLEST_BYTES = 1 << 16
# Free segments take no more than so much together, or are just one: of large batches few are on their way at once.
_MOST_FREE_BYTES = 1 << 25


class SegmentWriter:
    """The segments of a worker, in its process.

    Large arrays of a batch can be made in the segment in which it will travel, and are not copied then: see :meth:`open`.

    Args:
        n_kept: how many free ones to keep; more are given back. Of large ones fewer are kept.
    """

    def __init__(self, n_kept: int) -> None:
        self._n_kept = n_kept
        self._maps: dict[int, mmap.mmap] = {}
        self._free: list[int] = []
        self._n_made = 0
        self._unsent: dict[int, int] = {}  # descriptors of those that the consumer does not know
        self._given_back: list[int] = []
        self._open: _OpenSegment | None = None
        self._made_in: dict[int, list[weakref.ref[Memory]]] = {}  # by segment, the memory of arrays that were made there
        self._last_bytes = 0

    def open(self) -> None:
        """Have a segment ready for the arrays of the next batch, which is taken to be as large as the one before."""
        self._close()
        if self._last_bytes >= LARGE_BYTES:
            number = self._room(self._last_bytes)
            self._open = _OpenSegment(number, self._maps[number])

    def memory(self, n_bytes: int) -> Memory | None:
        """Memory for an array of the batch that is being made; None where there is no room for it."""
        return None if self._open is None else self._open.memory(n_bytes)

    def write(self, buffers: Sequence[memoryview]) -> tuple[int, Spans, int | None]:
        """Write buffers into a segment; those that were made in the one that is open are there already.

        Returns:
            The segment's number; where in it they lie; and its descriptor if it is new. The caller closes that.
        """
        opened, spans = self._open, None
        if opened is not None and (spans := opened.spans_of(buffers)) is not None:
            number, self._open = opened.number, None
            self._made_in[number] = opened.made
        else:
            self._close()
            spans, n_bytes = spans_of(buffers)
            number = self._room(n_bytes)
        target = memoryview(self._maps[number])
        for buffer, (start, stop, _) in zip(buffers, spans, strict=True):
            if start < stop and _address(buffer) != _address(target[start:stop]):
                target[start:stop] = buffer
        self._last_bytes = _end_of(spans)
        return number, spans, self._unsent.pop(number, None)

    def free(self, numbers: Sequence[int], lost: Sequence[int]) -> None:
        """The consumer needs some segments no longer; those of ``lost`` must not be written to again, though."""
        for number in lost:
            self._made_in.pop(number, None)
            del self._maps[number]
        self._free += numbers
        while len(self._free) > self._n_kept or self._is_too_much_free():
            self._give_back(self._free.pop(0))

    def given_back(self) -> list[int]:
        """The segments that exist no longer, since this was asked for last."""
        numbers, self._given_back = self._given_back, []
        return numbers

    def _room(self, n_bytes: int) -> int:
        """A free segment of so many bytes at least, which is free no longer."""
        fitting = [number for number in self._free if len(self._maps[number]) >= n_bytes and not self._has_arrays(number)]
        if fitting:
            number = min(fitting, key=lambda each: len(self._maps[each]))
            self._free.remove(number)
            return number
        if self._free:  # too small, and so for the batches to come
            self._give_back(self._free.pop(0))
        size = max(_SMALLEST_BYTES, 1 << (n_bytes - 1).bit_length())
        descriptor = anonymous_memory(size)
        try:
            self._maps[self._n_made] = mmap.mmap(descriptor, size)
        except BaseException:
            os.close(descriptor)
            raise
        self._unsent[self._n_made] = descriptor
        self._n_made += 1
        return self._n_made - 1

    def _close(self) -> None:
        """Nothing more is made in the segment that is open, and nothing of it was sent."""
        if self._open is not None:
            self._made_in[self._open.number] = self._open.made
            self._free.append(self._open.number)
            self._open = None

    def _has_arrays(self, number: int) -> bool:
        """Whether there are arrays of this process in a segment, which whoever keeps them would see change."""
        return any(memory() is not None for memory in self._made_in.get(number, ()))

    def _is_too_much_free(self) -> bool:
        return len(self._free) > 1 and sum(len(self._maps[number]) for number in self._free) > _MOST_FREE_BYTES

    def _give_back(self, number: int) -> None:
        self._made_in.pop(number, None)
        del self._maps[number]
        if number in self._unsent:
            os.close(self._unsent.pop(number))
        else:
            self._given_back.append(number)


class _OpenSegment:
    """A segment while the arrays of a batch are made in it, one behind the other."""

    def __init__(self, number: int, mapped: mmap.mmap) -> None:
        self.number, self._map = number, mapped
        self._end = 0
        self.made: list[weakref.ref[Memory]] = []

    def memory(self, n_bytes: int) -> Memory | None:
        start = self._next(n_bytes)
        if start is None:
            return None
        memory = memory_in(self._map, n_bytes, start)
        self.made.append(weakref.ref(memory))
        return memory

    def spans_of(self, buffers: Sequence[memoryview]) -> Spans | None:
        """Where buffers lie, or can lie if they were made elsewhere; None if there is no room, or none of them was made here."""
        place, end_made = _address(memoryview(self._map)), self._end
        spans: Spans = []
        is_worth_it = False
        for buffer in buffers:
            start: int | None = _address(buffer) - place
            if start is not None and 0 <= start < end_made:
                is_worth_it = True
            else:
                start = self._next(buffer.nbytes)
            if start is None:
                return None
            spans.append((start, start + buffer.nbytes, buffer.readonly))
        return spans if is_worth_it else None

    def _next(self, n_bytes: int) -> int | None:
        """Where the next so many bytes are that are not used, and used from now on; None if there are not so many."""
        start = aligned(self._end)
        if start + n_bytes > len(self._map):
            return None
        self._end = start + n_bytes
        return start


class Leases:
    """How many segments the arrays of a consumer may occupy, over all workers.

    Args:
        n_most: so many.
    """

    def __init__(self, n_most: int) -> None:
        self.n_most = n_most
        self.n_now = 0


class SegmentReader:
    """The segments of one worker, in the consumer's process.

    Args:
        leases: shared by the readers of all workers.
    """

    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        self._maps: dict[int, mmap.mmap] = {}
        self._leased: dict[int, weakref.ref[Any]] = {}
        # Filled whenever the garbage collector likes to, in whatever thread: appending is all that happens then.
        self._ended: deque[int] = deque()
        self._free: list[int] = []
        self._lost: list[int] = []
        self._forked: set[int] = set()

    def add(self, number: int, descriptor: int) -> None:
        """Map a new segment; ``descriptor`` is closed.

        Raises:
            OSError: there are too many open files or maps.
        """
        try:
            self._maps[number] = mmap.mmap(descriptor, os.fstat(descriptor).st_size)
        finally:
            os.close(descriptor)

    def drop(self, numbers: Sequence[int]) -> None:
        """Let go of segments that the worker has given back."""
        for number in numbers:
            del self._maps[number]

    def lend(self, number: int, spans: Spans) -> list[ByteArray]:
        """The buffers in a segment, which is free again when nothing refers to their memory any more.

        They are copies of them if too many segments are lent.
        """
        self._collect()
        whole: ByteArray
        if self._leases.n_now < self._leases.n_most:
            # ctypes' object holds the map, and every array that is made of the buffers holds the object.
            memory = _memory_type(len(self._maps[number])).from_buffer(self._maps[number])
            self._leased[number] = weakref.ref(memory, functools.partial(_end, self._ended, number))
            self._leases.n_now += 1
            whole = np.frombuffer(memory, dtype=np.uint8)  # type: ignore[call-overload]  # it is a buffer
        else:
            whole = np.frombuffer(self._maps[number], dtype=np.uint8, count=_end_of(spans)).copy()
            self._free.append(number)
        buffers = [whole[start:stop] for start, stop, _ in spans]
        for buffer, (_, _, is_read_only) in zip(buffers, spans, strict=True):
            if is_read_only:
                buffer.flags.writeable = False
        return buffers

    def release(self, number: int) -> None:
        """Free a segment whose batch nobody wants."""
        self._free.append(number)

    def freed(self) -> tuple[list[int], list[int]]:
        """The segments that are free since this was asked for last, and those that must not be written to any more."""
        self._collect()
        freed = self._free, self._lost
        self._free, self._lost = [], []
        return freed

    def fork(self) -> None:
        """This process has forked: what is lent now lies in the other process, too, which nobody hears of when it is done."""
        self._forked |= set(self._leased)

    def close(self) -> None:
        """Let go of all segments; memory that is lent stays until nothing refers to it."""
        self._leases.n_now -= len(self._leased)
        self._leased.clear()
        self._maps.clear()

    def _collect(self) -> None:
        while self._ended:
            number = self._ended.popleft()
            del self._leased[number]
            self._leases.n_now -= 1
            if number in self._forked:
                self._forked.remove(number)
                del self._maps[number]
                self._lost.append(number)
            else:
                self._free.append(number)


def _end_of(spans: Spans) -> int:
    return max(stop for _, stop, _ in spans)


def _address(buffer: memoryview) -> int:
    address: int = np.frombuffer(buffer, dtype=np.uint8).__array_interface__["data"][0] if buffer.nbytes else -1
    return address


def _end(ended: deque[int], number: int, _: weakref.ref[Any]) -> None:
    ended.append(number)


@functools.cache  # sizes are powers of two
def _memory_type(n_bytes: int) -> type[ctypes.Array[ctypes.c_char]]:
    return ctypes.c_char * n_bytes
