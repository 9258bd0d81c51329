"""The storage connector for object stores and remote file systems.

A store is laid out below its URL like this. Names that no identifier can have are ours:

- ``.data_stack/resources/a/b.gz~``: the pointer of ``a/b.gz`` (:mod:`.pointer`): size, SHA-256 of
  the whole, digests of the blocks, and small content itself. Publishing is one atomic put of it;
- ``.data_stack/objects/VERSION/NUMBER``: a part of 4 MiB, which never changes. Open readers read
  the parts of a replaced resource until garbage collection removes them after a grace period;
- ``.data_stack/leases/…`` and ``.data_stack/temporaries/…``;
- ``a/b.gz`` without a pointer is a plain file of another tool, without digests of its blocks.
  ``.data_stack/digests/a/b.gz~`` holds the SHA-256 that
  :meth:`FsspecStorageConnector.verify_resource` found.

Why pointers: a plain object with a note on its digests beside it would be simpler. But two writers
at once could leave the note of one beside the object of the other, as not every store has ETags.
And an interrupted multipart upload leaves fragments that no listing shows.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Literal

from data_stack.exception import ConfigError, ResourceNotFoundError, StorageConflictError
from data_stack.io.identifiers import (
    OWN_FOLDER,
    check_identifier,
    check_key,
    check_key_prefix,
    check_prefix,
    is_identifier,
    is_key,
)
from data_stack.io.resources import Storable, StreamedResource, SupportedStreamedResourceTypes
from data_stack.io.storage_connectors.blocks import BlockedSource
from data_stack.io.storage_connectors.connector import (
    BINARY,
    DAY_SECONDS,
    Garbage,
    KeyOpener,
    ResourceInfo,
    StorageConnector,
)
from data_stack.io.storage_connectors.heartbeat import HeartbeatLease
from data_stack.io.storage_connectors.lease import Lease
from data_stack.io.storage_connectors.object_store import garbage
from data_stack.io.storage_connectors.object_store.azure_account import AZURE_PROTOCOLS
from data_stack.io.storage_connectors.object_store.bucket_files import BucketFiles
from data_stack.io.storage_connectors.object_store.client_choice import (
    OBSTORE,
    choose_client,
    is_obstore_installed,
)
from data_stack.io.storage_connectors.object_store.errors import AccessRefusedError
from data_stack.io.storage_connectors.object_store.file_system import (
    GOOGLE_PROTOCOLS,
    S3_PROTOCOLS,
    RemoteFileSystem,
)
from data_stack.io.storage_connectors.object_store.fsspec_objects import FsspecObjects
from data_stack.io.storage_connectors.object_store.gcsfs_objects import GcsfsObjects
from data_stack.io.storage_connectors.object_store.google_files import GoogleFiles
from data_stack.io.storage_connectors.object_store.layout import (
    LEASES,
    RESOURCES,
    identifier_of,
    note_path,
    pointer_path,
)
from data_stack.io.storage_connectors.object_store.object_blocks import ObjectBlocks
from data_stack.io.storage_connectors.object_store.object_client import ObjectClient
from data_stack.io.storage_connectors.object_store.pointer import Pointer
from data_stack.io.storage_connectors.object_store.pointers import Pointers
from data_stack.io.storage_connectors.object_store.remote_files import RemoteFiles
from data_stack.io.storage_connectors.object_store.s3fs_objects import S3fsObjects
from data_stack.io.storage_connectors.object_store.upload import size_of, upload
from data_stack.io.storage_connectors.object_store.url_options import parse_options
from data_stack.io.storage_connectors.storable import binary_chunks
from data_stack.io.url import StorageURL
from data_stack.util.executor import waiting


class FsspecStorageConnector(StorageConnector):
    """Keeps resources below a URL of any file system of fsspec: s3://, gs://, az://, sftp:// …

    The connector connects on first use, and never creates a bucket. Every block is verified on
    every read. Publishing is one atomic put where the store has it, and a rename elsewhere (on
    HDFS, replacing a resource removes the old pointer first). Threads may share a connector. Forked
    and spawned processes make their own connections.

    Credentials come from the environment, as the client of the store finds them, or from
    ``storage_options``. A pickled connector holds these options; no repr, log or error shows them.

    Args:
        url: scheme, bucket (or host), and folder: ``"s3://bucket/folder"``.
        read_only: whether to never write, not even a lease.
        timeout_seconds: the limit of a single request, retries included. Listings may take ten
            times as long. HDFS and SFTP keep it as far as their clients do.
        client: ``"obstore"`` reads and writes the objects of s3://, gs:// and az:// with a fraction
            of the processor time of ``"fsspec"``, which has all options of its file systems. By
            default it is obstore for these schemes, where it is installed and has all given
            options.
        storage_options: arguments of the class of the file system, e.g.
            ``endpoint_url="https://…"`` for ``s3fs.S3FileSystem``.

    Raises:
        ConfigError: the URL has no bucket or host, fsspec does not know its scheme, or an option is
            out of range.
        MissingDependencyError: the package for the scheme is not installed.
    """

    knows_digests = True
    checks_reads = True
    #: The arguments of the constructor.
    _url: str
    _read_only: bool
    _timeout_seconds: float
    _client: Literal["obstore", "fsspec"] | None
    _storage_options: dict[str, Any]
    _files: RemoteFiles
    _pointers: Pointers

    def __init__(
        self,
        url: str,
        *,
        read_only: bool = False,
        timeout_seconds: float = 30.0,
        client: Literal["obstore", "fsspec"] | None = None,
        **storage_options: Any,
    ) -> None:
        if not 0 < timeout_seconds < float("inf"):
            raise ConfigError("timeout_seconds must be a positive number")
        self._url = url
        self._read_only = read_only
        self._timeout_seconds = timeout_seconds
        self._client = client
        self._storage_options = storage_options
        file_system = RemoteFileSystem(url, timeout_seconds, storage_options)
        objects = _make_objects(file_system, client, timeout_seconds)
        self._files = _make_files(file_system, objects, read_only=read_only)
        self._pointers = Pointers(self._files, repr(self))

    @classmethod
    def from_url(cls, url: str) -> FsspecStorageConnector:
        """Make the connector of a URL with options.

        An example is ``"s3://bucket/folder?endpointUrl=https://…&region=eu-1"``. Options of every
        scheme are ``readOnly`` (true or false), ``timeoutSeconds`` and ``client`` (obstore or
        fsspec). Besides, there are

        - s3: ``anonymous``, ``endpointUrl``, ``region``, ``profile``, ``requesterPays``;
        - gs: ``anonymous``, ``endpointUrl``, ``project``;
        - az: ``anonymous``, ``account``, ``endpointUrl``;
        - sftp: ``keyFile``, ``knownHosts`` (a file besides ``~/.ssh/known_hosts``);
        - hdfs: ``user``, ``kerberosTicket``.

        Raises:
            ConfigError: an option is unknown or invalid. Values are never shown.
        """
        parts = StorageURL.parse(url)
        if parts is None:
            raise ConfigError("a store needs a URL with a scheme, such as s3://bucket/folder")
        place = replace(parts, query="", fragment="")
        return cls(str(place), **parse_options(parts.scheme, parts.query.removeprefix("?")))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._files.place!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        options = dict(self._storage_options)
        if self._client is not None:
            options["client"] = self._client
        make = functools.partial(
            type(self),
            read_only=self._read_only,
            timeout_seconds=self._timeout_seconds,
            **options,
        )
        return make, (self._url,)

    # ------------------------------------------------------------------ reading

    def get_resource(
        self, identifier: str, resource_type: SupportedStreamedResourceTypes = BINARY
    ) -> StreamedResource:
        pointer = self._pointers.look_up(identifier)
        read_pointer = functools.partial(self._pointers.read, identifier)
        blocks = ObjectBlocks(self._files, pointer, read_pointer)
        return self._make_resource(identifier, BlockedSource(blocks), resource_type)

    def has_resource(self, identifier: str) -> bool:
        check_identifier(identifier)
        try:
            return any(self._files.exist([pointer_path(identifier), identifier]))
        except AccessRefusedError as refusal:
            if self._pointers.can_read_plain_file(identifier, refusal):
                return True
            raise

    def stat(self, identifier: str) -> ResourceInfo:
        pointer = self._pointers.look_up(identifier)
        file = pointer.file or self._files.info(pointer_path(identifier))
        modified = None if file is None else file.modified
        return ResourceInfo(identifier, pointer.size, pointer.sha256 or None, modified)

    def list_resources(self, prefix: str = "") -> list[str]:
        check_prefix(prefix)
        return [key for key in self._list_names(prefix) if is_identifier(key)]

    def missing_place(self) -> str | None:
        if self._files.has_root():
            return None
        return f"the folder {self._files.place}"

    def verify_resource(self, identifier: str, sha256: str | None = None) -> ResourceInfo:
        pointer = self._pointers.look_up(identifier)
        info = super().verify_resource(identifier, sha256)
        if pointer.file is not None and info.sha256 is not None and pointer.sha256 != info.sha256:
            self._pointers.note_digest(identifier, pointer.file, info.sha256)
        return info

    # ------------------------------------------------------------------ writing

    def set_resource(self, identifier: str, resource: Storable) -> None:
        check_identifier(identifier)
        size = size_of(resource)
        if size is None:
            # The source can be read only once, and the upload needs its length before it begins. So
            # the source is copied to a temporary file first.
            with self.create(identifier) as writer:
                writer.writelines(binary_chunks(resource))
            return
        self._pointers.publish(upload(self._files, identifier, resource, size))

    def move_resource(self, identifier: str, new_identifier: str) -> None:
        check_identifier(new_identifier)
        pointer = self._pointers.read(identifier)
        if pointer is None:
            super().move_resource(identifier, new_identifier)
        elif identifier != new_identifier:
            self._pointers.publish(replace(pointer, identifier=new_identifier))
            self._delete_moved(identifier, new_identifier, pointer)

    def delete_resource(self, identifier: str) -> None:
        check_identifier(identifier)
        has_plain_file, has_pointer = self._files.exist([identifier, pointer_path(identifier)])
        if not has_pointer and not has_plain_file:
            raise ResourceNotFoundError(identifier, repr(self))
        # The pointer last: an interrupted deletion must not uncover the plain file that the
        # resource has replaced.
        if has_plain_file:
            self._files.delete(identifier)
        if has_pointer:
            self._files.delete(pointer_path(identifier))
        if has_plain_file:
            self._files.delete(note_path(identifier))

    def _delete_moved(self, identifier: str, new_identifier: str, pointer: Pointer) -> None:
        """Delete a resource that now has another name.

        Raises:
            StorageConflictError: another writer has replaced it.
        """
        # The plain file first, as in delete_resource().
        if self._files.exist([identifier])[0]:
            self._files.delete(identifier)
            self._files.delete(note_path(identifier))
        if not self._files.delete_unchanged(pointer_path(identifier), pointer.to_bytes()):
            raise StorageConflictError(
                f"{identifier!r} in {self!r} was replaced while it was moved: "
                f"{new_identifier!r} has the bytes from before, {identifier!r} the new ones"
            )

    # ------------------------------------------------------------------ files of other tools

    def list_keys(self, prefix: str = "") -> list[str]:
        check_key_prefix(prefix)
        return self._list_names(prefix)

    def list_links(self, prefix: str = "") -> list[str]:
        check_key_prefix(prefix)
        folder = prefix.rpartition("/")[0]
        return sorted(link for link in self._files.links(folder) if link.startswith(prefix))

    def has_key(self, key: str) -> bool:
        if is_identifier(key):
            return self.has_resource(key)
        check_key(key)
        return self._files.exist([key])[0]

    def open_key(self, key: str) -> StreamedResource:
        if is_identifier(key):
            return self.get_resource(key)
        check_key(key)
        file = self._files.info(key)
        if file is None:
            raise ResourceNotFoundError(key, repr(self))
        pointer = Pointer.adopt(key, file, None)
        blocks = ObjectBlocks(self._files, pointer, lambda: None)
        return StreamedResource.from_source(key, BlockedSource(blocks), KeyOpener(self))

    def delete_key(self, key: str) -> None:
        if is_identifier(key):
            self.delete_resource(key)
            return
        if not self.has_key(key):
            raise ResourceNotFoundError(key, repr(self))
        self._files.delete(key)

    def _list_names(self, prefix: str) -> list[str]:
        """Return the keys of all resources and plain files that begin with ``prefix``, sorted."""
        folder = prefix.rpartition("/")[0]
        if prefix and self._files.lists_by_prefix:
            pointers, plain_files = waiting.map(
                self._files.beginning_with, (f"{RESOURCES}/{prefix}", prefix), at_once=2
            )
        else:
            pointers = self._files.files(f"{RESOURCES}/{folder}" if folder else RESOURCES)
            plain_files, folders = self._files.entries(folder)
            for plain_folder in folders:
                if plain_folder != OWN_FOLDER and f"{plain_folder}/".startswith(prefix):
                    plain_files += self._files.files(plain_folder)

        keys = {file.path for file in plain_files if is_key(file.path)}
        for pointer in pointers:
            identifier = identifier_of(pointer.path)
            if identifier is not None:
                keys.add(identifier)
        return sorted(key for key in keys if key.startswith(prefix))

    # ------------------------------------------------------------------ upkeep

    def lease(self, identifier: str) -> AbstractContextManager[Lease]:
        check_identifier(identifier)
        name = hashlib.sha256(identifier.encode()).hexdigest()
        return contextlib.closing(HeartbeatLease(self._files, f"{LEASES}/{name}"))

    def collect_garbage(
        self, grace_seconds: float = DAY_SECONDS, *, dry_run: bool = False
    ) -> list[Garbage]:
        """Remove parts that no resource needs, and abandoned leases.

        The grace period, by the clock of the store, must be longer than the upload of a resource,
        and than the reading of a replaced one. Nothing but names below the store's own folders is
        removed, and nothing if what the store lists is in doubt.

        Raises:
            DatasetFileCorruptError: a pointer cannot be read, so its parts are unknown. Nothing was
                removed.
            StorageError: the store could not be listed, or two listings differ in what is old.
                Nothing was removed.
        """
        return garbage.collect_garbage(
            self._files, self._pointers, repr(self), grace_seconds, dry_run=dry_run
        )


def _make_files(
    file_system: RemoteFileSystem, objects: ObjectClient, *, read_only: bool
) -> RemoteFiles:
    """Make the files of a store."""
    if file_system.protocol in (*S3_PROTOCOLS, *AZURE_PROTOCOLS):
        return BucketFiles(file_system, objects, read_only=read_only)
    if file_system.protocol in GOOGLE_PROTOCOLS:
        return GoogleFiles(file_system, objects, read_only=read_only)
    return RemoteFiles(file_system, objects, read_only=read_only)


def _make_objects(
    file_system: RemoteFileSystem, client: str | None, timeout_seconds: float
) -> ObjectClient:
    """Make the client for single objects of a store."""
    bucket = file_system.root.partition("/")[0]
    chosen_client = choose_client(
        client,
        file_system.protocol,
        bucket,
        file_system.options,
        is_installed=is_obstore_installed(),
    )
    make_fsspec_objects = functools.partial(_make_fsspec_objects, file_system)
    if chosen_client != OBSTORE:
        return make_fsspec_objects()

    # Imported here, as obstore may be missing.
    from data_stack.io.storage_connectors.object_store.obstore_objects import ObstoreObjects

    return ObstoreObjects(file_system, timeout_seconds, make_fsspec_objects)


def _make_fsspec_objects(file_system: RemoteFileSystem) -> ObjectClient:
    """Make the client for single objects that sends requests by the file system of fsspec."""
    if file_system.protocol in S3_PROTOCOLS:
        return S3fsObjects(file_system)
    if file_system.protocol in GOOGLE_PROTOCOLS:
        return GcsfsObjects(file_system)
    if file_system.protocol in AZURE_PROTOCOLS:
        # Imported here, as the client of Azure may be missing.
        from data_stack.io.storage_connectors.object_store.adlfs_objects import AdlfsObjects

        return AdlfsObjects(file_system)
    return FsspecObjects(file_system)
