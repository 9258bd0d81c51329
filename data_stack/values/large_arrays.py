"""Memory of large arrays that returns to the operating system as soon as nobody refers to it."""

from __future__ import annotations

import contextlib
import math
import mmap
from typing import Any, Final

import numpy as np
import numpy.typing as npt

#: Arrays of this size get memory of their own. The C library keeps freed memory for each thread,
#: between smaller pieces that are in use: two threads that made batches of 19 MB held 88 MB more
#: than with memory of their own. Smaller arrays would pay more for new pages than for the work.
_LARGE_BYTES: Final = 4 << 20

#: Private: a fork of this process sees no later change.
_FLAGS: Final = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)

#: Pages of 2 MiB rather than 4 KiB, where the system has them: fewer page faults.
_LARGE_PAGES: Final = getattr(mmap, "MADV_HUGEPAGE", None)


class _Memory(mmap.mmap):
    """The memory of one array, which no other array shares."""


def empty_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return an array with arbitrary values, as ``numpy.empty`` does.

    Raises:
        MemoryError: memory is exhausted.
        ValueError: numpy has no array of so many dimensions, or none so large.
    """
    n_bytes = math.prod(shape) * dtype.itemsize
    if n_bytes < _LARGE_BYTES or dtype.hasobject or not _FLAGS:
        return np.empty(shape, dtype)
    try:
        memory = _Memory(-1, n_bytes, _FLAGS)
    except (OSError, OverflowError):
        # numpy's error names the shape.
        return np.empty(shape, dtype)
    if _LARGE_PAGES is not None:
        with contextlib.suppress(OSError):  # a kernel without large pages
            memory.madvise(_LARGE_PAGES)
    array: npt.NDArray[Any] = np.ndarray(shape, dtype, buffer=memory)
    return array


def owns_memory(array: npt.NDArray[Any]) -> bool:
    """Return whether an array is the owner of its memory: no part of another array, file or buffer.

    It holds for arrays of numpy's own memory, and of :func:`empty_array`.
    """
    return array.flags.owndata or isinstance(array.base, _Memory)
