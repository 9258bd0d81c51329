"""A seekable file over a resource with its own position."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Sequence
from typing import Any

from data_stack.exception import (
    DatasetFileCorruptError,
    StorageError,
    UnpicklableResourceError,
)
from data_stack.io.location import as_resource
from data_stack.io.positional_stream import PositionalStream
from data_stack.io.resources import StreamedResource


class PositionalFile(PositionalStream):
    """Reads a resource by position, so that readers, threads and forked processes can share it.

    Closing it leaves the resource open.

    Args:
        resource: argument of :func:`~data_stack.io.location.as_resource`: the path or URL of a file, a StreamedResource (a text
            resource is read as its bytes), or any seekable binary file.

    Attributes:
        resource: what is read.

    Raises:
        As :func:`~data_stack.io.location.as_resource`.
    """

    def __init__(self, resource: Any) -> None:
        self._pid = os.getpid()
        if isinstance(resource, PositionalFile):
            resource, self._pid = resource.resource, resource._pid
        self.resource: StreamedResource = as_resource(resource)

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
        """``size`` bytes from ``offset`` on, fewer only at the end.

        Raises:
            UnpicklableResourceError: this is a forked child, and the resource an open file of its parent.
        """
        self.check_usable()
        return self.resource.read_at(offset, size)

    def readinto_at(self, offset: int, buffer: Any, /) -> int:
        """Fill ``buffer`` from ``offset`` on; return the bytes read, fewer only at the end."""
        self.check_usable()
        return self.resource.readinto_at(offset, buffer)

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """``(offset, size)`` ranges, each cut short at the end, in one request where the store can."""
        self.check_usable()
        return self.resource.read_ranges(ranges)

    def read_exactly_at(self, offset: int, size: int) -> bytes:
        """``size`` bytes from ``offset`` on.

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
        """A buffered file over the same resource, at its start."""
        return io.BufferedReader(PositionalFile(self), 1 << 17)

    def check_usable(self) -> None:
        # A forked child shares the position of its parent's open file.
        if self._pid != os.getpid():
            try:
                self.resource.__reduce__()
            except UnpicklableResourceError:
                with contextlib.suppress(
                    AttributeError, ValueError
                ):  # io.UnsupportedOperation is one
                    if self.resource.fileno() >= 0:
                        raise
            self._pid = os.getpid()
        if self.resource.closed:
            raise StorageError(
                f"{self.name!r} was closed too early; leave it open, as samples are read lazily"
            )
