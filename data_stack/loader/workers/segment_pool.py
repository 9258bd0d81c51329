"""Shared memory in which a process sends values, and which it uses again for later values."""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import IO, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from data_stack.processes.channel import (
    POPULATE,
    SMALL_BYTES,
    Channel,
    SharedMemory,
    align,
    anonymous_memory,
)
from data_stack.processes.pickling import dump
from data_stack.util.forks import call_in_forks, fork_lock, n_forks
from data_stack.values.large_arrays import LargeMemory

#: Arrays of this size are made in a segment, so that they need not be copied to be sent. Smaller
#: ones are copied into one segment, together.
_MIN_ARRAY_BYTES: Final = 1 << 20

#: The maximum number of arrays in segments. A dataset may keep arrays as long as it lives, and each
#: segment takes a descriptor.
_MAX_ARRAYS: Final = 16

#: A segment that stays free while more values than this are sent returns to the system. A worker
#: whose batches are used a little later now and then needs one more for a while.
_MAX_UNNEEDED: Final = 4

#: The sizes of segments are multiples of this, so that one fits for values of about one size.
_SIZE_STEP_BYTES: Final = 1 << 16


class Place(NamedTuple):
    """Where a buffer of a value lies.

    Attributes:
        segment_number: the number of the segment, in the process that sends.
        start: the first byte.
        stop: the end, exclusive.
        is_read_only: whether the receiver may not write to it.
    """

    segment_number: int
    start: int
    stop: int
    is_read_only: bool


Content = list["bytes | bytearray | Place"]
"""A pickle and its buffers, in this order: each of them itself if it is small, or its place."""


class AddSegment(NamedTuple):
    """Map a segment, whose memory comes with this message.

    Attributes:
        number: the number of the segment.
    """

    number: int


class DropSegments(NamedTuple):
    """Unmap segments, in which no value will come any more.

    Attributes:
        numbers: the numbers of the segments.
    """

    numbers: list[int]


class ReturnSegments(NamedTuple):
    """Use segments again, as nothing refers to the values in them any more.

    Attributes:
        reusable: the numbers of the segments.
        dropped: the numbers of segments that must not be used again, as a fork may refer to them.
    """

    reusable: list[int]
    dropped: list[int]


@dataclass(slots=True, eq=False)
class _Segment:
    """A piece of shared memory, which this process has mapped.

    Attributes:
        number: its number.
        memory: its bytes.
        file: the file of the memory, until the receiver gets it; None afterwards.
        address: of the first byte in this process.
        n_forks: how often this process had forked when the array in it was made.
        n_unneeded: how many values have been sent while it was free.
        array: the array that was made in it, unless nothing refers to it; None without an array.
    """

    number: int
    memory: LargeMemory
    file: IO[bytes] | None
    address: int
    n_forks: int = 0
    n_unneeded: int = 0
    array: weakref.ref[npt.NDArray[Any]] | None = None

    def __del__(self) -> None:
        # It may have no further use before the receiver gets it.
        if self.file is not None:
            with contextlib.suppress(OSError):  # memory is exhausted
                self.file.close()

    @property
    def size(self) -> int:
        """The number of its bytes."""
        return len(self.memory)

    @property
    def is_known_to_fork(self) -> bool:
        """Whether this process has forked since the array in it was made."""
        return self.n_forks != n_forks()

    @property
    def must_be_copied(self) -> bool:
        """Whether this process, or a fork of it, may refer to the array in it."""
        is_alive = self.array is not None and self.array() is not None
        return is_alive or self.is_known_to_fork


