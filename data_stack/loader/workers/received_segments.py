"""The segments of shared memory in which another process sends values."""

from __future__ import annotations

import mmap
import weakref
from typing import Any

import numpy as np
import numpy.typing as npt

from data_stack.loader.workers.segment_pool import (
    Content,
    Place,
    ReturnSegments,
    numbers_of_segments,
)
from data_stack.processes.channel import keep_map
from data_stack.util.forks import n_forks


class ReceivedSegments:
    """The segments of another process's pool that this process has mapped.

    A segment stays as it is while anything refers to the value in it. Afterwards it is returned to
    the other process, which writes another value there.
    """

    #: The maps of the segments, by number.
    _maps: dict[int, mmap.mmap]
    #: The segments whose values are copied, as this process maps many others already.
    _copied: set[int]
    #: For each segment with a value, the array to which all arrays of the value refer, and how
    #: often this process had forked when the value came.
    _values: dict[int, tuple[weakref.ref[npt.NDArray[Any]], int]]

    def __init__(self) -> None:
        self._maps = {}
        self._copied = set()
        self._values = {}

    @property
    def n_used(self) -> int:
        """The number of segments with values, since :meth:`take_unused` was called last."""
        return len(self._values)

    def add(self, number: int, mapped: mmap.mmap) -> None:
        """Add a segment."""
        self._maps[number] = mapped
        if not keep_map(mapped):
            self._copied.add(number)

    def drop(self, numbers: list[int]) -> None:
        """Unmap segments without values."""
        for number in numbers:
            del self._maps[number]
            self._copied.discard(number)

    def open(self, content: Content) -> list[Any]:
        """Return the pickle of a received value, and its buffers."""
        arrays: dict[int, npt.NDArray[Any]] = {}
        for number in numbers_of_segments(content):
            # Everything that is made of this array refers to it, and not to the map below it.
            array: npt.NDArray[Any] = np.frombuffer(self._maps[number], np.uint8)
            arrays[number] = array
            self._values[number] = (weakref.ref(array), n_forks())

        buffers: list[Any] = []
        for part in content:
            if not isinstance(part, Place):
                buffers.append(part)
                continue
            view = arrays[part.segment_number].data[part.start : part.stop]
            if part.segment_number in self._copied:
                view = memoryview(bytearray(view))
            buffers.append(view.toreadonly() if part.is_read_only else view)
        return buffers

    def take_unused(self) -> ReturnSegments | None:
        """Return the segments to whose values nothing refers; None without such segments."""
        unused = ReturnSegments([], [])
        for number, (array, n_forks_then) in list(self._values.items()):
            if array() is not None:
                continue
            del self._values[number]
            # A fork may refer to the value: it would see what the other process writes there.
            if n_forks_then == n_forks():
                unused.reusable.append(number)
            else:
                unused.dropped.append(number)
        self.drop(unused.dropped)
        if unused.reusable or unused.dropped:
            return unused
        return None
