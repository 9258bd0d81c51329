"""The contract of a storage: resources under identifiers, published whole or not at all."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import os
import queue
import tempfile
import threading
import weakref
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar, cast

from data_stack.exception import ChecksumMismatchError, StorageError, UnsupportedStorageOperationError
from data_stack.io.resources import Storable, StreamedResource, StreamedTextResource, SupportedStreamedResourceTypes
from data_stack.io.storage_connectors.partials import Partial, local_partial
from data_stack.io.storage_errors import storage_error

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined]  # typeshed: Python 3.12

    from typing_extensions import ParamSpec

    _Arguments = ParamSpec("_Arguments")

_Result = TypeVar("_Result")

BINARY = SupportedStreamedResourceTypes.STREAMED_BINARY_RESOURCE
COPY_BYTES = 1 << 20
#: Every block of this size has a digest of its own (CRC-32), so that damage can be located.
BLOCK_BYTES = 1 << 20
DAY_SECONDS = 24 * 3600.0
_BACKGROUND_BYTES = 1 << 18
#: So many pieces at most wait to be hashed.
_MOST_WAITING = 4


@dataclass(frozen=True)
class ResourceInfo:
    """What a store knows of a resource without reading it.

    Attributes:
        identifier: its name.
        size: length in bytes.
        sha256: 64 hex digits recorded while it was written; None if the store does not know it.
        blocks: CRC-32 of each block of 1 MiB, recorded with ``sha256``; empty if unknown.
        modified: seconds since 1970, UTC; None if the store does not know it.
    """

    identifier: str
    size: int
    sha256: str | None = None
    blocks: tuple[int, ...] = ()
    modified: float | None = None


@dataclass(frozen=True, slots=True)
class Garbage:
    """Something in a store that no resource needs.

    Attributes:
        name: as the store calls it.
        size: bytes that it takes; None if unknown.
        reason: why nobody needs it.
    """

    name: str
    size: int | None
    reason: str


@dataclass(frozen=True, slots=True)
class StoreFinding:
    """What an audit noticed.

    Attributes:
        name: a resource, or as the store calls it.
        problem: what is wrong, and what to do.
        is_fault: whether data is damaged or lost; if not, something is only in the way.
    """

    name: str
    problem: str
    is_fault: bool


@dataclass(frozen=True, slots=True)
class StoreUsage:
    """How much is stored.

    Attributes:
        n_resources: number of resources.
        resource_bytes: the sum of their sizes.
        stored_bytes: what their content takes, equal content counted once where the store keeps it once; None if unknown.
        garbage_bytes: what :meth:`StorageConnector.collect_garbage` could free once the grace period is over; None if unknown.
    """

    n_resources: int
    resource_bytes: int
    stored_bytes: int | None = None
    garbage_bytes: int | None = None


class StorageConnector(ABC):
    """Keeps binary resources under identifiers such as ``"mnist/raw/labels.gz"``.

    An identifier is a relative POSIX path (:mod:`data_stack.io.identifiers`). A write is atomic and durable:
    a reader sees the old resource, the new one, or none, never a part, and not after a power cut either.
    Threads may share a connector; it pickles as its configuration.

    Three methods are required, and a third party's connector that has just these works everywhere. The others
    have defaults built on the three where that is possible, and raise UnsupportedStorageOperationError where not.
    What its ``get_resource`` returns reaches worker processes, where the connector, if it pickles, opens it again.
    """

    #: Whether ``stat`` knows the digest of all that was stored here and not touched since. What it does not know was then
    #: changed by other means: copied, edited, damaged.
    knows_digests: ClassVar[bool] = False
    #: Whether each read, of a part too, is held against digests, so that damage is an error and never data.
    checks_reads: ClassVar[bool] = False

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if "get_resource" in vars(cls):
            cls.get_resource = _knowing_its_connector(cls.get_resource)  # type: ignore[method-assign]  # it is the same, and more

    @abstractmethod
    def get_resource(self, identifier: str, resource_type: SupportedStreamedResourceTypes = BINARY) -> StreamedResource:
        """Open a stored resource without reading it; the caller closes it.

        Returns:
            A StreamedResource; a StreamedTextResource (UTF-8) where ``resource_type`` says text.

        Raises:
            ResourceNotFoundError: nothing is stored under ``identifier``.
            MalformedIdentifierError: ``identifier`` is not in the grammar.
        """

    @abstractmethod
    def set_resource(self, identifier: str, resource: Storable) -> Any:
        """Store ``resource`` under ``identifier``, replacing what was there.

        ``resource`` is anything with ``read`` (rewound first if it can seek; never closed) or an iterable of bytes.
        Its own identifier, if it has one, is ignored.

        Raises:
            StorageError: it could not be written; what was stored before is still there.
            MalformedIdentifierError: ``identifier`` is not in the grammar.
        """

    @abstractmethod
    def has_resource(self, identifier: str) -> bool:
        """Whether a resource (not merely a folder) is stored under ``identifier``."""

    def delete_resource(self, identifier: str) -> None:
        """Remove a resource. Whoever has it open goes on reading what was there.

        Raises:
            ResourceNotFoundError: nothing is stored under ``identifier``.
        """
        raise UnsupportedStorageOperationError(f"{type(self).__name__} cannot delete: it does not override delete_resource()")

    def list_resources(self, prefix: str = "") -> list[str]:
        """All identifiers that begin with ``prefix``, sorted."""
        raise UnsupportedStorageOperationError(f"{type(self).__name__} cannot list: it does not override list_resources()")

    def stat(self, identifier: str) -> ResourceInfo:
        """Size, digest and age of a resource, without reading it.

        Raises:
            ResourceNotFoundError: nothing is stored under ``identifier``.
        """
        with self.get_resource(identifier) as resource:
            return ResourceInfo(identifier, resource.seek(0, os.SEEK_END))

    def create(self, identifier: str) -> AbstractContextManager[ResourceWriter]:
        """Write a resource as a file: ``with connector.create("a/b.h5") as file: …``.

        It is published when the block ends cleanly; if it raises, nothing was stored. The file can be read
        and sought too, as HDF5 and zip writers need it.
        """
        return self._create_by_set_resource(identifier)

    def create_resumable(self, identifier: str, key: str) -> AbstractContextManager[ResourceWriter]:
        """As :meth:`create`, for a download: what an interrupted block wrote is in the file of the next one with this ``key``.

        It stays for a day if :attr:`ResourceWriter.partial` was told a validator, and only for who has a digest of the whole to
        hold it against. While one process has it, others get a file of their own, as of :meth:`create`. An error that says that
        the bytes are wrong, or the disk full, removes it.

        Args:
            identifier: the resource.
            key: letters and digits that stand for source and digest.
        """
        return self._create_from_partial(identifier, key)

    @contextlib.contextmanager
    def _create_from_partial(self, identifier: str, key: str) -> Iterator[ResourceWriter]:
        with local_partial(key) as opened:
            if opened is None:
                with self.create(identifier) as writer:
                    yield writer
                return
            partial, file = opened
            with sealing(LocalWriter(identifier, file, partial)) as writer:
                yield writer
            file.seek(0)
            self.set_resource(identifier, StreamedResource(identifier, file))

    @contextlib.contextmanager
    def _create_by_set_resource(self, identifier: str) -> Iterator[ResourceWriter]:
        with local_file(identifier) as file:
            with sealing(LocalWriter(identifier, file)) as writer:
                yield writer
            file.seek(0)  # for those whose set_resource() does not rewind
            self.set_resource(identifier, StreamedResource(identifier, file))

    def read_ranges(self, identifier: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read ``(offset, size)`` ranges in one request where the store can; each is cut short at the end of the resource."""
        with self.get_resource(identifier) as resource:
            if hasattr(resource, "read_ranges"):
                return resource.read_ranges(ranges)
            parts = []
            for offset, size in ranges:
                resource.seek(offset)
                parts.append(resource.read(size))
            return parts

    def verify_resource(self, identifier: str, sha256: str | None = None) -> ResourceInfo:
        """Read a resource whole and hold it against its recorded digests, and against ``sha256`` if given.

        Returns:
            What was found, with ``sha256`` and ``blocks`` filled in. A store that knows digests knows these from now on.

        Raises:
            ChecksumMismatchError: it is damaged; the message names the blocks of 1 MiB where that is known.
        """
        recorded = self.stat(identifier)
        digest = Digest()
        try:
            with self.get_resource(identifier) as resource:
                for chunk in binary_chunks(resource):
                    digest.update(chunk)
        finally:
            digest.finish()
        found = ResourceInfo(identifier, digest.size, digest.sha256, digest.blocks, recorded.modified)
        expected = sha256 or recorded.sha256
        if expected is not None and found.sha256 != expected:
            damaged = [i for i, (old, new) in enumerate(zip(recorded.blocks, found.blocks, strict=False)) if old != new]
            where = f"{self!r}" + (f", damaged in blocks {damaged[:8]} of 1 MiB" if damaged else "")
            raise ChecksumMismatchError(identifier, where, expected, str(found.sha256))
        return found

    def lease(self, identifier: str) -> AbstractContextManager[Lease]:
        """Ask to be the only one to prepare ``identifier``; spares duplicate work, and no correctness rests on it.

        The default is a lease that is always free. It ends with the block, or with the process.
        """
        return contextlib.nullcontext(Lease())

    def remove_abandoned(self, prefix: str = "") -> list[str]:
        """Remove what writers that died left behind below ``prefix``; return what was removed. Live writers keep theirs."""
        return []

    def store_known(self, identifier: str, size: int, sha256: str) -> bool:
        """Store under ``identifier`` bytes that this store has already, under whatever name; nothing is sent.

        Returns:
            False if this store has no such bytes, or cannot find them cheaply; then nothing was changed.

        Raises:
            StorageError: it could not be written; what was stored before is still there.
        """
        return False

    def move_resource(self, identifier: str, new_identifier: str) -> None:
        """Give a resource another name, replacing what had that. At every moment it is there, whole, under one of them or both.

        Raises:
            ResourceNotFoundError: nothing is stored under ``identifier``.
            StorageError: it could not be written; what was stored before under ``new_identifier`` is still there.
            UnsupportedStorageOperationError: this store cannot delete.
        """
        info = self.stat(identifier)
        if info.sha256 is None or not self.store_known(new_identifier, info.size, info.sha256):
            with self.get_resource(identifier) as resource, self.create(new_identifier) as writer:
                store_bytes(resource, writer)
                writer.seal()
                if info.sha256 not in (None, writer.digest.sha256):
                    raise ChecksumMismatchError(identifier, repr(self), str(info.sha256), writer.digest.sha256)
        self.delete_resource(identifier)

    # ------------------------------------------------------------------ upkeep

    def collect_garbage(self, grace_seconds: float = DAY_SECONDS, *, dry_run: bool = False) -> list[Garbage]:
        """Remove what no resource needs any more: left-overs of dead writers, replaced versions, unreferenced content.

        Resources, live writers, and what was replaced less than ``grace_seconds`` ago by the store's own clock stay; what a
        writer left that is known to be dead goes at once. It may be interrupted and run again, also beside writers and readers.

        Args:
            grace_seconds: how long a replaced version stays for those who are still reading it.
            dry_run: only say what would be removed.
        """
        return [] if dry_run else [Garbage(name, None, "left by a writer that died") for name in self.remove_abandoned()]

    def audit(self) -> list[StoreFinding]:
        """Look for what reading the resources one by one does not show: dangling references, lost parts, stray documents.

        Nothing is changed. The default has nothing to look for.
        """
        return []

    def usage(self) -> StoreUsage:
        """How much is stored; reads no resource."""
        sizes = [self.stat(identifier).size for identifier in self.list_resources()]
        return StoreUsage(len(sizes), sum(sizes))


