"""The contract of a store: resources under identifiers, published whole or not at all."""

from __future__ import annotations

import contextlib
import functools
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import IO, Any, cast

from data_stack.exception import (
    ChecksumMismatchError,
    ResourceNotFoundError,
    UnsupportedStorageOperationError,
)
from data_stack.io.integrity import Digest
from data_stack.io.resources import (
    ByteSource,
    Storable,
    StreamedResource,
    StreamedTextResource,
    SupportedStreamedResourceTypes,
)
from data_stack.io.storage_connectors.lease import Lease
from data_stack.io.storage_connectors.storable import binary_chunks
from data_stack.io.storage_connectors.writer import ResourceWriter, local_writer

#: The default ``resource_type`` of ``get_resource``: a resource of bytes.
BINARY = SupportedStreamedResourceTypes.STREAMED_BINARY_RESOURCE
#: A day: the default grace period of garbage collection.
DAY_SECONDS = 86_400.0

#: The methods that each storage connector defines; all others are built on them.
_REQUIRED_METHODS = ("get_resource", "set_resource", "has_resource")


@dataclass(frozen=True)
class ResourceInfo:
    """Metadata of a resource.

    Attributes:
        identifier: the identifier of the resource.
        size: the length in bytes.
        sha256: the SHA-256, 64 hex digits, as recorded while it was written; None if unknown.
        modified: when it was written, in seconds since 1970, UTC; None if unknown.
    """

    identifier: str
    size: int
    sha256: str | None = None
    modified: float | None = None


@dataclass(frozen=True, slots=True)
class Garbage:
    """Something in a store that no resource needs.

    Attributes:
        name: its name in the store.
        size: its length in bytes; None if unknown.
        reason: why it is not needed.
    """

    name: str
    size: int | None
    reason: str


