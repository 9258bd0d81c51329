"""The contract of a storage: resources under identifiers, published whole or not at all."""

from __future__ import annotations

import contextlib
import functools
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, cast

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

BINARY = SupportedStreamedResourceTypes.STREAMED_BINARY_RESOURCE
DAY_SECONDS = 86_400.0


@dataclass(frozen=True)
class ResourceInfo:
    """Metadata of a resource.

    Attributes:
        identifier: its name.
        size: length in bytes.
        sha256: 64 hex digits, recorded while it was written; None if unknown.
        modified: seconds since 1970, UTC; None if unknown.
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
        size: length in bytes; None if unknown.
        reason: why it is not needed.
    """

    name: str
    size: int | None
    reason: str


class StorageConnector(ABC):
    """Keeps binary resources under identifiers such as ``"mnist/raw/labels.gz"``.

    An identifier is a relative POSIX path (:mod:`data_stack.io.identifiers`). A write is atomic and durable:
    a reader sees the old resource, the new one, or none, never a part, and not after a power cut either.
    Threads may share a connector; it pickles as its configuration.

    Three methods are required, and a third party's connector with just these works everywhere. The others have defaults where
    possible, and raise UnsupportedStorageOperationError otherwise. Its resources can be sent to worker processes if it pickles:
    the connector opens them again there.
    """

    #: Whether ``stat`` knows the digest of each resource that was not copied, edited or damaged by other means.
    knows_digests: ClassVar[bool] = False
    #: Whether each read, of a part too, is verified, so that damage is an error.
    checks_reads: ClassVar[bool] = False

    def __init_subclass__(cls, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if "get_resource" in vars(cls):
            cls.get_resource = _knowing_its_connector(cls.get_resource)  # type: ignore[method-assign]  # same signature

    @abstractmethod
    def get_resource(
        self, identifier: str, resource_type: SupportedStreamedResourceTypes = BINARY
    ) -> StreamedResource:
        """Open a resource lazily; the caller closes it.

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
            StorageError: it could not be written; the old resource is unchanged.
            MalformedIdentifierError: ``identifier`` is not in the grammar.
        """

    @abstractmethod
    def has_resource(self, identifier: str) -> bool:
        """Whether a resource (not merely a folder) is stored under ``identifier``."""

    def delete_resource(self, identifier: str) -> None:
        """Remove a resource. Open readers may finish reading it.

        Raises:
            ResourceNotFoundError: nothing is stored under ``identifier``.
        """
        raise UnsupportedStorageOperationError(
            f"{type(self).__name__} cannot delete: it does not override delete_resource()"
        )

    def list_resources(self, prefix: str = "") -> list[str]:
        """All identifiers that begin with ``prefix``, sorted."""
        raise UnsupportedStorageOperationError(
            f"{type(self).__name__} cannot list: it does not override list_resources()"
        )

    def missing_place(self) -> str | None:
        """Return what does not exist of the place of this store, such as a folder; None if nothing is known to be missing.

        It tells a store that is empty from a name that is misspelt. By default it tells nothing.

        Raises:
            StorageError: the store does not say.
        """
        return None

    # Files of other tools. A store that holds none leaves the defaults as they are.

    def list_keys(self, prefix: str = "") -> list[str]:
        """The keys of all files that begin with ``prefix``, sorted: identifiers, and other names that other tools gave.

        See :mod:`data_stack.io.identifiers` for keys. The default knows identifiers only.
        """
        return self.list_resources(prefix)

    def list_links(self, prefix: str = "") -> list[str]:
        """The names of links that begin with ``prefix`` and are neither followed nor listed as keys, sorted."""
        return []

    def has_key(self, key: str) -> bool:
        """Whether a file (not merely a folder) has this key."""
        return self.has_resource(key)

    def open_key(self, key: str) -> StreamedResource:
        """Open a file by its key, as :meth:`get_resource` opens a resource; the caller closes it.

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

    def stat(self, identifier: str) -> ResourceInfo:
        """Size, digest and age of a resource, without reading it.

        Raises:
            ResourceNotFoundError: nothing is stored under ``identifier``.
        """
        with self.get_resource(identifier) as resource:
            return ResourceInfo(identifier, resource.seek(0, os.SEEK_END))

    def create(self, identifier: str) -> AbstractContextManager[ResourceWriter]:
        """Write a resource as a file: ``with connector.create("a/b.h5") as file: …``.

        It is published when the block ends cleanly; if the block raises, nothing is stored. The file is readable and seekable, as
        HDF5 and zip writers need it.
        """
        return local_writer(
            identifier,
            lambda file: self.set_resource(identifier, StreamedResource(identifier, file)),
        )

    def create_resumable(self, identifier: str, key: str) -> AbstractContextManager[ResourceWriter]:
        """As :meth:`create`, for a download that the next call with this ``key`` may resume after an interruption.

        The default starts again. A folder keeps the partial file for a day if :attr:`ResourceWriter.partial` got a validator; the
        caller must verify a digest of the whole. While one process uses it, others get a new file. It is removed after a wrong
        digest or on a full disk.

        Args:
            identifier: the resource.
            key: letters and digits that identify source and digest.
        """
        return self.create(identifier)

    def read_ranges(self, identifier: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read ``(offset, size)`` ranges in one request where the store can; each is cut short at the end of the resource."""
        with self.get_resource(identifier) as resource:
            return resource.read_ranges(ranges)

    def verify_resource(self, identifier: str, sha256: str | None = None) -> ResourceInfo:
        """Read a resource whole, and compare it with its recorded digest, and with ``sha256`` if given.

        Returns:
            Its metadata with ``sha256``, which a store that knows digests records.

        Raises:
            ChecksumMismatchError: it is damaged.
        """
        recorded = self.stat(identifier)
        digest = Digest()
        with self.get_resource(identifier) as resource:
            for chunk in binary_chunks(resource):
                digest.update(chunk)
        expected = sha256 or recorded.sha256
        if expected not in (None, digest.sha256):
            raise ChecksumMismatchError(identifier, repr(self), str(expected), digest.sha256)
        return ResourceInfo(identifier, digest.size, digest.sha256, recorded.modified)

    def lease(self, identifier: str) -> AbstractContextManager[Lease]:
        """A lease for preparing ``identifier``, which only spares duplicate work.

        The default lease is always free. A lease ends with the block, or with the process.
        """
        return contextlib.nullcontext(Lease())

    def remove_abandoned(self, prefix: str = "") -> list[str]:
        """Remove files of dead writers below ``prefix``, and return their names. Live writers keep theirs."""
        return []

    def move_resource(self, identifier: str, new_identifier: str) -> None:
        """Rename a resource, replacing one of the new name. It exists under at least one of both names at any time.

        Renaming a resource to its own name leaves it as it is, in every store.

        Raises:
            ResourceNotFoundError: nothing is stored under ``identifier``.
            StorageError: it could not be written; an old resource ``new_identifier`` is unchanged.
            UnsupportedStorageOperationError: this store cannot delete.
        """
        if identifier == new_identifier:
            self.stat(identifier)  # raises if it is missing
            return
        with self.get_resource(identifier) as resource:
            self.set_resource(new_identifier, resource)
        self.delete_resource(identifier)

    def _make_resource(
        self, identifier: str, source: ByteSource, kind: SupportedStreamedResourceTypes
    ) -> StreamedResource:
        """The resource that ``get_resource`` of a store of ours returns: lazy bytes, or their text."""
        resource = StreamedResource.from_source(identifier, source, self)
        is_text = kind is SupportedStreamedResourceTypes.STREAMED_TEXT_RESOURCE
        return (
            cast(StreamedResource, StreamedTextResource.from_streamed_resource(resource))
            if is_text
            else resource
        )

    # ------------------------------------------------------------------ upkeep

    def collect_garbage(
        self, grace_seconds: float = DAY_SECONDS, *, dry_run: bool = False
    ) -> list[Garbage]:
        """Remove unneeded data: of dead writers, replaced versions, unreferenced content.

        It keeps resources, data of live writers, and versions replaced less than ``grace_seconds`` ago by the store's clock. It
        may be interrupted, and run beside writers and readers.

        Args:
            grace_seconds: how long replaced versions stay for their readers.
            dry_run: only list what would be removed.
        """
        return (
            []
            if dry_run
            else [
                Garbage(name, None, "left by a writer that died")
                for name in self.remove_abandoned()
            ]
        )


@dataclass(frozen=True, slots=True)
class KeyOpener:
    """Opens the files of a store by their keys: for a resource of such a file in another process.

    Attributes:
        connector: the store.
    """

    connector: StorageConnector

    def get_resource(self, key: str) -> StreamedResource:
        """Open a file."""
        return self.connector.open_key(key)


def info_of(connector: StorageConnector, identifier: str) -> ResourceInfo | None:
    """Size, digest and age of a resource; None if nothing is stored under this identifier.

    A connector with a ``stat()`` of its own is only asked once. One with but the three methods of the
    contract opens the resource, which may raise anything for a missing one, so it is asked before
    whether the resource is there.

    Raises:
        DatasetFileCorruptError: the record of the store is damaged.
    """
    has_own_stat = type(connector).stat is not StorageConnector.stat
    if not has_own_stat and not connector.has_resource(identifier):
        return None
    try:
        return connector.stat(identifier)
    except ResourceNotFoundError:
        return None


def _knowing_its_connector(get_resource: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap ``get_resource`` so that its resources pickle as (connector, identifier)."""

    @functools.wraps(get_resource)
    def open_resource(self: StorageConnector, *arguments: Any, **options: Any) -> Any:
        resource = get_resource(self, *arguments, **options)
        return (
            resource.reopen_by(self)
            if isinstance(resource, (StreamedResource, StreamedTextResource))
            else resource
        )

    return open_resource