class SegmentPool:
    """Segments of shared memory, in which a process makes arrays and sends them without a copy.

    A segment is *free*, *in use* by an array of this process, or *lent* to the receiver of a value
    until the receiver returns it. As segments are used again, neither process gets new memory from
    the system for each value. Copying a batch of pictures to new shared memory took 8 % of the time
    of decoding them. A segment that is not needed for a few values returns to the system.

    A forked child of this process does not use the segments of its parent. Threads may share a
    pool.

    Args:
        channel: leads to the receiver of the values, who calls
            :class:`~data_stack.loader.workers.received_segments.ReceivedSegments`.
    """

    #: Leads to the receiver.
    _channel: Channel
    #: Whether this process may use the segments: it is not a fork of the one that made them.
    _is_usable: bool
    #: The number of segments that were made.
    _n_made: int
    #: The segments that nothing refers to.
    _free: list[_Segment]
    #: The segments in which arrays of this process lie or lay.
    _in_use: list[_Segment]
    #: The segments that the receiver uses, by number.
    _lent: dict[int, _Segment]
    #: The numbers of segments that the receiver has mapped, and has not been told to unmap.
    _dropped: list[int]

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._is_usable = True
        self._n_made = 0
        self._free = []
        self._in_use = []
        self._lent = {}
        self._dropped = []
        self._lock = fork_lock()
        call_in_forks(self._leave_to_parent)

    # ------------------------------------------------------------------ arrays

    def empty_array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any] | None:
        """Return an array with arbitrary values, in a segment.

        Returns:
            The array; None if it is small, if this process keeps many arrays in segments, or if no
            shared memory is left.

        Raises:
            ValueError: numpy has no array of so many dimensions, or none so large.
        """
        n_bytes = math.prod(shape) * dtype.itemsize
        if n_bytes < _MIN_ARRAY_BYTES or dtype.hasobject or not self._is_usable:
            return None
        # A finalizer may run, and make arrays, while its own thread has the lock.
        if not self._lock.acquire(blocking=False):
            return None
        try:
            self._collect()
            if len(self._in_use) >= _MAX_ARRAYS:
                return None
            try:
                segment = self._take(n_bytes)
            except (OSError, OverflowError):
                return None
            try:
                array: npt.NDArray[Any] = np.ndarray(shape, dtype, buffer=segment.memory)
            except ValueError:
                self._free.append(segment)
                raise
            segment.array = weakref.ref(array)
            segment.n_forks = n_forks()
            self._in_use.append(segment)
            return array
        finally:
            self._lock.release()

    # ------------------------------------------------------------------ values to send

    def lend(self, values: list[Any]) -> Content:
        """Return the content of a message that brings a value, and send the segments it needs.

        An array in a segment goes without a copy, unless this process still refers to it:
        otherwise what one process writes would change the value of the other.

        Args:
            values: one value, which is removed: so nothing refers to its arrays afterwards.

        Raises:
            OSError: no shared memory is left.
            Exception: an object cannot be pickled.
        """
        pickled = dump(values[0])
        buffers = [pickled.content, *pickled.buffers]
        del pickled
        with self._lock:
            self._collect()
            places = self._find_places(buffers)
            content, segments = self._copy_others(buffers, places)
            for buffer in buffers:
                buffer.release()
            values.clear()

            segments += self._lend_places(places, content)
            for segment in segments:
                self._lent[segment.number] = segment
            self._drop_unneeded()
            dropped = self._dropped
            self._dropped = []

        # Not with the lock, which the thread that receives needs to take segments back.
        if dropped:
            self._channel.send(DropSegments(dropped))
        for segment in segments:
            self._send_memory(segment)
        return content

    def take_back(self, returned: ReturnSegments) -> None:
        """Use segments again that the receiver has returned."""
        with self._lock:
            for number in returned.reusable:
                self._free.append(self._lent.pop(number))
            for number in returned.dropped:
                del self._lent[number]

    def _find_places(self, buffers: list[memoryview]) -> dict[int, Place]:
        """Return the places of the buffers that lie in segments, by their numbers."""
        places: dict[int, Place] = {}
        for number, buffer in enumerate(buffers):
            place = self._find_place(buffer)
            if place is None:
                continue
            # Two arrays that overlap become two arrays, as in any other pickle.
            if not any(_overlap(place, other) for other in places.values()):
                places[number] = place
        return places

    def _find_place(self, buffer: memoryview) -> Place | None:
        """Return where a buffer lies, if it is in a segment in use."""
        if buffer.nbytes <= SMALL_BYTES:
            return None
        address = _address_of(buffer)
        for segment in self._in_use:
            start = address - segment.address
            if 0 <= start < segment.size:
                return Place(segment.number, start, start + buffer.nbytes, buffer.readonly)
        return None

    def _copy_others(
        self, buffers: list[memoryview], places: dict[int, Place]
    ) -> tuple[Content, list[_Segment]]:
        """Copy the buffers without a place: into one segment, unless they are small together.

        Returns:
            The content of the message, and the segment of the copies if there is one.

        Raises:
            OSError: no shared memory is left.
        """
        others = [buffer for number, buffer in enumerate(buffers) if number not in places]
        n_bytes = sum(buffer.nbytes for buffer in others)
        segments = []
        if n_bytes > SMALL_BYTES:
            n_bytes_aligned = sum(align(buffer.nbytes) for buffer in others)
            segments.append(self._take(n_bytes_aligned))

        content: Content = []
        start = 0
        for number, buffer in enumerate(buffers):
            if number in places:
                content.append(places[number])
            elif not segments:
                content.append(bytes(buffer) if buffer.readonly else bytearray(buffer))
            else:
                content.append(_copy_into(segments[0], start, buffer))
                start = align(start + buffer.nbytes)
        return content, segments

    def _lend_places(self, places: dict[int, Place], content: Content) -> list[_Segment]:
        """Return the segments of arrays to lend, or of copies if this process refers to the arrays.

        Args:
            places: the places of arrays, by the numbers of their buffers.
            content: gets the places of the copies.

        Raises:
            OSError: no shared memory is left.
        """
        in_use = {segment.number: segment for segment in self._in_use}
        to_lend: dict[int, _Segment] = {}
        for number, place in places.items():
            segment = in_use[place.segment_number]
            if segment.must_be_copied:
                view = memoryview(segment.memory)[place.start : place.stop]
                copy = self._take(view.nbytes)
                copied_place = _copy_into(copy, 0, view)
                content[number] = copied_place._replace(is_read_only=place.is_read_only)
                to_lend[copy.number] = copy
            else:
                to_lend[segment.number] = segment
        self._in_use = [segment for segment in self._in_use if segment.number not in to_lend]
        return list(to_lend.values())

    def _send_memory(self, segment: _Segment) -> None:
        """Send the memory of a segment to the receiver, unless it has it already."""
        segment.array = None
        if segment.file is None:
            return
        memory = SharedMemory(segment.file, segment.size)
        self._channel.send(AddSegment(segment.number), memory)
        segment.file.close()
        segment.file = None

    # ------------------------------------------------------------------ segments

    def _collect(self) -> None:
        """Free the segments of arrays to which nothing refers; drop those that forks may know."""
        still_in_use = []
        for segment in self._in_use:
            is_alive = segment.array is not None and segment.array() is not None
            if is_alive:
                still_in_use.append(segment)
            elif segment.is_known_to_fork:
                self._drop(segment)
            else:
                self._free.append(segment)
        self._in_use = still_in_use

    def _take(self, n_bytes: int) -> _Segment:
        """Return the smallest free segment that is large enough, or a new one.

        Raises:
            OSError: no shared memory is left.
        """
        fitting = [segment for segment in self._free if segment.size >= n_bytes]
        if fitting:
            # Of equal ones, the last used: otherwise all would be used in turn, and all be needed.
            smallest = min(fitting, key=lambda segment: (segment.size, segment.n_unneeded))
            self._free.remove(smallest)
            smallest.n_unneeded = 0
            return smallest

        # A new segment replaces one that is too small, so that their number does not grow.
        if self._free:
            largest = max(self._free, key=lambda segment: segment.size)
            self._free.remove(largest)
            self._drop(largest)
        return self._make(n_bytes)

    def _drop_unneeded(self) -> None:
        """Drop the segments that have not been needed for a few values."""
        still_free = []
        for segment in self._free:
            segment.n_unneeded += 1
            if segment.n_unneeded > _MAX_UNNEEDED:
                self._drop(segment)
            else:
                still_free.append(segment)
        self._free = still_free

    def _drop(self, segment: _Segment) -> None:
        """Let the receiver unmap a segment that is not used again."""
        if segment.file is None:
            self._dropped.append(segment.number)

    def _make(self, n_bytes: int) -> _Segment:
        """Make a segment of at least so many bytes.

        Raises:
            OSError: no shared memory is left.
        """
        size = math.ceil(n_bytes / _SIZE_STEP_BYTES) * _SIZE_STEP_BYTES
        file = anonymous_memory()
        try:
            _reserve(file, size)
            memory = LargeMemory(file.fileno(), size, mmap.MAP_SHARED | POPULATE)
        except BaseException:
            with contextlib.suppress(OSError):  # memory is exhausted
                file.close()
            raise
        address = _address_of(memoryview(memory))
        segment = _Segment(self._n_made, memory, file, address)
        self._n_made += 1
        return segment

    def _leave_to_parent(self) -> None:
        """In a fork, use no segment: the parent goes on to use all of them."""
        self._is_usable = False
        self._free = []
        self._in_use = []
        self._lent = {}


