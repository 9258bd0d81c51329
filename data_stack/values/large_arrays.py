"""Memory for the large arrays of batches, reused as soon as the arrays are freed.

glibc keeps the memory of freed arrays of some megabytes, up to 64 MiB for each thread that made any; and returning it at once
would be slow, because fresh pages cost several times what copying a batch into them takes. So these arrays lie in memory
that is mapped for them alone. Freed memory serves the next array, and little of it stays idle.
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

LARGE_BYTES = 1 << 20
"""The size from which arrays are large: glibc would return their memory to the system, and get new pages for the next one."""

#: The limit of idle memory, in all.
_MAX_IDLE_BYTES = 32 << 20
#: The largest memory for a request, as a multiple of it.
_MAX_FIT = 1.25
#: Large arrays are copied in pieces of this size.
_BYTES_AT_ONCE = 1 << 18
#: Sizes are multiples of this, so that batches of similar size can reuse each other's memory.
_STEP_BYTES = 1 << 16

Memory = ctypes.Array[ctypes.c_char]
"""The memory of an array, freed with the last array on it."""


def new_array(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """As ``numpy.empty``, for an array of a batch; a large one may get the memory of a freed one."""
    dtype = np.dtype(dtype)
    n_bytes = math.prod(shape) * dtype.itemsize
    if n_bytes < LARGE_BYTES or dtype.hasobject:
        return np.empty(shape, dtype)
    memory = _reuse(n_bytes)
    # the memory may be a little larger
    return np.empty(shape, dtype) if memory is None else np.ndarray(shape, dtype, memory)  # type: ignore[arg-type]  # a buffer


def take_values(values: npt.NDArray[Any], places: npt.NDArray[np.integer[Any]]) -> npt.NDArray[Any]:
    """As ``values[places]``, for an array of a batch, see :func:`new_array`.

    numpy gathers strided values into new memory only. So a large array is gathered in pieces that fit into the processor's cache,
    and copied: new pages for all of it would cost several times that.

    Args:
        values: shape ``(n,)``.
        places: shape ``(m,)``, each in ``[0, n)``.

    Raises:
        IndexError: one of the places lies outside.
    """
    if len(places) * values.itemsize < LARGE_BYTES or values.dtype.hasobject:
        return values.take(places) if values.flags.c_contiguous else values[places]  # take would copy all values first
    found = new_array((len(places),), values.dtype)
    n_at_once = max(1, _BYTES_AT_ONCE // values.itemsize)
    for start in range(0, len(places), n_at_once):
        found[start : start + n_at_once] = values[places[start : start + n_at_once]]
    return found


def has_own_memory(array: npt.NDArray[Any]) -> bool:
    """Whether an array is not a view: numpy or :func:`new_array` allocated its memory."""
    return array.flags.owndata or isinstance(array.base, _OwnMemory)


class _OwnMemory:
    """Marks memory that was made for one array."""


def _reuse(n_bytes: int) -> Memory | None:
    """Idle or new memory; None if the system cannot map it."""
    if not hasattr(mmap, "MAP_PRIVATE"):  # Windows
        return None
    n_bytes = -(-n_bytes // _STEP_BYTES) * _STEP_BYTES
    try:
        mapped = _take_from_idle(n_bytes) or _map(n_bytes)
    except OSError:  # numpy raises a better error, or has memory left
        return None
    memory = _memory_type(len(mapped)).from_buffer(mapped)
    weakref.finalize(memory, _lay_idle, mapped).atexit = False
    return memory


# The garbage collector fills it at any time in any thread, so nothing here takes a lock.
_idle: deque[mmap.mmap] = deque()


def _take_from_idle(n_bytes: int) -> mmap.mmap | None:
    for mapped in sorted(_idle.copy(), key=len):
        if n_bytes <= len(mapped) <= n_bytes * _MAX_FIT:
            try:
                _idle.remove(mapped)
            except (ValueError, IndexError):  # another thread took it
                continue
            return mapped
    return None


def _map(n_bytes: int) -> mmap.mmap:
    mapped = mmap.mmap(-1, n_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        mapped.madvise(mmap.MADV_HUGEPAGE)
    return mapped


def _lay_idle(mapped: mmap.mmap) -> None:
    """Keep the memory of a freed array."""
    _idle.append(mapped)
    with contextlib.suppress(IndexError):  # another thread took it
        while sum(map(len, _idle.copy())) > _MAX_IDLE_BYTES:
            _idle.popleft()


@functools.lru_cache(maxsize=256)
def _memory_type(n_bytes: int) -> type[Memory]:
    return type("Memory", (_OwnMemory, ctypes.Array), {"_type_": ctypes.c_char, "_length_": n_bytes})