def _knowing_its_connector(get_resource: Callable[..., Any]) -> Callable[..., Any]:
    """A ``get_resource`` whose resources other processes can open: those around a buffer of its own would not pickle."""

    @functools.wraps(get_resource)
    def open_resource(self: StorageConnector, *arguments: Any, **options: Any) -> Any:
        resource = get_resource(self, *arguments, **options)
        return resource.reopened_by(self) if isinstance(resource, (StreamedResource, StreamedTextResource)) else resource

    return open_resource


class Lease:
    """The right to do a piece of work alone. This one is always granted at once."""

    def acquire(self) -> bool:
        """Take the lease if it is free; True if it is now held. Never waits."""
        return True


class Digest:
    """Size, SHA-256 and block digests of bytes as they pass; large pieces are hashed in a thread while the caller goes on.

    :meth:`finish` ends that thread. That of a digest that is given up, because its source failed, ends when nobody holds it.
    """

    def __init__(self) -> None:
        self.size = 0
        self._hashes = _Hashes()
        self._waiting: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._room = threading.Semaphore(_MOST_WAITING)
        self._thread: threading.Thread | None = None

    def update(self, data: Buffer) -> None:
        """Take in the next bytes."""
        view = memoryview(data).cast("B")
        self.size += len(view)
        if isinstance(data, bytes) and len(data) >= _BACKGROUND_BYTES:
            if self._thread is None:
                # The thread holds no reference to us, and putting into this kind of queue is safe wherever garbage is collected.
                self._thread = threading.Thread(
                    target=_hash_all, args=(self._waiting, self._room, self._hashes), name="data_stack-digest", daemon=True
                )
                self._thread.start()
                self._give_up = weakref.finalize(self, self._waiting.put, None)
                self._give_up.atexit = False
            self._room.acquire()
            self._waiting.put(data)
        else:
            # What is not bytes may be changed by its owner as soon as we return.
            self.finish()
            self._hashes.update(view)

    def finish(self) -> None:
        """Wait until all is hashed, and end the thread."""
        if self._thread is not None:
            self._give_up()
            self._thread.join()
            self._thread = None

    @property
    def sha256(self) -> str:
        """64 hex digits."""
        self.finish()
        return self._hashes.sha256.hexdigest()

    @property
    def blocks(self) -> tuple[int, ...]:
        """CRC-32 of each block of 1 MiB, the last one shorter."""
        self.finish()
        return self._hashes.all_blocks()


