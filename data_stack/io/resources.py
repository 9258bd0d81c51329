"""Named streams of bytes or text: lazy, safe across threads, forks or pickling."""

from __future__ import annotations

import hashlib
import io
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from typing import IO, TYPE_CHECKING, Any, Protocol, TypeAlias, Union

from data_stack.exception import ResourceChangedError, UnpicklableResourceError
from data_stack.io.byte_source import ByteSource as ByteSource
from data_stack.io.positional_stream import SourceStream

if TYPE_CHECKING:
    from typing_extensions import Self

#: Longer or more distant ranges are clipped to the resource first, as Python's files allocate the requested length.
_LARGE_BYTES = 1 << 30
#: Limit of positions and lengths, beyond which Python's files raise OverflowError.
_MAX_BYTES = 1 << 62


class GivesResources(Protocol):
    """The method of a storage connector that reopening needs."""

    def get_resource(self, identifier: str) -> StreamedResource: ...


class StreamedResource(io.BufferedIOBase):
    """A named binary stream.

    The resources of a storage connector are *sealed*: lazy (opened by the first read), read-only, with ``read_at`` from any
    thread, independent after a fork, and pickled as (connector, identifier). Other resources wrap a ``buffer`` of the caller, to
    store it under a name. Those of a third party's connector are pickled as (connector, identifier) too, and reopened in a
    forked child.

    Iterating yields chunks of ``chunk_size`` bytes, each time from the start (from the current position if the buffer cannot
    seek); for lines, as ``numpy.loadtxt`` needs them, use a StreamedTextResource. Like a file, a resource has one position:
    threads that share it use ``read_at``.

    Args:
        identifier: the resource's name, e.g. ``"mnist/raw/labels.gz"``.
        buffer: any binary file-like object; closed together with the resource.
        chunk_size: bytes per chunk when iterating.

    Attributes:
        identifier, name: the resource's name.
        chunk_size: bytes per chunk when iterating.
    """

    mode = "rb"

    def __init__(self, identifier: str, buffer: Any, chunk_size: int = 1 << 20) -> None:
        if chunk_size < 1:
            raise ValueError(f"chunk_size must be at least 1 byte, got {chunk_size}")
        self.identifier = self.name = identifier
        self.chunk_size = chunk_size
        self._buffer = buffer
        self._source: ByteSource | None = None
        self._pinned_sha256: str | None = None
        self._connector: GivesResources | None = None
        self._pid = os.getpid()
        self._lock = threading.Lock()

    @classmethod
    def from_source(
        cls,
        identifier: str,
        source: ByteSource,
        connector: GivesResources,
        chunk_size: int = 1 << 20,
    ) -> Self:
        """A sealed resource over ``source``; for storage connectors, which pass themselves for reopening."""
        resource = cls(identifier, io.BufferedReader(SourceStream(source)), chunk_size)
        resource._source, resource._connector = source, connector
        return resource

    def reopen_by(self, connector: GivesResources) -> Self:
        """Set the connector that opens it in another process, unless it has one, and return itself.

        The base class of storage connectors calls it for the resources of ``get_resource``.
        """
        if self._connector is None:
            self._connector = connector
        return self

    @property
    def size(self) -> int:
        """Length in bytes.

        Raises:
            io.UnsupportedOperation: the wrapped buffer cannot seek.
        """
        if self._source is not None:
            return self._source.size
        self._reopen_in_fork()
        with self._lock:
            position = self._buffer.tell()
            try:
                self._buffer.seek(0, os.SEEK_END)
                return int(self._buffer.tell())
            finally:
                self._buffer.seek(position)

    @property
    def sha256(self) -> str | None:
        """SHA-256 recorded by the store, 64 hex digits; None if unknown."""
        return self._source.sha256 if self._source is not None else None

    @property
    def tag(self) -> str | None:
        """The version in the store, such as an ETag, if the store does not know a digest; else None."""
        return self._source.tag if self._source is not None else None

    @property
    def is_sealed(self) -> bool:
        """Whether it is a read-only resource of a storage connector."""
        return self._source is not None

    def pin(self, sha256: str | None) -> Self:
        """Refuse other bytes than those of this digest when it is opened, and return itself; None: accept any."""
        self._pinned_sha256 = sha256
        return self

    def __repr__(self) -> str:
        state = (
            "closed"
            if self.closed
            else "sealed"
            if self._source is not None
            else f"around {type(self._buffer).__name__}"
        )
        return f"<{type(self).__name__} {self.identifier!r}, {state}>"

    def read_at(self, offset: int, size: int) -> bytes:
        """Read ``size`` bytes from ``offset`` on (fewer at the end) without moving the position.

        Any number of threads and processes may do so at once.

        Raises:
            ValueError: ``offset`` or ``size`` is negative.
        """
        offset, size = self._within(offset, size)
        if self._source is None:
            self._stream()
            with self._lock:
                position = self._buffer.tell()
                try:
                    self._buffer.seek(offset)
                    return bytes(self._buffer.read(size))
                finally:
                    self._buffer.seek(position)
        self._stream()
        data = bytearray(min(size, max(0, self._source.size - offset)))
        n_read = self._source.readinto_at(offset, memoryview(data)) if data else 0
        return bytes(data) if n_read == len(data) else bytes(data[:n_read])

    def readinto_at(self, offset: int, buffer: Any, /) -> int:
        """Fill ``buffer`` from ``offset`` on, as :meth:`read_at` reads; return the bytes read, fewer only at the end."""
        view = memoryview(buffer).cast("B")
        if self._source is None:
            n_read = 0
            # In pieces, so that gigabytes are not in memory twice.
            while piece := self.read_at(offset + n_read, min(1 << 20, len(view) - n_read)):
                view[n_read : n_read + len(piece)] = piece
                n_read += len(piece)
            return n_read
        offset, _ = self._within(offset, len(view))
        self._stream()
        return self._source.readinto_at(offset, view) if len(view) else 0

    def _within(self, offset: int, size: int) -> tuple[int, int]:
        """Clip very long or distant ranges to the resource.

        Raises:
            ValueError: offset or length is negative.
        """
        if offset < 0 or size < 0:
            raise ValueError(f"offset and size must not be negative, got {offset} and {size}")
        if offset > _LARGE_BYTES or size > _LARGE_BYTES:
            offset = min(offset, self.size)
            size = min(size, self.size - offset)
        return offset, size

    @property
    def prefetches(self) -> bool:
        """Whether :meth:`prefetch` helps, as each read may be a request to a remote store."""
        if self._source is None:
            return False
        self._stream()
        return self._source.prefetches

    def prefetch(self, ranges: Sequence[tuple[int, int]]) -> int:
        """Fetch ``(offset, size)`` ranges that are about to be read, in one request to a remote store.

        Returns:
            How many of the first ranges are cached now; at least one of any. The cache has some MiB.
        """
        if self._source is None:
            return len(ranges)
        self._stream()
        return self._source.prefetch([self._within(*each) for each in ranges])

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read ``(offset, size)`` ranges, each cut short at the end, in one request where the store can.

        Like :meth:`read_at` it does not move the position, and any number of threads and processes may do so at once.
        """
        ranges = [self._within(*each) for each in ranges]
        if self._source is None:
            return [self.read_at(offset, size) for offset, size in ranges]
        self._stream()
        return self._source.read_ranges(ranges)

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size < -1:
            raise ValueError(f"size must be at least 0, or -1 for all, not {size}")
        stream = self._stream()
        # Python's files allocate the requested length, unless all is asked for.
        end = _MAX_BYTES if self._source is None else self._source.size
        return stream.read(-1 if size is None or size >= end else size)

    def read1(self, size: int = -1, /) -> bytes:
        stream: Any = self._stream()
        return bytes(
            stream.read1(size)
            if hasattr(stream, "read1")
            else stream.read(size if size >= 0 else self.chunk_size)
        )

    def readinto(self, buffer: Any, /) -> int:
        stream: Any = self._stream()
        return (
            (stream.readinto(buffer) or 0)
            if hasattr(stream, "readinto")
            else super().readinto(buffer)
        )

    def readline(self, size: int | None = -1, /) -> bytes:
        return self._stream().readline(-1 if size is None else size)

    def readlines(self, hint: int | None = -1, /) -> list[bytes]:
        return self._stream().readlines(-1 if hint is None else hint)

    def __iter__(self) -> Iterator[bytes]:
        if self.seekable():
            self.seek(0)
        while chunk := self.read(self.chunk_size):
            yield chunk

    def __next__(self) -> bytes:
        """The next chunk from the current position on."""
        if chunk := self.read(self.chunk_size):
            return chunk
        raise StopIteration

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        if abs(offset) > _MAX_BYTES:
            raise ValueError(f"no resource has a byte {offset}")
        self._stream().seek(offset, whence)
        return self.tell()  # tempfile.SpooledTemporaryFile returned None until Python 3.11

    def tell(self) -> int:
        return int(self._stream().tell())

    def readable(self) -> bool:
        return self._says("readable", True)

    def seekable(self) -> bool:
        return self._says("seekable", hasattr(self._buffer, "seek"))

    def fileno(self) -> int:
        return int(self._stream().fileno())

    def writable(self) -> bool:
        return self._says("writable", hasattr(self._buffer, "write"))

    def write(self, data: Any, /) -> int:
        return int(self._stream().write(data))

    def truncate(self, size: int | None = None, /) -> int:
        return int(self._stream().truncate(size))

    def flush(self) -> None:
        if not self.closed and hasattr(self._buffer, "flush"):
            self._buffer.flush()

    def close(self) -> None:
        if not self.closed:
            self._buffer.close()

    @property
    def closed(self) -> bool:
        return bool(getattr(self._buffer, "closed", False))

    def __del__(self) -> None:
        # IOBase would close the caller's buffer with the resource, e.g. after
        # set_resource(identifier, StreamedResource(identifier, buffer)).
        pass

    def __reduce__(self) -> tuple[Callable[..., StreamedResource], tuple[Any, ...]]:
        if self._connector is None:
            what = f"resource {self.identifier!r} wraps a {type(self._buffer).__name__} and cannot be sent to another process"
            raise UnpicklableResourceError(
                f"{what}; store it with set_resource() and send what get_resource() returns"
            )
        return _reopen, (
            self._connector,
            self.identifier,
            self.chunk_size,
            self._pinned_sha256 or self._content_sha256(),
        )

    def _stream(self) -> IO[bytes]:
        """The buffer to use; after a fork, a sealed resource of the child gets its own buffer and position."""
        if self._source is not None and self._pid != os.getpid():
            # tell() takes no lock, so this works even if a thread of the parent was reading at the fork.
            position = self._buffer.tell()
            # Detached, so that dropping it neither closes the source nor waits for a lock of the parent's threads.
            self._buffer.detach().is_owner = False
            self._buffer = io.BufferedReader(SourceStream(self._source, position))
            self._lock, self._pid = threading.Lock(), os.getpid()
        self._reopen_in_fork()
        if self.closed:
            raise ValueError(f"I/O operation on closed resource {self.identifier!r}")
        if self._pinned_sha256 is not None:
            actual = self._content_sha256()
            if actual is not None and actual != self._pinned_sha256:
                raise ResourceChangedError(
                    self.identifier, f"sha256 {self._pinned_sha256}", f"sha256 {actual}"
                )
            self._pinned_sha256 = None  # it is open, and its bytes are fixed now
        buffer: IO[bytes] = self._buffer
        return buffer

    def _reopen_in_fork(self) -> None:
        """Reopen a third party's resource in a forked child, which shares the position of an open file with its parent."""
        if (
            self._source is None
            and self._connector is not None
            and self._pid != os.getpid()
            and not self.closed
        ):
            position = self._buffer.tell()
            self._buffer = self._connector.get_resource(self.identifier)
            self._buffer.seek(position)
            self._lock, self._pid = threading.Lock(), os.getpid()

    def _content_sha256(self) -> str | None:
        """The recorded digest, or that of a buffer in memory; None if unknown."""
        if self._source is not None or not isinstance(self._buffer, io.BytesIO):
            return self.sha256
        return hashlib.sha256(self._buffer.getbuffer()).hexdigest()

    def _says(self, ability: str, default: bool) -> bool:
        say = getattr(self._stream(), ability, None)
        return default if say is None else bool(say())