class StorageConnector(ABC):
    """Keeps binary resources under identifiers such as ``"mnist/raw/labels.gz"``.

    An identifier is a relative POSIX path (:mod:`data_stack.io.identifiers`). A write is atomic and
    durable: a reader sees the old resource, the new one, or none, never a part, and not after a
    power cut either. Threads may share a connector. A pickled connector holds its configuration,
    and connects again where it is unpickled.

    A subclass must define three methods: ``get_resource``, ``set_resource`` and ``has_resource``.
    Such a connector can hold any dataset. Each other method has a default, which uses the three
    methods or raises UnsupportedStorageOperationError.

    A resource that ``get_resource`` returns can be sent to another process if the connector can be
    pickled: the connector opens the resource again there. This works without code in the subclass.
    """

    #: Whether ``stat`` returns the digest of every resource that only this connector has written.
    knows_digests: bool = False
    #: Whether every read, also of a part, is verified, so that damaged bytes raise an error.
    checks_reads: bool = False

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        # The resources of each subclass must be able to cross processes, see _with_reopening().
        if "get_resource" in vars(cls):
            get_resource = _with_reopening(cls.get_resource)
            cls.get_resource = get_resource  # type: ignore[method-assign]  # of the same signature

    # ------------------------------------------------------------------ required

    @abstractmethod
    def get_resource(
        self, identifier: str, resource_type: SupportedStreamedResourceTypes = BINARY
    ) -> StreamedResource:
        """Open a resource without reading it. The caller closes it.

        Returns:
            A StreamedResource; a StreamedTextResource (UTF-8) if ``resource_type`` says text.

        Raises:
            ResourceNotFoundError: nothing is stored under ``identifier``.
            MalformedIdentifierError: ``identifier`` is not in the grammar.
        """

    @abstractmethod
    def set_resource(self, identifier: str, resource: Storable) -> Any:
        """Store a resource under an identifier, replacing what was stored there.

        Args:
            identifier: the identifier to store it under.
            resource: bytes, anything with ``read``, or an iterable of bytes. A file that can seek
                is rewound first. The resource is never closed, and its own identifier is ignored.

        Returns:
            Nothing that a caller may rely on. (The original DataStack did not say what.)

        Raises:
            StorageError: the resource cannot be written. The old resource is unchanged.
            MalformedIdentifierError: ``identifier`` is not in the grammar.
            TypeError: ``resource`` yields text.
        """

    @abstractmethod
    def has_resource(self, identifier: str) -> bool:
        """Return whether a resource, not merely a folder, is stored under an identifier."""

    # ------------------------------------------------------------------ resources

    def delete_resource(self, identifier: str) -> None:
        """Remove a resource. Open readers may finish reading it.

        Raises:
            ResourceNotFoundError: nothing is stored under ``identifier``.
        """
        raise UnsupportedStorageOperationError(
            f"{type(self).__name__} cannot delete: it does not override delete_resource()"
        )

    def list_resources(self, prefix: str = "") -> list[str]:
        """Return all identifiers that begin with ``prefix``, sorted.

        Raises:
            MalformedIdentifierError: no identifier can begin with ``prefix``.
            StorageError: the store could not be listed.
        """
        raise UnsupportedStorageOperationError(
            f"{type(self).__name__} cannot list: it does not override list_resources()"
        )

    def missing_place(self) -> str | None:
        """Return which folder or collection of this store does not exist.

        With the answer, a message can tell a misspelt name of a store from an empty store.

        Returns:
            A description such as ``"the folder s3://bucket/folder"``; None if nothing is missing,
            or if the connector does not check this.

        Raises:
            StorageError: the store does not answer.
        """
        return None

    def stat(self, identifier: str) -> ResourceInfo:
        """Return size, digest and age of a resource, without reading it.

        Raises:
            ResourceNotFoundError: nothing is stored under ``identifier``.
        """
        with self.get_resource(identifier) as resource:
            return ResourceInfo(identifier, resource.seek(0, os.SEEK_END))

    def create(self, identifier: str) -> AbstractContextManager[ResourceWriter]:
        """Write a resource as a file: ``with connector.create("a/b.h5") as file: …``.

        The resource is published when the block ends cleanly. If the block raises, nothing is
        stored. The file is readable and seekable, as writers of HDF5 and zip need it.

        Raises:
            StorageError: a write failed, or the resource could not be published. The old resource
                is unchanged.
            MalformedIdentifierError: ``identifier`` is not in the grammar.
        """

        def store(file: IO[bytes]) -> None:
            self.set_resource(identifier, StreamedResource(identifier, file))

        return local_writer(identifier, store)

    def create_resumable(self, identifier: str, key: str) -> AbstractContextManager[ResourceWriter]:
        """Write a download, which the next call with this key may resume after an interruption.

        By default nothing is resumed: the download starts at the first byte.

        A store in a folder keeps the partial file of an interrupted download for a day, if the
        caller has named the version of its bytes (``writer.partial.keep(etag)``). A caller that
        resumes must verify a digest of the whole. Only one process at a time uses a partial file;
        any other process downloads to a file of its own. A partial file is removed if the digest is
        wrong, or if the disk is full.

        Args:
            identifier: the resource.
            key: letters and digits that identify the source and its digest.

        Raises:
            StorageError: as for :meth:`create`.
            MalformedIdentifierError: ``identifier`` is not in the grammar.
        """
        return self.create(identifier)

    def read_ranges(self, identifier: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read ``(offset, size)`` ranges, in bytes, in one request where the store can.

        Each range is cut short at the end of the resource.

        Raises:
            ResourceNotFoundError: nothing is stored under ``identifier``.
        """
        with self.get_resource(identifier) as resource:
            return resource.read_ranges(ranges)

    def verify_resource(self, identifier: str, sha256: str | None = None) -> ResourceInfo:
        """Read a resource whole, and compare it with its recorded digest.

        Args:
            identifier: the resource.
            sha256: the expected digest, instead of the recorded one.

        Returns:
            The metadata of the resource, with the digest of the bytes that were read. A store that
            knows digests records this digest if it had none.

        Raises:
            ChecksumMismatchError: the resource is damaged.
            ResourceNotFoundError: nothing is stored under ``identifier``.
        """
        recorded = self.stat(identifier)
        digest = Digest()
        with self.get_resource(identifier) as resource:
            for chunk in binary_chunks(resource):
                digest.update(chunk)

        expected = sha256 or recorded.sha256
        if expected is not None and expected != digest.sha256:
            raise ChecksumMismatchError(identifier, repr(self), expected, digest.sha256)
        return ResourceInfo(identifier, digest.size, digest.sha256, recorded.modified)

    def move_resource(self, identifier: str, new_identifier: str) -> None:
        """Rename a resource, replacing a resource of the new name.

        At any time, the resource exists under at least one of both names. Renaming a resource to
        its own name leaves it as it is.

        Raises:
            ResourceNotFoundError: nothing is stored under ``identifier``.
            StorageError: the resource cannot be written. An old resource ``new_identifier`` is
                unchanged.
            UnsupportedStorageOperationError: this store cannot delete.
        """
        if identifier == new_identifier:
            # This raises if the resource is missing.
            self.stat(identifier)
            return
        with self.get_resource(identifier) as resource:
            self.set_resource(new_identifier, resource)
        self.delete_resource(identifier)

    # ------------------------------------------------------------------ upkeep

    def lease(self, identifier: str) -> AbstractContextManager[Lease]:
        """Return a lease, by which one process prepares a resource while others wait.

        A lease only saves work that several processes would do. It is no lock: writing is atomic
        without it. By default every process gets the lease. A lease ends with the block, or with
        the process.

        Args:
            identifier: the resource that is prepared.
        """
        return contextlib.nullcontext(Lease())

    def remove_abandoned(self, prefix: str = "") -> list[str]:
        """Remove unfinished files below ``prefix`` whose writers have died.

        Returns:
            The names of the removed files.
        """
        return []

    def collect_garbage(
        self, grace_seconds: float = DAY_SECONDS, *, dry_run: bool = False
    ) -> list[Garbage]:
        """Remove what no resource needs.

        This is what dead writers have left, what replaced resources had, and what no resource
        refers to. Resources stay, and so does what a live writer is writing. What was replaced
        less than ``grace_seconds`` ago, by the clock of the store, stays for its readers. Writers
        and readers may go on meanwhile, and the collection may be interrupted.

        Args:
            grace_seconds: how long the bytes of a replaced resource stay for their readers.
            dry_run: only list what would be removed.

        Returns:
            What was removed, or would be.
        """
        if dry_run:
            return []
        return [
            Garbage(name, None, "left by a writer that died") for name in self.remove_abandoned()
        ]

    # ------------------------------------------------------------------ files of other tools

    # The key of a file is its name in the store (data_stack.io.identifiers). The defaults are for a
    # store that holds nothing but resources.

    def list_keys(self, prefix: str = "") -> list[str]:
        """Return the keys of all files that begin with ``prefix``, sorted.

        A key is the identifier of a resource, or a name that another tool gave to its file. By
        default there are only identifiers.
        """
        return self.list_resources(prefix)

    def list_links(self, prefix: str = "") -> list[str]:
        """Return the names of links that are neither followed nor listed as keys, sorted.

        Args:
            prefix: only links whose names begin with this text.
        """
        return []

    def has_key(self, key: str) -> bool:
        """Return whether a file, not merely a folder, has this key."""
        return self.has_resource(key)

    def open_key(self, key: str) -> StreamedResource:
        """Open a file by its key, as :meth:`get_resource` opens a resource. The caller closes it.

        Raises:
            ResourceNotFoundError: there is no such file.
            MalformedIdentifierError: no file of this store can have such a key.
        """
        return self.get_resource(key)

    def delete_key(self, key: str) -> None:
        """Remove a file by its key, as :meth:`delete_resource` removes a resource.

        Raises:
            ResourceNotFoundError: there is no such file.
        """
        self.delete_resource(key)

    # ------------------------------------------------------------------ for subclasses

    def _make_resource(
        self, identifier: str, source: ByteSource, kind: SupportedStreamedResourceTypes
    ) -> StreamedResource:
        """Return the resource that ``get_resource`` returns, for the connectors of this package.

        Args:
            identifier: the identifier of the resource.
            source: the bytes of the resource. They are closed with it.
            kind: whether to return bytes, or their text (UTF-8).
        """
        resource = StreamedResource.from_source(identifier, source, self)
        if kind is SupportedStreamedResourceTypes.STREAMED_TEXT_RESOURCE:
            return cast(StreamedResource, StreamedTextResource.from_streamed_resource(resource))
        return resource


@dataclass(frozen=True, slots=True)
class KeyOpener:
    """Opens a file of another tool again, when its resource has crossed to another process.

    A resource reopens by ``get_resource``, and such a file needs :meth:`StorageConnector.open_key`.

    Attributes:
        connector: the store.
    """

    connector: StorageConnector

    def get_resource(self, key: str) -> StreamedResource:
        """Open the file of a key."""
        return self.connector.open_key(key)


def has_required_methods(value: object) -> bool:
    """Return whether a value has the methods that each storage connector defines.

    A connector of a program or plugin need not be derived from :class:`StorageConnector`.
    """
    return all(callable(getattr(value, method, None)) for method in _REQUIRED_METHODS)


def info_of(connector: StorageConnector, identifier: str) -> ResourceInfo | None:
    """Return size, digest and age of a resource; None if nothing is stored under its identifier.

    Raises:
        DatasetFileCorruptError: the record of the store is damaged.
    """
    if not _names_missing_resources(connector) and not connector.has_resource(identifier):
        return None
    try:
        return connector.stat(identifier)
    except ResourceNotFoundError:
        return None


def read_if_stored(connector: StorageConnector, identifier: str, n_bytes: int) -> bytes | None:
    """Return the first bytes of a resource; None if nothing is stored under its identifier.

    Args:
        connector: the store.
        identifier: the identifier of the resource.
        n_bytes: how many bytes to return at most.
    """
    if not _names_missing_resources(connector) and not connector.has_resource(identifier):
        return None
    try:
        with connector.get_resource(identifier) as resource:
            return bytes(resource.read(n_bytes))
    except ResourceNotFoundError:
        return None


def _names_missing_resources(connector: StorageConnector) -> bool:
    """Return whether a connector raises ResourceNotFoundError for a missing resource.

    A connector with a ``stat()`` of its own does. Otherwise, a connector of a third party, which
    defines the three required methods only, may raise any error.
    """
    return type(connector).stat is not StorageConnector.stat


def _with_reopening(get_resource: Callable[..., Any]) -> Callable[..., Any]:
    """Return a ``get_resource`` whose resources know the connector that opens them again.

    A resource pickles as its connector and its identifier. Connectors of third parties, which
    follow the interface of the original DataStack, override ``get_resource`` itself and return
    resources that know no connector. Without this, a dataset in such a store could be read in this
    process, and not in the workers of a loader.

    The arguments are passed on as they are: a connector of a third party may have others.
    """

    @functools.wraps(get_resource)
    def get_reopening_resource(self: StorageConnector, *arguments: Any, **options: Any) -> Any:
        resource = get_resource(self, *arguments, **options)
        if isinstance(resource, (StreamedResource, StreamedTextResource)):
            return resource.reopen_by(self)
        return resource

    return get_reopening_resource
