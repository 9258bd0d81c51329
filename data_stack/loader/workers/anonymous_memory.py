"""Memory without a name that processes share by its descriptor: gone with the last process that has it."""

from __future__ import annotations

import os
import tempfile

__all__ = ["anonymous_memory"]


def anonymous_memory(n_bytes: int) -> int:
    """A descriptor of ``n_bytes`` zeros; nothing of it is in /dev/shm or any other folder.

    Its pages take memory once they are written to. The caller closes it.

    Raises:
        OSError: there are too many open files, or, where the system has no memfd, no room for a temporary file.
    """
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("data_stack batches", os.MFD_CLOEXEC)
    else:  # macOS: a file that has no name any more
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    try:
        os.ftruncate(descriptor, n_bytes)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