def _reopen(
    connector: GivesResources, identifier: str, chunk_size: int, sha256: str | None
) -> StreamedResource:
    """Unpickle a resource, whose bytes must be unchanged."""
    resource = connector.get_resource(identifier).reopen_by(connector)
    resource.chunk_size = chunk_size
    return resource.pin(sha256)


#: Argument of ``set_resource``: an object with ``read``, or an iterable of bytes.
Storable = Union["StreamedResource", IO[bytes], Iterable[bytes], bytes, bytearray, memoryview]


class StreamedTextResource(io.TextIOWrapper):
    """A named text stream over a binary one. Iterating yields lines, as of any text file, but always from the first one on.

    Args:
        identifier: the resource's name.
        buffer: the binary stream to decode; closed together with the resource.
        chunk_size: bytes per chunk of the binary stream underneath.
        encoding: any codec of Python's.
        newline: as for :func:`open`; ``""`` for :mod:`csv` with line breaks inside of fields.

    Attributes:
        identifier: the resource's name.
        chunk_size: bytes per chunk of the binary stream underneath.
    """

    mode = "r"

    def __init__(
        self,
        identifier: str,
        buffer: Any,
        chunk_size: int = 1 << 20,
        encoding: str = "utf-8",
        newline: str | None = None,
    ) -> None:
        self.identifier, self.chunk_size = identifier, chunk_size
        self._newline = newline
        super().__init__(buffer, encoding=encoding, newline=newline)

    def reopen_by(self, connector: GivesResources) -> StreamedTextResource:
        """Let another process open it by ``connector``, as :meth:`StreamedResource.reopen_by`, and return itself."""
        binary: Any = self.buffer
        if isinstance(binary, StreamedResource):
            binary.reopen_by(connector)
        else:
            encoding = self.encoding
            binary = StreamedResource(self.identifier, self.detach(), self.chunk_size).reopen_by(
                connector
            )
            super().__init__(binary, encoding=encoding, newline=self._newline)
        return self

    def __reduce__(self) -> tuple[Callable[..., StreamedTextResource], tuple[Any, ...]]:
        buffer: Any = self.buffer
        return StreamedTextResource, (
            self.identifier,
            buffer,
            self.chunk_size,
            self.encoding,
            self._newline,
        )

    def __reduce_ex__(
        self, protocol: Any
    ) -> tuple[Callable[..., StreamedTextResource], tuple[Any, ...]]:
        return self.__reduce__()

    @staticmethod
    def from_streamed_resource(
        resource: StreamedResource, encoding: str = "utf-8", newline: str | None = None
    ) -> StreamedTextResource:
        """Read ``resource`` as text; closing the text closes it."""
        return StreamedTextResource(
            resource.identifier, resource, resource.chunk_size, encoding, newline
        )

    #: The original's spelling.
    from_streamed_resouce = from_streamed_resource

    @property
    def name(self) -> str:
        """The identifier, under the name that files have it."""
        return self.identifier

    def __iter__(self) -> Iterator[str]:  # type: ignore[override]  # typeshed: what iterates is the file itself
        if self.seekable():
            self.seek(0)
        while line := self.readline():
            yield line

    def __next__(self) -> str:  # type: ignore[override]  # typeshed: IOBase returns bytes
        if (
            line := self.readline()
        ):  # not the line of a TextIOWrapper, after which tell() does not work
            return line
        raise StopIteration

    def readlines(self, hint: int | None = -1, /) -> list[str]:  # type: ignore[override]  # typeshed: list[bytes]
        """The lines from the current position on; ``hint`` is ignored."""
        return list(iter(self.readline, ""))


class SupportedStreamedResourceTypes(Enum):
    """How a connector returns a resource: as bytes, or decoded as UTF-8 text."""

    STREAMED_BINARY_RESOURCE = "STREAMED_BINARY_RESOURCE"
    STREAMED_TEXT_RESOURCE = "STREAMED_TEXT_RESOURCE"


class ResourceFactory:
    """Makes resources from file-like objects."""

    SupportedStreamedResourceTypes: TypeAlias = SupportedStreamedResourceTypes

    @staticmethod
    def get_resource(
        identifier: str,
        file_like_object: IO[bytes] | Any,
        chunk_size: int = 1 << 20,
        resource_type: SupportedStreamedResourceTypes = SupportedStreamedResourceTypes.STREAMED_BINARY_RESOURCE,
    ) -> Any:
        """Name ``file_like_object``: a StreamedResource, or a StreamedTextResource where ``resource_type`` says text.

        The result owns the object: closing the one closes the other.
        """
        if resource_type is SupportedStreamedResourceTypes.STREAMED_TEXT_RESOURCE:
            return StreamedTextResource(identifier, file_like_object, chunk_size)
        return StreamedResource(identifier, file_like_object, chunk_size)