class _Hashes:
    """The hashes of a :class:`Digest`, which its thread goes on with."""

    def __init__(self) -> None:
        self.sha256 = hashlib.sha256()
        self._blocks: list[int] = []
        self._crc = 0
        self._n_hashed = 0

    def update(self, view: memoryview) -> None:
        self.sha256.update(view)
        while len(view):
            head = view[: BLOCK_BYTES - self._n_hashed % BLOCK_BYTES]
            self._crc = zlib.crc32(head, self._crc)
            self._n_hashed += len(head)
            if self._n_hashed % BLOCK_BYTES == 0:
                self._blocks.append(self._crc)
                self._crc = 0
            view = view[len(head) :]

    def all_blocks(self) -> tuple[int, ...]:
        return tuple(self._blocks) + ((self._crc,) if self._n_hashed % BLOCK_BYTES else ())


def _hash_all(waiting: queue.SimpleQueue[bytes | None], room: threading.Semaphore, hashes: _Hashes) -> None:
    while (data := waiting.get()) is not None:
        hashes.update(memoryview(data))
        room.release()


def _failing(method: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """A method of a :class:`ResourceWriter` whose errors of the operating system it tells itself."""

    @functools.wraps(method)
    def telling(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        try:
            return method(*args, **kwargs)
        except StorageError:
            raise
        except OSError as error:
            cast("ResourceWriter", args[0])._fail(error)

    return telling


class ResourceWriter(io.BufferedIOBase):
    """A file that becomes a resource. Hashes while it is written; rereads only if the writer sought back.

    Attributes:
        identifier: the name it will be published under.
        digest: size and digests of all bytes; complete once sealed.
        partial: what can be told to keep the file if the block fails; None for one that does not outlive it.
    """

    mode = "w+b"

    def __init__(self, identifier: str, file: IO[bytes], partial: Partial | None = None) -> None:
        self.identifier = identifier
        self.partial = partial
        self.digest = Digest()
        self._file = file
        self._sequential = True
        self._sealed = False

    @_failing
    def write(self, data: Buffer, /) -> int:
        self._check_open()
        view = memoryview(data).cast("B")
        if self._sequential and self._file.tell() != self.digest.size:
            self._sequential = False
        if self._sequential:
            self.digest.update(data)
        n_written = 0
        while n_written < len(view):  # a raw file may write less than it was given
            n_written += self._file.write(view[n_written:])
        return len(view)

    def taken_up(self) -> Iterator[bytes]:
        """The bytes that are in the file from before; each piece counts as written once it is handed out."""
        self._file.seek(0)
        while data := self._file.read(COPY_BYTES):
            self.digest.update(data)
            yield data

    @_failing
    def seal(self) -> None:
        """Finish: no more writing, and ``digest`` is that of the whole."""
        if self._sealed:
            return
        self._file.flush()
        if not self._sequential or self._file.seek(0, os.SEEK_END) != self.digest.size:
            self.digest.finish()
            self.digest = Digest()
            self._file.seek(0)
            while chunk := self._file.read(COPY_BYTES):
                self.digest.update(chunk)
        self._sealed = True

    @_failing
    def read(self, size: int | None = -1, /) -> bytes:
        self._check_open()
        return self._file.read(-1 if size is None else size)

    def read1(self, size: int = -1, /) -> bytes:
        return self.read(size)

    def readinto(self, buffer: Buffer, /) -> int:
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    @_failing
    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        self._check_open()
        return self._file.seek(offset, whence)

    @_failing
    def tell(self) -> int:
        self._check_open()
        return self._file.tell()

    @_failing
    def truncate(self, size: int | None = None, /) -> int:
        self._check_open()
        self._sequential = False
        return self._file.truncate(size)

    @_failing
    def flush(self) -> None:
        if not self.closed and not self._sealed:
            self._file.flush()

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        """Finish writing. Publishing is for the block that made this writer; closing early, as some libraries do, is harmless."""
        if "_file" in self.__dict__ and not self._sealed and not self._file.closed:
            self.seal()

    @property
    def closed(self) -> bool:
        return bool(self.__dict__.get("_sealed", True))

    def _fail(self, error: OSError) -> NoReturn:
        """Raise what an error of the file means; any call may be the one that writes what is buffered."""
        raise error

    def _check_open(self) -> None:
        if self._sealed:
            raise ValueError(f"write to {self.identifier!r} after it was finished")


class LocalWriter(ResourceWriter):
    """A ResourceWriter to a :func:`local_file`; errors of its disk are ours."""

    def _fail(self, error: OSError) -> NoReturn:
        raise _local_error(self.identifier, error) from error


@contextlib.contextmanager
def local_file(identifier: str) -> Iterator[IO[bytes]]:
    """A temporary file of this machine, in which a resource waits until it is complete and can be sent."""
    try:
        file = tempfile.TemporaryFile()
    except OSError as error:
        raise _local_error(identifier, error) from error
    try:
        yield file
    finally:
        with contextlib.suppress(OSError):
            file.close()  # may fail again to write what a full disk refused


def _local_error(identifier: str, error: OSError) -> StorageError:
    folder = tempfile.gettempdir()
    advice = f"Nothing was published; make room in {folder!r}, or set TMPDIR."
    problem = f"could not store {identifier!r}, whose temporary file in {folder!r} failed before it was sent"
    return storage_error(problem, error, folder, if_full=advice, otherwise=advice)


@contextlib.contextmanager
def sealing(writer: ResourceWriter) -> Iterator[ResourceWriter]:
    """The writer; it is sealed when the block ends cleanly, and leaves no thread behind however it ends."""
    try:
        yield writer
        writer.seal()
    finally:
        writer.digest.finish()


def store_bytes(resource: Storable, writer: ResourceWriter) -> None:
    """Write all bytes of ``resource``, whatever ``set_resource`` accepts, from its start."""
    for chunk in binary_chunks(resource):
        writer.write(chunk)


def binary_chunks(resource: Storable) -> Iterator[Buffer]:
    """The bytes of whatever ``set_resource`` accepts, from its start, a piece at a time."""
    if isinstance(resource, (bytes, bytearray, memoryview)):
        yield resource
        return
    source: Any = resource
    if not hasattr(source, "read"):
        for piece in source:
            yield _checked_bytes(piece)
        return
    if _can_seek(source):
        source.seek(0)
    while piece := source.read(COPY_BYTES):
        yield _checked_bytes(piece)


def _can_seek(file: Any) -> bool:
    if hasattr(file, "seekable"):
        return bool(file.seekable())
    return hasattr(file, "seek")


def _checked_bytes(piece: Any) -> Buffer:
    if isinstance(piece, (bytes, bytearray, memoryview)):
        return piece
    raise TypeError(
        f"a resource is stored from bytes, but its source gave {type(piece).__name__}; open text files in binary mode"
    )
