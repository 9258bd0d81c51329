"""A named stream of bytes, as storage connectors return it."""

from __future__ import annotations

import hashlib
import io
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any, Final, Protocol, Union

from data_stack.exception import ResourceChangedError, UnpicklableResourceError
from data_stack.io.byte_source import ByteSource
from data_stack.io.positional_stream import SourceStream
from data_stack.io.read_clock import read_clock
from data_stack.util.forks import fork_lock

if TYPE_CHECKING:
    from typing_extensions import Self

#: Longer or more distant ranges are clipped to the resource first, as Python's files allocate the
#: requested length. The size of a resource may cost a request, so it is not asked for others.
_LARGE_BYTES: Final = 1 << 30
#: Python's files raise OverflowError for larger positions and lengths.
_MAX_BYTES: Final = 1 << 62
#: How much is read at a time into a buffer, out of a file without positional reads.
_PIECE_BYTES: Final = 1 << 20
#: Bytes per chunk when a resource is iterated over.
DEFAULT_CHUNK_BYTES: Final = 1 << 20
#: Held in a forked child while a resource gets a buffer of its own.
_RENEWING: Final = fork_lock()


class GivesResources(Protocol):
    """The one method of a storage connector that is needed to reopen a resource."""

    def get_resource(self, identifier: str) -> StreamedResource: ...


