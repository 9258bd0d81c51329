"""Memory of buffers, which is used again once nobody refers to it."""

from __future__ import annotations

import weakref
from collections import deque
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

#: The memory of a buffer. (A bytearray would be filled with zeros first.)
_Memory: TypeAlias = "npt.NDArray[Any]"

#: A shorter buffer is taken from malloc, which uses the memory of short ones again by itself.
_MIN_BYTES: Final = 256 << 10
#: A longer buffer is taken from the system, and returned to it. It holds no more than it has to.
_MAX_BYTES: Final = 4 << 20
#: The length of a new buffer is a multiple of this, so that it serves buffers of other lengths.
_STEP_BYTES: Final = 256 << 10
#: The memory of a buffer has at most this many times its length.
_MAX_EXCESS: Final = 2
#: The number of unused buffers that are kept.
_MAX_FREE: Final = 16


class ReusedMemory:
    """Lends buffers. Their memory is lent again once the buffer and all views of it are gone.

    New memory is expensive: the system maps and zeroes each of its pages when it is written to for
    the first time, and malloc returns long pieces to the system as soon as they are freed. Filling
    a MiB of new memory took 0.6 ms of processor time, and filling one that was used before 0.05 ms.

    Threads may share it. A forked process goes on with copies of the buffers.
    """

    #: The memory of buffers that nobody uses.
    _free: deque[_Memory]

    def __init__(self) -> None:
        # Finalizers add to it at any time, even while this thread is in lend(). So there is no
        # lock: each use of the deque is one atomic operation. A full deque drops the oldest.
        self._free = deque(maxlen=_MAX_FREE)

    def lend(self, n_bytes: int) -> memoryview:
        """Return a writable buffer.

        Args:
            n_bytes: its length.

        Returns:
            The buffer. It may hold bytes of earlier use, so the caller fills all of it.
        """
        if not _MIN_BYTES <= n_bytes <= _MAX_BYTES:
            return np.empty(n_bytes, np.uint8).data
        memory = self._take_free(n_bytes)
        if memory is None:
            memory = np.empty(-(-n_bytes // _STEP_BYTES) * _STEP_BYTES, np.uint8)
        # The buffer, and each view of it, refers to this array. Once it is gone, so are they.
        array = memory[:n_bytes]
        finalizer = weakref.finalize(array, self._free.append, memory)
        finalizer.atexit = False
        return array.data

    def _take_free(self, n_bytes: int) -> _Memory | None:
        """Return unused memory for a buffer; None if there is none of a suitable length."""
        for _ in range(len(self._free)):
            try:
                memory = self._free.pop()
            except IndexError:  # another thread has taken it
                return None
            if n_bytes <= len(memory) <= _MAX_EXCESS * n_bytes:
                return memory
            self._free.appendleft(memory)
        return None


#: Receives what is read from stores.
received: Final = ReusedMemory()
