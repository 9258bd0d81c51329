"""Memory for the large arrays of batches, which is used again as soon as nobody has the arrays any more.

What numpy frees of arrays of some megabytes, glibc keeps: up to 64 MiB for each thread that has made any, wherever the arrays are
freed. Nobody could give it back at once either, for pages that are new cost several times what it takes to copy a batch into
them. So such arrays lie in memory that is mapped for them alone. What is freed serves the next one, and little of it lies idle.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import mmap
import weakref
from collections import deque
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["LARGE_BYTES", "Memory", "has_own_memory", "new_array", "take_values"]

LARGE_BYTES = 1 << 20
"""From here on arrays are large: glibc gives the memory of such ones back to the system again and again, and gets new pages."""

#: What lies idle at most, in all.
_MOST_IDLE_BYTES = 32 << 20
#: Memory that is larger than this many times what is asked for serves something else.
_LARGEST_FIT = 1.25
#: Of a large array so many bytes are copied at once.
_BYTES_AT_ONCE = 1 << 18
#: Sizes are multiples of this, so that batches that differ a little can take each other's memory.
_STEP_BYTES = 1 << 16

Memory = ctypes.Array[ctypes.c_char]
"""What an array lies in. It ends with the last array on it."""


def new_array(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """As ``numpy.empty``, for an array of a batch: if it is large, its memory may have been another one's, who is gone."""
    dtype = np.dtype(dtype)
    n_bytes = math.prod(shape) * dtype.itemsize
    if n_bytes < LARGE_BYTES or dtype.hasobject:
        return np.empty(shape, dtype)
    memory = _reuse(n_bytes)
    # the memory may be a little larger
    return np.empty(shape, dtype) if memory is None else np.ndarray(shape, dtype, memory)  # type: ignore[arg-type]  # a buffer


def take_values(values: npt.NDArray[Any], places: npt.NDArray[np.integer[Any]]) -> npt.NDArray[Any]:
    """As ``values[places]``, for an array of a batch, see :func:`new_array`.

    Numpy takes values only into memory that is new, if they do not lie one behind the other. So few of a large array are taken at
    once, which stay in the processor's cache, and copied: new pages for all of them would cost several times that.

    Args:
        values: shape ``(n,)``.
        places: shape ``(m,)``, each in ``[0, n)``.

    Raises:
        IndexError: one of the places lies outside.
    """
    if len(places) * values.itemsize < LARGE_BYTES or values.dtype.hasobject:
        return values.take(places) if values.flags.c_contiguous else values[places]  # take would copy them all first
    found = new_array((len(places),), values.dtype)
    n_at_once = max(1, _BYTES_AT_ONCE // values.itemsize)
    for start in range(0, len(places), n_at_once):
        found[start : start + n_at_once] = values[places[start : start + n_at_once]]
    return found


def has_own_memory(array: npt.NDArray[Any]) -> bool:
    """Whether an array is no view: its memory is numpy's, or was made for it by :func:`new_array`."""
    return array.flags.owndata or isinstance(array.base, _OwnMemory)


class _OwnMemory:
    """Marks memory that was made for one array."""


def _reuse(n_bytes: int) -> Memory | None:
    """Memory that nobody has any more, or new one. None where the system has no such maps."""
    if not hasattr(mmap, "MAP_PRIVATE"):  # Windows
        return None
    n_bytes = -(-n_bytes // _STEP_BYTES) * _STEP_BYTES
    try:
        mapped = _take_from_idle(n_bytes) or _map(n_bytes)
    except OSError:  # numpy says it better that there is no memory, or has some
        return None
    memory = _memory_type(len(mapped)).from_buffer(mapped)
    weakref.finalize(memory, _lay_idle, mapped).atexit = False
    return memory


# Filled whenever the garbage collector likes to, in whatever thread, so nothing here takes a lock.
_idle: deque[mmap.mmap] = deque()


def _take_from_idle(n_bytes: int) -> mmap.mmap | None:
    for mapped in sorted(_idle.copy(), key=len):
        if n_bytes <= len(mapped) <= n_bytes * _LARGEST_FIT:
            try:
                _idle.remove(mapped)
            except (ValueError, IndexError):  # another thread was quicker
                continue
            return mapped
    return None


def _map(n_bytes: int) -> mmap.mmap:
    mapped = mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        mapped.madvise(mmap.MADV_HUGEPAGE)
    return mapped


def _lay_idle(mapped: mmap.mmap) -> None:
    """Nobody has the array any more that lay there."""
    _idle.append(mapped)
    with contextlib.suppress(IndexError):  # another thread was quicker
        while sum(map(len, _idle.copy())) > _MOST_IDLE_BYTES:
            _idle.popleft()


@functools.lru_cache(maxsize=256)
def _memory_type(n_bytes: int) -> type[Memory]:
    return type("Memory", (_OwnMemory, ctypes.Array), {"_type_": ctypes.c_char, "_length_": n_bytes})