class StreamedResource(io.BufferedIOBase):
    """A named binary stream.

    There are two kinds of resources.

    A *sealed* resource comes from a storage connector of data_stack. It is read-only, and opened by
    the first read. Any thread may call ``read_at``. After a fork, parent and child read it
    independently. It is pickled as (connector, identifier).

    Any other resource wraps a ``buffer``, for example to store it under a name. The connector of a
    third party returns such resources as well; they are pickled as (connector, identifier) too, and
    reopened in a forked child.

    Iterating yields chunks of ``chunk_size`` bytes, each time from the start (from the current
    position if the buffer cannot seek); for lines, as ``numpy.loadtxt`` needs them, use a
    StreamedTextResource. Like a file, a resource has one position: threads that share it use
    ``read_at``.

    Args:
        identifier: the resource's name, e.g. ``"mnist/raw/labels.gz"``.
        buffer: any binary file-like object; closed together with the resource.
        chunk_size: bytes per chunk when iterating.

    Attributes:
        identifier: the resource's name.
        name: the same, as files have it.
        chunk_size: bytes per chunk when iterating.
    """

    mode = "rb"
    identifier: str
    chunk_size: int
    #: What is read by position: the buffer of the caller, or one over the source.
    _buffer: Any
    #: The bytes of a sealed resource; None if the resource wraps a buffer of the caller.
    _source: ByteSource | None
    #: What opens the resource in another process.
    _connector: GivesResources | None
    #: The digest that the bytes must have when the resource is opened; None once it is open.
    _pinned_sha256: str | None
    #: The process that ``_buffer`` and ``_lock`` belong to.
    _pid: int
    #: Guards the position of a buffer of the caller.
    _lock: threading.Lock

    def __init__(self, identifier: str, buffer: Any, chunk_size: int = DEFAULT_CHUNK_BYTES) -> None:
        if chunk_size < 1:
            raise ValueError(f"chunk_size must be at least 1 byte, got {chunk_size}")
        self.identifier = identifier
        self.name = identifier
        self.chunk_size = chunk_size
        self._buffer = buffer
        self._source = None
        self._connector = None
        self._pinned_sha256 = None
        self._pid = os.getpid()
        self._lock = threading.Lock()

    @classmethod
    def from_source(
        cls,
        identifier: str,
        source: ByteSource,
        connector: GivesResources,
        chunk_size: int = DEFAULT_CHUNK_BYTES,
    ) -> Self:
        """Return a sealed resource; for storage connectors.

        Args:
            identifier: the resource's name.
            source: the bytes; closed together with the resource.
            connector: opens the resource in another process.
            chunk_size: bytes per chunk when iterating.
        """
        resource = cls(identifier, io.BufferedReader(SourceStream(source)), chunk_size)
        resource._source = source
        resource._connector = connector
        return resource

    def reopen_by(self, connector: GivesResources) -> Self:
        """Set the connector that opens the resource in another process, unless it has one.

        The base class of storage connectors calls it for the resources of ``get_resource``.

        Returns:
            The resource itself.
        """
        if self._connector is None:
            self._connector = connector
        return self

    def pin(self, sha256: str | None) -> Self:
        """Let opening the resource fail with a ResourceChangedError if it has another digest.

        Args:
            sha256: the expected SHA-256, 64 hex digits; None to accept any bytes.

        Returns:
            The resource itself.
        """
        self._pinned_sha256 = sha256
        return self

    # ------------------------------------------------------------------ what is known of it

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
        if self._source is None:
            return None
        return self._source.sha256

    @property
    def tag(self) -> str | None:
        """The version in a store that does not know the digest, such as an ETag; else None."""
        if self._source is None:
            return None
        return self._source.tag

    @property
    def is_sealed(self) -> bool:
        """Whether it is a read-only resource of a storage connector."""
        return self._source is not None

    def __repr__(self) -> str:
        if self.closed:
            state = "closed"
        elif self.is_sealed:
            state = "sealed"
        else:
            state = f"around {type(self._buffer).__name__}"
        return f"<{type(self).__name__} {self.identifier!r}, {state}>"

    # ------------------------------------------------------------------ reading by position

    def read_at(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes from ``offset`` on, fewer only at the end.

        The position of the resource stays. Any number of threads and processes may read at once.

        Raises:
            ValueError: ``offset`` or ``size`` is negative.
        """
        offset, size = self._clip(offset, size)
        source = self._source
        if source is None:
            return self._seek_and_read(offset, size)
        self._open_sealed()
        n_available = max(0, source.size - offset)
        data = bytearray(min(size, n_available))
        if not data:
            return b""
        with read_clock:
            n_read = source.readinto_at(offset, memoryview(data))
        if n_read < len(data):
            del data[n_read:]
        return bytes(data)

    def readinto_at(self, offset: int, buffer: Any, /) -> int:
        """Fill ``buffer`` from ``offset`` on. The position of the resource stays.

        Returns:
            How many bytes were read, fewer only at the end.
        """
        view = memoryview(buffer).cast("B")
        if self._source is not None:
            offset, _ = self._clip(offset, len(view))
            self._open_sealed()
            if not len(view):
                return 0
            with read_clock:
                return self._source.readinto_at(offset, view)

        # In pieces, so that gigabytes are not in memory twice.
        n_read = 0
        while True:
            piece = self.read_at(offset + n_read, min(_PIECE_BYTES, len(view) - n_read))
            if not piece:
                return n_read
            view[n_read : n_read + len(piece)] = piece
            n_read += len(piece)

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of ``(offset, size)`` ranges, read in one request if the store can.

        A range that goes beyond the end of the resource is cut short. The position of the resource
        stays. Any number of threads and processes may read at once.
        """
        clipped_ranges = [self._clip(offset, size) for offset, size in ranges]
        if self._source is None:
            return [self.read_at(offset, size) for offset, size in clipped_ranges]
        self._open_sealed()
        with read_clock:
            return self._source.read_ranges(clipped_ranges)

    def read_views(self, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
        """Return the bytes of ranges as :meth:`read_ranges` does, for a caller that copies them.

        Bytes that are in memory already are not copied. A view may keep many more bytes in memory
        than its own, so it should be dropped soon. Nobody may write to the memory of a view.
        """
        source = self._source
        if source is None:
            return [memoryview(data) for data in self.read_ranges(ranges)]
        self._open_sealed()
        clipped_ranges = [self._clip(offset, size) for offset, size in ranges]
        with read_clock:
            return source.read_views(clipped_ranges)

    @property
    def prefetches(self) -> bool:
        """Whether :meth:`prefetch` helps, as each read may be a request to a remote store."""
        if self._source is None:
            return False
        self._open_sealed()
        return self._source.prefetches

    def prefetch(self, ranges: Sequence[tuple[int, int]]) -> int:
        """Fetch ``(offset, size)`` ranges that are about to be read.

        They come in one request to a remote store.

        Returns:
            How many of the first ranges are cached now: as many as fit into the cache of a few MiB,
            but at least one.
        """
        if self._source is None:
            return len(ranges)
        self._open_sealed()
        return self._source.prefetch([self._clip(offset, size) for offset, size in ranges])

    def _clip(self, offset: int, size: int) -> tuple[int, int]:
        """Return a range, clipped to the resource if it is very long or distant.

        Raises:
            ValueError: offset or size is negative.
        """
        if offset < 0 or size < 0:
            raise ValueError(f"offset and size must not be negative, got {offset} and {size}")
        if offset > _LARGE_BYTES or size > _LARGE_BYTES:
            offset = min(offset, self.size)
            size = min(size, self.size - offset)
        return offset, size

    def _seek_and_read(self, offset: int, size: int) -> bytes:
        """Read from a buffer of the caller, and leave its position as it was."""
        self._stream()
        with self._lock:
            position = self._buffer.tell()
            try:
                self._buffer.seek(offset)
                return bytes(self._buffer.read(size))
            finally:
                self._buffer.seek(position)

    # ------------------------------------------------------------------ reading as a file

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None:
            size = -1
        if size < -1:
            raise ValueError(f"size must be at least 0, or -1 for all, not {size}")
        stream = self._stream()
        # Python's files allocate the requested length, unless all bytes are requested.
        n_possible_bytes = _MAX_BYTES
        if self._source is not None:
            n_possible_bytes = self._source.size
        if size >= n_possible_bytes:
            size = -1
        with read_clock:
            return stream.read(size)

    def read1(self, size: int = -1, /) -> bytes:
        stream: Any = self._stream()
        with read_clock:
            if hasattr(stream, "read1"):
                return bytes(stream.read1(size))
            if size < 0:
                size = self.chunk_size
            return bytes(stream.read(size))

    def readinto(self, buffer: Any, /) -> int:
        stream: Any = self._stream()
        if not hasattr(stream, "readinto"):
            return super().readinto(buffer)
        with read_clock:
            # A stream that would block returns None.
            return stream.readinto(buffer) or 0

    def readline(self, size: int | None = -1, /) -> bytes:
        if size is None:
            size = -1
        return self._stream().readline(size)

    def readlines(self, hint: int | None = -1, /) -> list[bytes]:
        if hint is None:
            hint = -1
        return self._stream().readlines(hint)

    def __iter__(self) -> Iterator[bytes]:
        if self.seekable():
            self.seek(0)
        while chunk := self.read(self.chunk_size):
            yield chunk

    def __next__(self) -> bytes:
        """The next chunk from the current position on."""
        chunk = self.read(self.chunk_size)
        if not chunk:
            raise StopIteration
        return chunk

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        if abs(offset) > _MAX_BYTES:
            raise ValueError(f"no resource has a byte {offset}")
        self._stream().seek(offset, whence)
        # tempfile.SpooledTemporaryFile.seek() returned None until Python 3.11.
        return self.tell()

    def tell(self) -> int:
        return int(self._stream().tell())

    def fileno(self) -> int:
        return int(self._stream().fileno())

    def readable(self) -> bool:
        return self._has_ability("readable", True)

    def seekable(self) -> bool:
        return self._has_ability("seekable", hasattr(self._buffer, "seek"))

    def writable(self) -> bool:
        return self._has_ability("writable", hasattr(self._buffer, "write"))

    def _has_ability(self, method: str, default: bool) -> bool:
        """Ask the buffer what it can do; ``default`` if it lacks the method that tells."""
        tell_ability = getattr(self._stream(), method, None)
        if tell_ability is None:
            return default
        return bool(tell_ability())

    # ------------------------------------------------------------------ writing to a buffer

    def write(self, data: Any, /) -> int:
        return int(self._stream().write(data))

    def truncate(self, size: int | None = None, /) -> int:
        return int(self._stream().truncate(size))

    def flush(self) -> None:
        if not self.closed and hasattr(self._buffer, "flush"):
            self._buffer.flush()

    # ------------------------------------------------------------------ closing

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

    # ------------------------------------------------------------------ other processes

    @property
    def opener(self) -> GivesResources | None:
        """What opens the resource in another process, such as its store; None if nothing does."""
        return self._connector

    def __reduce__(self) -> tuple[Callable[..., StreamedResource], tuple[Any, ...]]:
        if self._connector is None:
            raise UnpicklableResourceError(
                f"resource {self.identifier!r} wraps a {type(self._buffer).__name__} and cannot be "
                "sent to another process; store it with set_resource() and send what "
                "get_resource() returns"
            )
        sha256 = self._pinned_sha256 or self._content_sha256()
        return _reopen, (self._connector, self.identifier, self.chunk_size, sha256)

    def _stream(self) -> IO[bytes]:
        """Return the buffer to use, open and of this process.

        Raises:
            ValueError: the resource is closed.
            ResourceChangedError: its bytes are not those of the pinned digest.
        """
        if self._source is not None:
            self._open_sealed()
        else:
            self._reopen_in_fork()
            self._check_open()
        buffer: IO[bytes] = self._buffer
        return buffer

    def _open_sealed(self) -> None:
        """Prepare a sealed resource for reading, in the process that reads."""
        if self._pid != os.getpid():
            with _RENEWING:
                # Another thread of the fork may have renewed it while this one waited.
                if self._pid != os.getpid():
                    self._renew_buffer()
        if self._pinned_sha256 is not None or self._buffer.closed:
            self._check_open()

    def _check_open(self) -> None:
        """Check that the resource is not closed, and has the bytes of the pinned digest."""
        if self.closed:
            raise ValueError(f"I/O operation on closed resource {self.identifier!r}")
        if self._pinned_sha256 is None:
            return
        actual_sha256 = self._content_sha256()
        if actual_sha256 is not None and actual_sha256 != self._pinned_sha256:
            raise ResourceChangedError(
                self.identifier, f"sha256 {self._pinned_sha256}", f"sha256 {actual_sha256}"
            )
        # It is open now, and an open resource does not change.
        self._pinned_sha256 = None

    def _renew_buffer(self) -> None:
        """Give a sealed resource a buffer and a position of its own in a forked child."""
        if self._source is None:
            return
        # tell() takes no lock, so it works even if a thread of the parent was reading at the fork.
        position = self._buffer.tell()
        # The old buffer is detached, so that dropping it neither closes the source nor waits for a
        # lock of the parent's threads.
        self._buffer.detach().is_owner = False
        self._buffer = io.BufferedReader(SourceStream(self._source, position))
        self._lock = threading.Lock()
        # Last, because it tells other threads that all is done.
        self._pid = os.getpid()

    def _reopen_in_fork(self) -> None:
        """Reopen a third party's resource in a forked child.

        An open file of the parent would share its position with the parent.
        """
        if self._connector is None:
            return  # only a buffer of the caller, which nothing can reopen
        is_in_fork = self._pid != os.getpid()
        if not is_in_fork or self.closed:
            return
        position = self._buffer.tell()
        # Not under the lock: the connector may read other resources.
        reopened = self._connector.get_resource(self.identifier)
        reopened.seek(position)
        with _RENEWING:
            is_needed = self._pid != os.getpid()
            if is_needed:
                self._buffer = reopened
                self._lock = threading.Lock()
                # Last, because it tells other threads that all is done.
                self._pid = os.getpid()
        if not is_needed:
            # Another thread of the fork was faster.
            reopened.close()

    def _content_sha256(self) -> str | None:
        """Return the recorded digest, or that of a buffer in memory; None if unknown."""
        if self._source is None and isinstance(self._buffer, io.BytesIO):
            return hashlib.sha256(self._buffer.getbuffer()).hexdigest()
        return self.sha256


def _reopen(
    connector: GivesResources, identifier: str, chunk_size: int, sha256: str | None
) -> StreamedResource:
    """Unpickle a resource, whose bytes must be unchanged."""
    resource = connector.get_resource(identifier).reopen_by(connector)
    resource.chunk_size = chunk_size
    return resource.pin(sha256)


#: Argument of ``set_resource``: an object with ``read``, or an iterable of bytes.
Storable = Union["StreamedResource", IO[bytes], Iterable[bytes], bytes, bytearray, memoryview]
