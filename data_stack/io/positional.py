"""A seekable file over a resource with its own position, and checks for parsers."""

from __future__ import annotations

import contextlib
import io
import logging
import mmap
import os
import resource
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from data_stack.exception import (
    DatasetFileCorruptError,
    DataStackError,
    StorageError,
    UnpicklableResourceError,
)
from data_stack.io.byte_source import Positioned
from data_stack.io.location import as_resource
from data_stack.io.resources import StreamedResource
from data_stack.io.stand_ins import HEAD_BYTES, check_no_stand_in
from data_stack.processes.isolation import ISOLATION, run_apart
from data_stack.util.request_limit import check_request

_logger = logging.getLogger(__name__)

#: Limit of claimed bytes per stored byte, above :data:`_HARMLESS_BYTES`.
MAX_EXPANSION = 200
_HARMLESS_BYTES = 64 << 20

_MAX_OPEN_FILES = 4096


class Readable(Protocol):
    """A stream that a format reads from front to end: a file, a resource, a decompressing stream."""

    def read(self, size: int = -1, /) -> bytes:
        """At most ``size`` bytes; none at the end."""


class PositionalFile(Positioned):
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


@contextlib.contextmanager
def reading(name: str, kind: str, file: PositionalFile | None = None) -> Iterator[None]:
    """Raise errors of a parser as DatasetFileCorruptError; our own errors pass.

    Args:
        name: of the file, for the message.
        kind: what the file should be, such as ``".npz file"``.
        file: the file, to say if it is a pointer of Git LFS or a page instead of data.
    """
    try:
        yield
    except (DataStackError, MemoryError):
        raise
    except Exception as error:
        if file is not None:
            check_no_stand_in(file.read_at(0, HEAD_BYTES), repr(name), file.size)
        raise DatasetFileCorruptError(
            f"{name!r} is not a readable {kind}: {type(error).__name__}: {error}"
        ) from error


@contextlib.contextmanager
def lend_or_open(file: Any) -> Iterator[Any]:
    """A stream to read: the file at a path or URL, closed in the end, or the caller's stream.

    Raises:
        As :func:`~data_stack.io.location.as_resource`.
    """
    if hasattr(file, "read"):
        yield file
        return
    with as_resource(file) as resource:
        yield resource


def name_of(file: Any) -> str:
    """The identifier or name of ``file``, for messages."""
    for attribute in ("identifier", "name"):
        name = getattr(file, attribute, None)
        if isinstance(name, str) and name:
            return name
    return f"<{type(file).__name__}>"


def check_expansion(
    name: str, claimed_bytes: int, stored_bytes: int, max_expansion: float | None = MAX_EXPANSION
) -> None:
    """Refuse a header that claims far more bytes than are stored.

    Raises:
        DatasetFileCorruptError: it claims more than 64 MiB and more than ``max_expansion`` times the stored bytes.
    """
    if max_expansion is not None and claimed_bytes > max(
        _HARMLESS_BYTES, max_expansion * stored_bytes
    ):
        what = f"claims {claimed_bytes} bytes of values, but stores {stored_bytes}, more than {max_expansion:g} to 1"
        raise DatasetFileCorruptError(
            f"{name!r} {what}: it is damaged or hostile. If you trust it, pass max_expansion=None"
        )


def check_apart(
    file: PositionalFile, function: str, arguments: Sequence[Any], *, seconds: float = 10.0
) -> None:
    """Parse a file in an isolated process first, unless its store knows its digest.

    Args:
        file: the file.
        function: ``"module:name"``; see :func:`~data_stack.processes.isolation.run_apart`.
        arguments: plain JSON data.
        seconds: limit of its CPU time.

    Raises:
        DatasetFileCorruptError: parsing fails, crashes, or takes too much time or memory.
    """
    if file.resource.sha256 is not None or os.environ.get(ISOLATION, "").strip().lower() in (
        "off",
        "0",
    ):
        return
    try:
        run_apart(
            function,
            arguments,
            name=file.name,
            size=file.size,
            read_at=file.read_at,
            seconds=seconds,
        )
    except OSError as error:
        if isinstance(error, DataStackError):
            raise
        _logger.warning(
            "%s is parsed without isolation, so a damaged file may crash this process: %s",
            file.name,
            error,
        )


def check_unpacked(file: Readable, n_bytes: int) -> None:
    """Check the unpacked size of a stream, unless it is a plain file or buffer.

    Raises:
        RequestLimitError: it exceeds the limit of a request.
    """
    holder = getattr(file, "raw", file)
    if isinstance(holder, (io.BytesIO, io.FileIO)):
        return
    try:
        size = getattr(holder, "size", 0)
    except (OSError, AttributeError):  # not seekable
        size = 0
    if size < n_bytes:
        check_request(n_bytes, f"the values of {name_of(file)!r}")


def map_file(opened: StreamedResource, size: int) -> mmap.mmap | None:
    """Map the file into memory; None if it is not a local file, or the operating system cannot map it."""
    try:
        handle = opened.fileno()
        # A third party's resource may be what it reads out of a file, such as a compressed one.
        return (
            mmap.mmap(handle, size, access=mmap.ACCESS_READ)
            if os.fstat(handle).st_size == opened.size
            else None
        )
    except (AttributeError, io.UnsupportedOperation, OSError, ValueError):
        return None


def most_open_files() -> int:
    """Maximum number of open files: a third of the file descriptors of this process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        _MAX_OPEN_FILES
        if soft == resource.RLIM_INFINITY
        else max(8, min(_MAX_OPEN_FILES, soft // 3))
    )
