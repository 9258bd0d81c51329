"""A seekable file over a resource, with a position of its own."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Sequence
from typing import Any, Final

from data_stack.exception import (
    DatasetFileCorruptError,
    StorageError,
    UnpicklableResourceError,
)
from data_stack.io.location import as_resource
from data_stack.io.positional_stream import PositionalStream
from data_stack.io.resources import StreamedResource

_BUFFER_BYTES: Final = 1 << 17


class PositionalFile(PositionalStream):
    """Reads a resource by position, so that readers, threads and forked processes can share it.

    Closing the file leaves the resource open.

    Args:
        resource: argument of :func:`~data_stack.io.location.as_resource`: the path or URL of a
            file, a StreamedResource (a text resource is read as its bytes), any seekable binary
            file, or another PositionalFile.

    Attributes:
        resource: the resource that is read.

    Raises:
        ConfigError, MissingFileError, ResourceNotFoundError, StorageError, TypeError: the resource
            cannot be opened; see :func:`~data_stack.io.location.as_resource`.
    """

    resource: StreamedResource
    #: The process in which the resource may be read, as far as that was checked.
    _pid: int

    def __init__(self, resource: Any) -> None:
        if isinstance(resource, PositionalFile):
            self._pid = resource._pid
            self.resource = resource.resource
        else:
            self._pid = os.getpid()
            self.resource = as_resource(resource)

    def __reduce__(self) -> tuple[Any, ...]:
        return PositionalFile, (self.resource,)

    @property
    def size(self) -> int:
        """Length in bytes."""
        self.check_usable()
        return self.resource.size

    @property
    def name(self) -> str:
        """The resource's identifier."""
        return self.resource.identifier

    def read_at(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes from ``offset`` on, fewer only at the end.

        Raises:
            UnpicklableResourceError: this is a forked child, and the resource an open file of its
                parent.
            StorageError: the resource was closed.
        """
        self.check_usable()
        return self.resource.read_at(offset, size)

    def readinto_at(self, offset: int, buffer: Any, /) -> int:
        """Fill ``buffer`` from ``offset`` on.

        Returns:
            How many bytes were read, fewer only at the end.
        """
        self.check_usable()
        return self.resource.readinto_at(offset, buffer)

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return ``(offset, size)`` ranges, in one request where the store can.

        Each range is cut short at the end of the file.
        """
        self.check_usable()
        return self.resource.read_ranges(ranges)

    def read_views(self, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        """Return ``(offset, size)`` ranges as :meth:`read_ranges` does, for a caller that copies.

        Bytes that are in memory already are not copied. A view may keep many more bytes in memory
        than its own, so it should be dropped soon.
        """
        self.check_usable()
        return self.resource.read_views(ranges)

    def read_exactly_at(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes from ``offset`` on.

        Raises:
            DatasetFileCorruptError: the resource ends before.
        """
        data = self.read_at(offset, size)
        if len(data) != size:
            raise DatasetFileCorruptError(
                f"{self.name!r} is truncated: expected {size} bytes at {offset}, got {len(data)}"
            )
        return data

    def open_buffered(self) -> io.BufferedReader:
        """Return a buffered file over the same resource, at its start."""
        return io.BufferedReader(PositionalFile(self), _BUFFER_BYTES)

    def check_usable(self) -> None:
        """Check that the resource is open, and may be read in this process.

        Raises:
            UnpicklableResourceError: this is a forked child, and the resource an open file of its
                parent.
            StorageError: the resource was closed.
        """
        if self._pid != os.getpid():
            self._check_usable_after_fork()
            self._pid = os.getpid()
        if self.resource.closed:
            raise StorageError(
                f"{self.name!r} was closed too early; leave it open, as samples are read lazily"
            )

    def _check_usable_after_fork(self) -> None:
        """Refuse an open file of the parent in a forked child, which would share its position.

        There is no danger if the resource can be pickled, as it reopens itself then, and if its
        bytes are in memory.

        Raises:
            UnpicklableResourceError: the resource is an open file of the parent.
        """
        try:
            # It raises the error for the user if the resource cannot reopen itself.
            self.resource.__reduce__()
        except UnpicklableResourceError:
            # What is in memory has no descriptor: io.UnsupportedOperation is a ValueError.
            with contextlib.suppress(AttributeError, ValueError):
                if self.resource.fileno() >= 0:
                    raise
