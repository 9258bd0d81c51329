"""Memory of large arrays that is used again for later arrays, while many of one size are made."""

from __future__ import annotations

import math
import weakref
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from data_stack.util.forks import fork_lock
from data_stack.values.large_arrays import LARGE_BYTES, LargeMemory, new_memory

#: An array may take memory of up to this many times its size.
_MAX_WASTE: Final = 2

#: The maximum number of arrays whose memory a pool remembers. A program may keep all its batches.
_MAX_ARRAYS: Final = 32


@dataclass(frozen=True, slots=True)
class _Used:
    """Memory in which an array lies or lay.

    Attributes:
        memory: the memory.
        array: the array, unless nothing refers to it.
    """

    memory: LargeMemory
    array: weakref.ref[npt.NDArray[Any]]


class ArrayPool:
    """Makes large arrays in the memory of earlier ones to which nothing refers any more.

    The system clears new memory, which took 18 of the 27 µs in which a picture of 150 KB was copied
    into a batch.

    The memory returns to the system with the pool, or with :meth:`clear`. That of an array which
    lives then returns with the array.

    Threads may share a pool. A forked child has a copy of all memory.
    """

    #: The memory that the pool knows.
    _used: list[_Used]

    def __init__(self) -> None:
        self._used = []
        self._lock = fork_lock()

    def empty_array(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any] | None:
        """Return an array with arbitrary values.

        Returns:
            The array; None if it is small, if the program keeps many arrays, or if there is no
            memory.

        Raises:
            ValueError: numpy has no array of so many dimensions, or none so large.
        """
        n_bytes = math.prod(shape) * dtype.itemsize
        if n_bytes < LARGE_BYTES or dtype.hasobject:
            return None
        # A finalizer may run, and make arrays, while its own thread has the lock.
        if not self._lock.acquire(blocking=False):
            return None
        try:
            memory = self._take_unused(n_bytes)
            if memory is None and len(self._used) < _MAX_ARRAYS:
                memory = new_memory(n_bytes)
            if memory is None:
                return None
            array: npt.NDArray[Any] = np.ndarray(shape, dtype, buffer=memory)
            self._used.append(_Used(memory, weakref.ref(array)))
            return array
        finally:
            self._lock.release()

    def clear(self) -> None:
        """Return the memory to the system to which nothing refers, and forget that of arrays."""
        with self._lock:
            self._used = []

    def _take_unused(self, n_bytes: int) -> LargeMemory | None:
        """Return memory of about this size to whose array nothing refers; None without such memory.

        Other unused memory returns to the system.
        """
        fitting: LargeMemory | None = None
        still_used = []
        for used in self._used:
            if used.array() is not None:
                still_used.append(used)
            elif fitting is None and n_bytes <= len(used.memory) <= _MAX_WASTE * n_bytes:
                fitting = used.memory
            elif n_bytes <= len(used.memory) <= _MAX_WASTE * n_bytes:
                still_used.append(used)
        self._used = still_used
        return fitting
