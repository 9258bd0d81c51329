"""The storage connector for MongoDB."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import itertools
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final

import pymongo
from bson import ObjectId
from pymongo import ReadPreference
from pymongo.errors import (
    ConnectionFailure,
    DuplicateKeyError,
    PyMongoError,
    ServerSelectionTimeoutError,
    WriteConcernError,
)

from data_stack.exception import (
    DataStackError,
    ReadOnlyStorageError,
    ResourceChangedError,
    ResourceNotFoundError,
    StorageConflictError,
    StorageError,
    StorageUnavailableError,
)
from data_stack.io.identifiers import check_identifier, check_prefix, is_identifier
from data_stack.io.integrity import Digest, block_digest
from data_stack.io.resources import (
    ByteSource,
    Storable,
    StreamedResource,
    SupportedStreamedResourceTypes,
)
from data_stack.io.storage_connectors.blocks import BlockedSource
from data_stack.io.storage_connectors.connector import (
    BINARY,
    DAY_SECONDS,
    Garbage,
    ResourceInfo,
    StorageConnector,
)
from data_stack.io.storage_connectors.heartbeat import HeartbeatLease
from data_stack.io.storage_connectors.lease import Lease
from data_stack.io.storage_connectors.memory import BytesSource
from data_stack.io.storage_connectors.mongodb import garbage
from data_stack.io.storage_connectors.mongodb.chunks import FileChunks
from data_stack.io.storage_connectors.mongodb.connection import BRIEF_SECONDS, Connection
from data_stack.io.storage_connectors.mongodb.leases import LeaseDocuments
from data_stack.io.storage_connectors.mongodb.resource_version import ResourceVersion
from data_stack.io.storage_connectors.mongodb.settings import Settings
from data_stack.io.storage_connectors.mongodb.upload import Upload
from data_stack.io.storage_connectors.storable import binary_chunks, split_into_pieces
from data_stack.io.storage_connectors.writer import ResourceWriter

#: How often publishing is tried.
_MAX_ATTEMPTS: Final = 8
#: The last character of Unicode. Identifiers that begin with a prefix sort before the prefix with
#: this character.
_LAST_CHARACTER: Final = "\U0010ffff"


class MongoDBStorageConnector(StorageConnector):
    """Keeps resources in a MongoDB database. Any number of machines may share it.

    Each identifier has a document in ``bucket.resources``, its current version. It holds the bytes
    of a small resource; those of a larger one are a GridFS file (``bucket.files``,
    ``bucket.chunks``), which GridFS tools can read. Replacing the document publishes: one atomic
    update, acknowledged by the majority of the servers and their journals. An open resource keeps
    its version when the identifier is replaced or deleted. Every chunk is verified on every read.

    Reading fetches only the chunks that hold the requested bytes. A batch of ranges is one query.
    Operations end within ``timeout_seconds`` (an upload: each batch of it). The connector connects
    at the first operation. Connectors with the same settings share one client per process;
    :meth:`close` on the last of them closes it.

    Args:
        uri: the MongoDB connection string: ``mongodb://user:password@host:27017/database``, with
            TLS, replica set and other driver options. It is never shown, but pickled with the
            connector, because workers need it. With a ``readPreference``, the primary is asked for
            what a secondary lacks. ``readConcernLevel`` is ``majority`` by default.
        database: the database; by default that of ``uri``, or else ``data_stack``.
        bucket: the prefix of the collection names.
        read_only: whether to write nothing, not even indexes. Storing raises ReadOnlyStorageError.
        timeout_seconds: the limit of one operation, looking for a server included. The first
            operation of a process waits at most 5 s for a server (or the connection string's
            ``serverSelectionTimeoutMS``).
        chunk_bytes: the length of the chunks to write; 64 KiB to 1 MiB work well. The default is
            that of GridFS: a 4 KiB read costs 0.5 ms with 64 KiB chunks, 0.6 ms with these, 1.3 ms
            with 1 MiB.
        inline_bytes: resources up to this length are stored in their document, in one round trip.
        allow_invalid_certificates: whether to accept a connection string that turns certificate
            checks off.

    Raises:
        ConfigError: an argument is invalid. The message holds no part of ``uri``.
    """

    knows_digests = True
    checks_reads = True
    _settings: Settings

    def __init__(
        self,
        uri: str,
        database: str | None = None,
        bucket: str = "data_stack",
        *,
        read_only: bool = False,
        timeout_seconds: float = 30.0,
        chunk_bytes: int = 255 * 1024,
        inline_bytes: int = 128 * 1024,
        allow_invalid_certificates: bool = False,
    ) -> None:
        self._settings = Settings(
            uri=uri,
            database=database,
            bucket=bucket,
            read_only=read_only,
            timeout_seconds=timeout_seconds,
            chunk_bytes=chunk_bytes,
            inline_bytes=inline_bytes,
            allow_invalid_certificates=allow_invalid_certificates,
        )

    @classmethod
    def from_url(cls, url: str) -> MongoDBStorageConnector:
        """Make the connector of a URL.

        The URL is a connection string whose query may also hold ``bucket``, ``readOnly``,
        ``timeoutSeconds``, ``chunkBytes``, ``inlineBytes`` and ``allowInvalidCertificates``.

        Raises:
            ConfigError: the URL is invalid. The message holds no part of it.
        """
        uri, arguments = Settings.split_url(url)
        return cls(uri, **arguments)

    def __repr__(self) -> str:
        suffix = ", read_only=True" if self._settings.read_only else ""
        return f"{type(self).__name__}({self._settings.name!r}{suffix})"

    def __getstate__(self) -> dict[str, Any]:
        return {"_settings": self._settings}

    @functools.cached_property
    def _connection(self) -> Connection:
        return Connection.shared(self._settings)

    def close(self) -> None:
        """Release the connection. The next operation connects again.

        The connection closes once no other connector or open resource uses it.
        """
        # This empties the cached property.
        self.__dict__.pop("_connection", None)

    def __enter__(self) -> MongoDBStorageConnector:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------ reading

    def get_resource(
        self, identifier: str, resource_type: SupportedStreamedResourceTypes = BINARY
    ) -> StreamedResource:
        version = self._find_version(identifier)
        source: ByteSource
        if version.file_id is None:
            source = BytesSource(version.data or b"", version.info)
        else:
            source = BlockedSource(FileChunks(self._connection, version, self._explain_loss))
        return self._make_resource(identifier, source, resource_type)

    def has_resource(self, identifier: str) -> bool:
        check_identifier(identifier)
        return self._find_document(identifier, {"_id": 1}) is not None

    def stat(self, identifier: str) -> ResourceInfo:
        return self._find_version(identifier, {"data": 0}).info

    def list_resources(self, prefix: str = "") -> list[str]:
        check_prefix(prefix)
        query = {"_id": {"$gte": prefix, "$lt": prefix + _LAST_CHARACTER}}
        with self._connection.operation("list", prefix):
            documents = self._connection.readable("resources").find(
                query, {"_id": 1}, sort=[("_id", 1)]
            )
            identifiers = [document["_id"] for document in documents]
        return [identifier for identifier in identifiers if is_identifier(identifier)]

    def missing_place(self) -> str | None:
        with self._connection.operation("look for the collections of", ""):
            has_store = self._connection.has_collection("resources")
        if has_store:
            return None
        name = f"{self._settings.bucket}.resources"
        return f"the collection {name!r} in {self._settings.name}"

    def _find_document(
        self, identifier: str, projection: Mapping[str, Any] | None = None
    ) -> dict[str, Any] | None:
        """Return the document of an identifier; None if there is none.

        If a secondary has no such document, the primary is asked.
        """
        query = {"_id": identifier}
        with self._connection.operation("look for", identifier):
            resources = self._connection.readable("resources")
            document = resources.find_one(query, projection)
            if document is None and resources.read_preference != ReadPreference.PRIMARY:
                document = self._connection.writable("resources").find_one(query, projection)
        return document

    def _find_version(
        self, identifier: str, projection: Mapping[str, Any] | None = None
    ) -> ResourceVersion:
        """Return the current version of a resource.

        Raises:
            ResourceNotFoundError: there is none.
            DatasetFileCorruptError: its document is damaged.
        """
        check_identifier(identifier)
        document = self._find_document(identifier, projection)
        if document is None:
            raise ResourceNotFoundError(identifier, repr(self))
        is_whole = projection is None
        return ResourceVersion.of(document, self._settings.name, is_whole=is_whole)

    def _explain_loss(self, version: ResourceVersion) -> None:
        """Raise if a chunk is missing because the resource was replaced or deleted.

        Otherwise the store is damaged, and the caller raises.

        Raises:
            ResourceChangedError: the version is no longer the current one, and garbage collection
                has deleted its file.
        """
        current = self._find_document(version.identifier, {"file_id": 1, "sha256": 1})
        if current is not None and current.get("file_id") == version.file_id:
            return
        now = "nothing" if current is None else f"sha256 {current.get('sha256')}"
        before = f"sha256 {version.sha256}, deleted since"
        raise ResourceChangedError(version.identifier, before, now)

    # ------------------------------------------------------------------ writing

    def set_resource(self, identifier: str, resource: Storable) -> None:
        """Store a resource under an identifier, as every connector does.

        Raises:
            StorageUnavailableError: the server did not answer. The resource is unchanged, or (only
                if the message says so) possibly published whole.
        """
        self._check_writable("store", identifier)
        inline_bytes = self._settings.inline_bytes
        chunk_bytes = self._settings.chunk_bytes
        chunks = split_into_pieces(binary_chunks(resource), chunk_bytes)

        # Read just enough to know whether the resource is small enough for a document.
        head = list(itertools.islice(chunks, inline_bytes // chunk_bytes + 1))
        head_size = sum(len(chunk) for chunk in head)
        if head_size > inline_bytes:
            self._store_file(identifier, itertools.chain(head, chunks))
            return

        data = b"".join(head)
        digest = Digest()
        digest.update(data)
        version = ResourceVersion(
            identifier,
            len(data),
            digest.sha256,
            ObjectId(),
            data=data,
            data_digest=block_digest(data),
        )
        replaced = self._publish(version)
        self._mark_replaced(replaced)

    def create(self, identifier: str) -> AbstractContextManager[ResourceWriter]:
        self._check_writable("store", identifier)
        return super().create(identifier)

    def move_resource(self, identifier: str, new_identifier: str) -> None:
        self._check_writable("move", new_identifier)
        version = self._find_version(identifier)
        if identifier == new_identifier:
            return
        moved = dataclasses.replace(version, identifier=new_identifier, write_id=ObjectId())
        replaced = self._publish(moved)
        with self._connection.operation("move", identifier):
            resources = self._connection.writable("resources")
            deletion = resources.delete_one({"_id": identifier, "write_id": version.write_id})
            is_deleted = deletion.deleted_count > 0
            if not is_deleted:
                # Another writer has replaced the resource, so the file of the moved version may be
                # deleted soon.
                self._withdraw(moved, replaced)
        if not is_deleted:
            # This raises if the resource is gone.
            self._find_version(identifier, {"data": 0})
            raise StorageConflictError(
                f"{identifier!r} in {self!r} was replaced while it was moved; it was not moved"
            )
        # After an interrupted move, the replaced document has the file that was moved now.
        has_same_file = replaced is not None and replaced.get("file_id") == moved.file_id
        if not has_same_file:
            self._mark_replaced(replaced)

    def delete_resource(self, identifier: str) -> None:
        self._check_writable("delete", identifier)
        with self._connection.operation("delete", identifier):
            resources = self._connection.writable("resources")
            try:
                deleted = resources.find_one_and_delete(
                    {"_id": identifier}, {"file_id": 1, "_id": 1}
                )
            except ConnectionFailure:
                # Deleting again does no harm.
                resources.delete_one({"_id": identifier})
                return
        if deleted is None:
            raise ResourceNotFoundError(identifier, repr(self))
        self._mark_replaced(deleted)

    def _check_writable(self, action: str, identifier: str) -> None:
        """Check the identifier of a resource to change, and that the store may be changed.

        Raises:
            MalformedIdentifierError: the identifier is malformed.
            ReadOnlyStorageError: the connector is read-only.
        """
        check_identifier(identifier)
        if self._settings.read_only:
            raise ReadOnlyStorageError(
                f"could not {action} {identifier!r}: {self!r} was opened for reading only",
                errno.EROFS,
            )

    def _store_file(self, identifier: str, chunks: Iterable[bytes]) -> None:
        """Store a resource as a file of GridFS.

        Args:
            identifier: the identifier of the resource.
            chunks: its bytes in pieces of ``chunk_bytes``.
        """
        with self._connection.operation("store", identifier):
            self._connection.make_indexes()
        upload = Upload(self._connection, identifier)
        try:
            upload.send(chunks)
            upload.complete()
            version = ResourceVersion(
                identifier,
                upload.digest.size,
                upload.digest.sha256,
                ObjectId(),
                file_id=upload.file_id,
                chunk_bytes=self._settings.chunk_bytes,
            )
            replaced = self._publish(version)
            self._check_published(version, replaced, upload)
        except _OutcomeUnknownError:
            # The file may belong to a version now.
            raise
        except BaseException as error:
            limit_seconds = None
            if isinstance(error, StorageUnavailableError):
                limit_seconds = BRIEF_SECONDS
            # If this fails, garbage collection finds the upload by its record once this process has
            # ended.
            with contextlib.suppress(DataStackError), pymongo.timeout(limit_seconds):
                upload.abort()
            raise
        with contextlib.suppress(DataStackError):
            upload.forget()
        self._mark_replaced(replaced)

    # ------------------------------------------------------------------ publishing

    def _publish(self, version: ResourceVersion) -> dict[str, Any] | None:
        """Replace the document of a resource in one step.

        Returns:
            The document of the version before. None if there was none; also None if the first
            answer of the server was lost, as the document before is unknown then.

        Raises:
            StorageUnavailableError: the version was not published.
            _OutcomeUnknownError: it may have been published.
        """
        identifier = version.identifier
        with self._connection.operation("publish", identifier):
            resources = self._connection.writable("resources")
            is_outcome_unknown = False
            for attempt in range(_MAX_ATTEMPTS):
                try:
                    if is_outcome_unknown and self._confirm_published(version):
                        return None
                    return resources.find_one_and_update(
                        {"_id": identifier}, version.update(), upsert=True
                    )
                except DuplicateKeyError:
                    # Another writer has created the document at once. The next attempt updates it.
                    continue
                except PyMongoError as error:
                    was_never_sent = (
                        isinstance(error, ServerSelectionTimeoutError) and not is_outcome_unknown
                    )
                    if was_never_sent or not _leaves_outcome_unknown(error):
                        raise
                    is_last_attempt = attempt == _MAX_ATTEMPTS - 1
                    if error.timeout or is_last_attempt:
                        raise self._outcome_unknown_error(identifier, error) from error
                    # Perhaps only the answer was lost. The next attempt looks at the document, once
                    # a server answers again.
                    is_outcome_unknown = True
        raise StorageError(
            f"could not publish {identifier!r} in {self!r}: "
            "other writers create and delete it; try again"
        )

    def _confirm_published(self, version: ResourceVersion) -> bool:
        """Return whether a version, the answer to whose update was lost, is published durably.

        The document is updated and not only read: the earlier update is durable once the majority
        of the servers has acknowledged a later one.
        """
        confirmation = self._connection.writable("resources").update_one(
            {"_id": version.identifier, "write_id": version.write_id},
            {"$currentDate": {"modified": True}},
        )
        return confirmation.matched_count > 0

    def _check_published(
        self, version: ResourceVersion, replaced: dict[str, Any] | None, upload: Upload
    ) -> None:
        """Check that garbage collection does not delete the file of a published version.

        It does if this process stalled for so long that it seemed dead. Then the version is
        withdrawn.

        Raises:
            StorageError: the version was withdrawn.
            _OutcomeUnknownError: the server did not answer.
        """
        try:
            with self._connection.operation("store", version.identifier):
                if not upload.is_marked_for_deletion():
                    return
                self._withdraw(version, replaced)
        except StorageError as error:
            # The record of the upload stays, for garbage collection.
            raise self._outcome_unknown_error(version.identifier, error) from error
        raise upload.deletion_error()

    def _withdraw(self, version: ResourceVersion, replaced: dict[str, Any] | None) -> None:
        """Restore the version before, unless another writer has published since.

        Args:
            version: the version to withdraw.
            replaced: the document before. If it is None, the resource is deleted: there was none,
                or it is lost with an answer of the server (see :meth:`_publish`), and a document
                whose file is gone would be worse.
        """
        resources = self._connection.writable("resources")
        query = {"_id": version.identifier, "write_id": version.write_id}
        if replaced is None:
            resources.delete_one(query)
        else:
            resources.replace_one(query, replaced)

    def _mark_replaced(self, replaced: Mapping[str, Any] | None) -> None:
        """Begin the grace period of the file of a version that was replaced or deleted.

        If this fails, garbage collection finds the file.

        Args:
            replaced: the document of the version; None if there was none.
        """
        file_id = None if replaced is None else replaced.get("file_id")
        # The document is untrusted: a dict in place of the id would be an operator of the query.
        if not isinstance(file_id, ObjectId):
            return
        with contextlib.suppress(DataStackError), self._connection.operation("mark", str(file_id)):
            self._connection.writable("files", durable=False).update_one(
                {"_id": file_id, "metadata.data_stack": 1},
                {"$currentDate": {"metadata.replaced": True}},
            )

    def _outcome_unknown_error(self, identifier: str, error: Exception) -> _OutcomeUnknownError:
        return _OutcomeUnknownError(
            f"the server at {self._settings.name} disconnected while {identifier!r} was published "
            f"({type(error).__name__}): the resource is unchanged or published whole. "
            "Check it, or store it again."
        )

    # ------------------------------------------------------------------ upkeep

    def lease(self, identifier: str) -> AbstractContextManager[Lease]:
        check_identifier(identifier)
        if self._settings.read_only:
            return contextlib.nullcontext(Lease())
        return contextlib.closing(HeartbeatLease(LeaseDocuments(self._connection), identifier))

    def collect_garbage(
        self, grace_seconds: float = DAY_SECONDS, *, dry_run: bool = False
    ) -> list[Garbage]:
        if not dry_run and self._settings.read_only:
            raise ReadOnlyStorageError(
                f"could not collect garbage: {self!r} was opened for reading only", errno.EROFS
            )
        return garbage.collect_garbage(self._connection, grace_seconds, dry_run=dry_run)


class _OutcomeUnknownError(StorageUnavailableError):
    """A version may have been published, or not."""


def _leaves_outcome_unknown(error: PyMongoError) -> bool:
    """Return whether an update may have been applied although it failed."""
    return isinstance(error, (ConnectionFailure, WriteConcernError)) or error.timeout