#: Pages are written in pieces of this size where the system cannot reserve them.
_ZEROS: Final = bytes(1 << 16)


def _reserve(file: IO[bytes], size: int) -> None:
    """Reserve memory, so that writing to a map of it cannot fail, which would end the process.

    Raises:
        OSError: the memory is exhausted.
    """
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)
            return
        for _ in range(0, size, len(_ZEROS)):  # macOS
            file.write(_ZEROS)
        file.flush()
    except OSError as error:
        raise OSError(
            error.errno,
            f"no shared memory is left for {size / 1e6:.1f} MB that go to another process: "
            f"{error.strerror}",
        ) from error


def _copy_into(segment: _Segment, start: int, buffer: memoryview) -> Place:
    """Copy a buffer into a segment, and return its place there."""
    stop = start + buffer.nbytes
    memoryview(segment.memory)[start:stop] = buffer
    return Place(segment.number, start, stop, buffer.readonly)


def _address_of(buffer: memoryview) -> int:
    """Return the address of the first byte of a buffer."""
    address: int = np.frombuffer(buffer, np.uint8).__array_interface__["data"][0]
    return address


def _overlap(one: Place, other: Place) -> bool:
    """Return whether two places share bytes."""
    if one.segment_number != other.segment_number:
        return False
    return one.start < other.stop and other.start < one.stop


def numbers_of_segments(content: Iterable[Any]) -> set[int]:
    """Return the numbers of the segments in which the parts of a message lie."""
    return {part.segment_number for part in content if isinstance(part, Place)}
