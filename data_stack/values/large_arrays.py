"""Memory of large arrays that returns to the operating system as soon as nobody refers to it."""

from __future__ import annotations

import contextlib
import math
import mmap
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final, Optional

import numpy as np
import numpy.typing as npt

#: Arrays of this size get memory of their own. The C library keeps freed memory for each thread,
#: between smaller pieces that are in use: two threads that made batches of 19 MB held 88 MB more
#: than with memory of their own. Smaller arrays would pay more for new pages than for the work.
LARGE_BYTES: Final = 4 << 20

#: Private: a fork of this process sees no later change.
_FLAGS: Final = getattr(mmap, "MAP_PRIVATE", 0) | getattr(mmap, "MAP_ANONYMOUS", 0)

#: Pages of 2 MiB rather than 4 KiB, where the system has them: fewer page faults.
_LARGE_PAGES: Final = getattr(mmap, "MADV_HUGEPAGE", None)


ArrayMaker = Callable[[tuple[int, ...], "np.dtype[Any]"], Optional["npt.NDArray[Any]"]]
"""Makes an array of a shape and dtype, or returns None."""


class LargeMemory(mmap.mmap):
    """The memory of one array, which no other array shares."""


class _MakerOfThread(threading.local):
    """What makes the large arrays of a thread, see :func:`arrays_made_by`."""

    make_array: ArrayMaker | None = None


_maker_of_thread = _MakerOfThread()


@contextlib.contextmanager
def arrays_made_by(make_array: ArrayMaker) -> Iterator[None]:
    """Let a function make the large arrays of this thread.

    So the batches of a loader arise in memory that is used again.

    Args:
        make_array: returns an array with arbitrary values, of a shape and dtype, whose base is a
            :class:`LargeMemory`; or None, for an array of this module.
    """
    before = _maker_of_thread.make_array
    _maker_of_thread.make_array = make_array
    try:
        yield
    finally:
        _maker_of_thread.make_array = before


def empty_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return an array with arbitrary values, as ``numpy.empty`` does.

    Raises:
        MemoryError: memory is exhausted.
        ValueError: numpy has no array of so many dimensions, or none so large.
    """
    make_array = _maker_of_thread.make_array
    if make_array is not None:
        array = make_array(shape, dtype)
        if array is not None:
            return array
    n_bytes = math.prod(shape) * dtype.itemsize
    if n_bytes < LARGE_BYTES or dtype.hasobject:
        return np.empty(shape, dtype)
    memory = new_memory(n_bytes)
    if memory is None:
        # numpy's error names the shape.
        return np.empty(shape, dtype)
    large_array: npt.NDArray[Any] = np.ndarray(shape, dtype, buffer=memory)
    return large_array


def new_memory(n_bytes: int) -> LargeMemory | None:
    """Return private memory of this process; None if there is none, or the system has no maps."""
    if not _FLAGS:
        return None
    try:
        memory = LargeMemory(-1, n_bytes, _FLAGS)
    except (OSError, OverflowError):
        return None
    if _LARGE_PAGES is not None:
        with contextlib.suppress(OSError):  # a kernel without large pages
            memory.madvise(_LARGE_PAGES)
    return memory


def owns_memory(array: npt.NDArray[Any]) -> bool:
    """Return whether an array is the owner of its memory: no part of another array, file or buffer.

    It holds for arrays of numpy's own memory, and of :func:`empty_array`.
    """
    return array.flags.owndata or isinstance(array.base, LargeMemory)
