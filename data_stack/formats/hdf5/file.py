"""Opens an HDF5 file over a resource of any store."""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import h5py

from data_stack.io.parsing import reading
from data_stack.io.positional import PositionalFile
from data_stack.io.resources import StreamedResource

#: The open files of this process.
_open_roots: weakref.WeakSet[h5py.File] = weakref.WeakSet()


@atexit.register
def _close_roots() -> None:
    """Close all open files.

    Otherwise libhdf5 closes them on exit by calls into Python, which is finalized by then: the
    process would die by SIGSEGV.
    """
    for root in list(_open_roots):
        # The store of a file may be gone.
        with contextlib.suppress(Exception):
            root.close()


class HDF5File:
    """An HDF5 file over a resource, which raises the errors of the resource itself.

    Args:
        resource: a path, a resource of any store, which is read by range, or an open binary file.

    Attributes:
        name: the name of the file in messages.
        resource: the opened resource.
        root: the root group of h5py. Use it within :meth:`reading`.
    """

    name: str
    resource: StreamedResource
    root: Any
    _bytes: _ErrorKeepingFile

    def __init__(self, resource: Any) -> None:
        self._bytes = _ErrorKeepingFile(resource)
        self.name = self._bytes.name
        self.resource = self._bytes.resource
        with self.reading():
            self.root = h5py.File(self._bytes, "r")
        _open_roots.add(self.root)

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Raise errors of HDF5 as ours, and errors of the store unchanged.

        Raises:
            DatasetFileCorruptError: the file is damaged, or no HDF5.
        """
        try:
            with reading(self.name, "HDF5 file", self._bytes):
                yield
        finally:
            failure = self._bytes.take_failure()
            if failure is not None:
                raise failure


class _ThreadFailure(threading.local):
    """The first error of a thread since it was last raised by :meth:`HDF5File.reading`."""

    error: Exception | None = None


class _ErrorKeepingFile(PositionalFile):
    """Keeps an error instead of raising it into HDF5, and returns zeros.

    After an exception in a callback, HDF5 keeps a half-open file and closes it on exit by calls
    into Python, which is finalized by then: a segmentation fault (seen with h5py 3.16, HDF5 2.0).

    Each thread has its own error: HDF5 calls back in the thread that reads. If threads shared it,
    one of them could take the error of another one, which would then return the zeros as samples.
    """

    #: The error of each thread.
    _failure: _ThreadFailure

    def __init__(self, resource: Any) -> None:
        super().__init__(resource)
        self._failure = _ThreadFailure()

    def take_failure(self) -> Exception | None:
        """Return the error of this thread, and forget it; None if nothing failed."""
        error = self._failure.error
        self._failure.error = None
        return error

    def readinto(self, buffer: Any, /) -> int:
        try:
            return super().readinto(buffer)
        except Exception as error:  # noqa: BLE001  # reading() raises it
            self._keep(error)
            view = memoryview(buffer).cast("B")
            view[:] = bytes(len(view))
            return len(view)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        try:
            return super().seek(offset, whence)
        except Exception as error:  # noqa: BLE001  # reading() raises it
            self._keep(error)
            return 0

    def _keep(self, error: Exception) -> None:
        if self._failure.error is None:
            self._failure.error = error
