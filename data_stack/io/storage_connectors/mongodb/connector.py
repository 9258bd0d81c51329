"""The storage connector for MongoDB."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping
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
from data_stack.io.resources import Storable, StreamedResource, SupportedStreamedResourceTypes
from data_stack.io.storage_connectors.blocks import BlockedSource
from data_stack.io.storage_connectors.connector import (
    BINARY,
    Garbage,
    ResourceInfo,
    StorageConnector,
)
from data_stack.io.storage_connectors.heartbeat import HeartbeatLease
from data_stack.io.storage_connectors.lease import Lease
from data_stack.io.storage_connectors.memory import BytesSource
from data_stack.io.storage_connectors.mongodb import files
from data_stack.io.storage_connectors.mongodb.connection import (
    BRIEF_SECONDS,
    Connection,
    Documents,
    Settings,
)
from data_stack.io.storage_connectors.storable import binary_chunks, in_pieces
from data_stack.io.storage_connectors.writer import ResourceWriter

_ATTEMPTS: Final = 8


class MongoDBStorageConnector(StorageConnector):
    """Keeps resources in a MongoDB database; any number of machines may share it.

    Each identifier has a *pointer document* in ``bucket.resources``. It holds the bytes of a small resource; a larger one is
    a GridFS file (``bucket.files``, ``bucket.chunks``), which GridFS tools can read. Replacing the pointer publishes: one
    atomic update, acknowledged by the majority of the servers and their journals. An open resource stays pinned to its file
    when the identifier is replaced or deleted. Every chunk is verified on every read.

    Reading fetches only the chunks that hold the requested bytes; a batch of ranges is one query. Operations end within
    ``timeout_seconds`` (an upload: each batch of it). The connector connects at the first operation. Connectors with the same
    settings share one client per process; :meth:`close` on the last of them closes it.

    Args:
        uri: MongoDB connection string: ``mongodb://user:password@host:27017/database``, with TLS, replica set and other driver
            options. It is never shown, but pickled with the connector, because workers need it. With a ``readPreference``, the
            primary is asked for what a secondary lacks; ``readConcernLevel`` is ``majority`` by default.
        database: default: the database of ``uri``, or else ``data_stack``.
        bucket: prefix of the collection names.
        read_only: write nothing, not even indexes; storing raises ReadOnlyStorageError.
        timeout_seconds: limit of one operation, server selection included. The first operation of a process waits at most 5 s for
            a server (or the connection string's ``serverSelectionTimeoutMS``).
        chunk_bytes: length of the chunks to write; 64 KiB to 1 MiB work well. The default is that of GridFS: a 4 KiB read costs
            0.5 ms with 64 KiB chunks, 0.6 ms with these, 1.3 ms with 1 MiB.
        inline_bytes: resources up to this length are stored in their pointer document, in one round trip.
        allow_invalid_certificates: accept a connection string that turns certificate checks off.

    Raises:
        ConfigError: an argument is invalid; the message holds no part of ``uri``.
    """

    knows_digests = True
    checks_reads = True

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
            uri,
            database,
            bucket,
            read_only,
            timeout_seconds,
            chunk_bytes,
            inline_bytes,
            allow_invalid_certificates,
        )

    @classmethod
    def from_url(cls, url: str) -> MongoDBStorageConnector:
        """The connector of a URL: a connection string whose query may also hold ``bucket``, ``readOnly``, ``timeoutSeconds``,
        ``chunkBytes``, ``inlineBytes`` and ``allowInvalidCertificates``.

        Raises:
            ConfigError: the URL is invalid; the message holds no part of it.
        """
        uri, options = Settings.split_url(url)
        return cls(uri, **options)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._settings.name!r}{', read_only=True' if self._settings.read_only else ''})"

    def __getstate__(self) -> dict[str, Any]:
        return {"_settings": self._settings}

    @functools.cached_property
    def _connection(self) -> Connection:
        return Connection.shared(self._settings)

    def close(self) -> None:
        """Release the connection; it closes once no other connector or open resource uses it. The next operation reconnects."""
        vars(self).pop("_connection", None)

    def __enter__(self) -> MongoDBStorageConnector:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------ reading

    def get_resource(
        self, identifier: str, resource_type: SupportedStreamedResourceTypes = BINARY
    ) -> StreamedResource:
        pointer = self._pointer(identifier)
        if pointer.file_id is None:
            source: BytesSource | BlockedSource = BytesSource(pointer.data or b"", pointer.info)
        else:
            source = BlockedSource(files.FileChunks(self._connection, pointer, self._explain_loss))
        return self._make_resource(identifier, source, resource_type)

    def has_resource(self, identifier: str) -> bool:
        check_identifier(identifier)
        return self._document(identifier, {"_id": 1}) is not None

    def stat(self, identifier: str) -> ResourceInfo:
        return self._pointer(identifier, {"data": 0}).info

    def list_resources(self, prefix: str = "") -> list[str]:
        check_prefix(prefix)
        below = {"_id": {"$gte": prefix, "$lt": prefix + "\U0010ffff"}}
        with self._connection.operation("list", prefix):
            found = self._connection.readable("resources").find(
                below, {"_id": 1}, sort=[("_id", 1)]
            )
            return [document["_id"] for document in found if is_identifier(document["_id"])]

    def missing_place(self) -> str | None:
        with self._connection.operation("look for the collections of", ""):
            has_store = self._connection.has_collection("resources")
        name = f"{self._settings.bucket}.resources"
        return None if has_store else f"the collection {name!r} in {self._settings.name}"

    def _document(
        self, identifier: str, projection: Mapping[str, Any] | None = None
    ) -> dict[str, Any] | None:
        """The document of an identifier; the primary is asked for what a secondary lacks."""
        with self._connection.operation("look for", identifier):
            readable = self._connection.readable("resources")
            document = readable.find_one({"_id": identifier}, projection)
            if document is None and readable.read_preference != ReadPreference.PRIMARY:
                document = self._connection.writable("resources").find_one(
                    {"_id": identifier}, projection
                )
            return document

    def _pointer(
        self, identifier: str, projection: Mapping[str, Any] | None = None
    ) -> files.Pointer:
        document = self._document(check_identifier(identifier), projection)
        if document is None:
            raise ResourceNotFoundError(identifier, repr(self))
        return files.Pointer.of(document, self._settings.name, is_whole=projection is None)

    def _explain_loss(self, pointer: files.Pointer) -> None:
        """Raise ResourceChangedError for chunks that were swept after a replacement; return for damage."""
        current = self._document(pointer.identifier, {"file_id": 1, "sha256": 1})
        if current is None or current.get("file_id") != pointer.file_id:
            now = "nothing" if current is None else f"sha256 {current.get('sha256')}"
            raise ResourceChangedError(
                pointer.identifier, f"sha256 {pointer.sha256}, swept since", now
            )

    # ------------------------------------------------------------------ writing

    def set_resource(self, identifier: str, resource: Storable) -> None:
        """Store ``resource`` under ``identifier``, as every connector does.

        Raises:
            StorageUnavailableError: the server did not answer. The resource is unchanged, or (only if the message says so)
                possibly published whole.
        """
        self._check_writable("store", identifier)
        inline_bytes, chunk_bytes = self._settings.inline_bytes, self._settings.chunk_bytes
        pieces = in_pieces(binary_chunks(resource), chunk_bytes)
        head = list(itertools.islice(pieces, inline_bytes // chunk_bytes + 1))
        if sum(map(len, head)) > inline_bytes:
            self._store_file(identifier, itertools.chain(head, pieces))
            return
        digest, data = Digest(), b"".join(head)
        digest.update(data)
        pointer = files.Pointer(
            identifier, len(data), digest.sha256, ObjectId(), data, block_digest(data)
        )
        self._mark_replaced(self._publish(pointer))

    def create(self, identifier: str) -> contextlib.AbstractContextManager[ResourceWriter]:
        self._check_writable("store", identifier)
        return super().create(identifier)

    def move_resource(self, identifier: str, new_identifier: str) -> None:
        self._check_writable("move", new_identifier)
        pointer = self._pointer(identifier)
        if identifier == new_identifier:
            return
        moved = dataclasses.replace(pointer, identifier=new_identifier, write_id=ObjectId())
        before = self._publish(moved)
        with self._connection.operation("move", identifier):
            ours = {"_id": identifier, "write_id": pointer.write_id}
            is_deleted = self._connection.writable("resources").delete_one(ours).deleted_count > 0
            if not is_deleted:  # the file may have been swept meanwhile
                self._take_back(moved, before)
        if not is_deleted:
            self._pointer(identifier, {"data": 0})
            raise StorageConflictError(
                f"{identifier!r} in {self!r} was replaced while it was moved; it was not moved"
            )
        self._mark_replaced(before, moved)

    def delete_resource(self, identifier: str) -> None:
        self._check_writable("delete", identifier)
        with self._connection.operation("delete", identifier):
            resources = self._connection.writable("resources")
            try:
                deleted = resources.find_one_and_delete(
                    {"_id": identifier}, {"file_id": 1, "_id": 1}
                )
            except ConnectionFailure:
                # Deleting is idempotent.
                resources.delete_one({"_id": identifier})
                return
        if deleted is None:
            raise ResourceNotFoundError(identifier, repr(self))
        self._mark_replaced(deleted)

    def _check_writable(self, action: str, identifier: str) -> None:
        check_identifier(identifier)
        if self._settings.read_only:
            raise ReadOnlyStorageError(
                f"could not {action} {identifier!r}: {self!r} was opened for reading only", 30
            )

    def _store_file(self, identifier: str, pieces: Iterable[bytes]) -> None:
        connection, chunk_bytes = self._connection, self._settings.chunk_bytes
        with connection.operation("store", identifier):
            connection.make_indexes()
        upload = files.Upload(connection, identifier)
        try:
            upload.send(pieces)
            upload.complete()
            facts = upload.digest.size, upload.digest.sha256, ObjectId()
            pointer = files.Pointer(
                identifier, *facts, file_id=upload.file_id, chunk_bytes=chunk_bytes
            )
            before = self._publish(pointer)
            self._check_published(pointer, before, upload)
        except _OutcomeUnknownError:
            raise  # the file may belong to a resource now
        except BaseException as error:
            # If this fails, garbage collection finds the upload by its record once this process has ended.
            with contextlib.suppress(DataStackError):
                with pymongo.timeout(
                    BRIEF_SECONDS if isinstance(error, StorageUnavailableError) else None
                ):
                    upload.abort()
            raise
        with contextlib.suppress(DataStackError):
            upload.forget()
        self._mark_replaced(before)

    def _check_published(
        self, pointer: files.Pointer, before: dict[str, Any] | None, upload: files.Upload
    ) -> None:
        """Withdraw a pointer whose file is being swept: this process stalled for so long that it seemed dead."""
        try:
            with self._connection.operation("store", pointer.identifier):
                if not upload.is_swept():
                    return
                self._take_back(pointer, before)
        except StorageError as error:
            raise self._unknown(pointer.identifier, error) from error  # the record stays
        raise upload.failure()

    def _take_back(self, pointer: files.Pointer, before: dict[str, Any] | None) -> None:
        """Restore the previous pointer, unless another writer has published since."""
        resources, ours = (
            self._connection.writable("resources"),
            {"_id": pointer.identifier, "write_id": pointer.write_id},
        )
        if before is None:
            resources.delete_one(ours)
        else:
            resources.replace_one(ours, before)

    def _publish(self, pointer: files.Pointer) -> dict[str, Any] | None:
        """Replace the pointer document in one step; return the previous one.

        Raises:
            StorageUnavailableError: it was not published.
            _OutcomeUnknownError: it may have been published.
        """
        connection, identifier = self._connection, pointer.identifier
        with connection.operation("publish", identifier):
            resources, ours = (
                connection.writable("resources"),
                {"_id": identifier, "write_id": pointer.write_id},
            )
            is_asking = False
            for attempt in range(_ATTEMPTS):
                try:
                    # An update whose answer was lost, but that was applied, is durable once this one is answered.
                    if (
                        is_asking
                        and resources.update_one(
                            ours, {"$currentDate": {"modified": True}}
                        ).matched_count
                    ):
                        return None
                    return resources.find_one_and_update(
                        {"_id": identifier}, pointer.update(), upsert=True
                    )
                except DuplicateKeyError:
                    continue  # two created it at once; now it is there
                except PyMongoError as error:
                    if isinstance(error, ServerSelectionTimeoutError) and not is_asking:
                        raise  # it was never sent
                    # Perhaps only the answer was lost: look at the pointer once a server answers again.
                    if not (
                        isinstance(error, (ConnectionFailure, WriteConcernError)) or error.timeout
                    ):
                        raise
                    if error.timeout or attempt == _ATTEMPTS - 1:
                        raise self._unknown(identifier, error) from error
                    is_asking = True
        raise StorageError(
            f"could not publish {identifier!r} in {self!r}: other writers create and delete it; try again"
        )

    def _mark_replaced(
        self, before: Mapping[str, Any] | None, now: files.Pointer | None = None
    ) -> None:
        """Start the grace period of a pointer's previous file; garbage collection finds the file even if this fails."""
        file_id = None if before is None else before.get("file_id")
        if not isinstance(file_id, ObjectId) or (
            now is not None and now.file_id == file_id
        ):  # a document would be an operator
            return
        with contextlib.suppress(DataStackError), self._connection.operation("mark", str(file_id)):
            self._connection.writable("files", durable=False).update_one(
                {"_id": file_id, "metadata.data_stack": 1},
                {"$currentDate": {"metadata.replaced": True}},
            )

    def _unknown(self, identifier: str, error: Exception) -> _OutcomeUnknownError:
        problem = f"the server at {self._settings.name} disconnected while {identifier!r} was published ({type(error).__name__})"
        return _OutcomeUnknownError(
            f"{problem}: the resource is unchanged or published whole. Check it, or store it again."
        )

    # ------------------------------------------------------------------ upkeep

    def lease(self, identifier: str) -> contextlib.AbstractContextManager[Lease]:
        check_identifier(identifier)
        if self._settings.read_only:
            return contextlib.nullcontext(Lease())
        return contextlib.closing(HeartbeatLease(_LeaseDocuments(self._connection), identifier))

    def collect_garbage(
        self, grace_seconds: float = 86_400.0, *, dry_run: bool = False
    ) -> list[Garbage]:
        if not dry_run:
            self._check_writable("collect", "garbage")
        return files.collect_garbage(self._connection, grace_seconds, dry_run=dry_run)


class _LeaseDocuments:
    """Leases as documents ``{_id: identifier, value, beat}`` of ``bucket.leases``; a TTL index removes stale ones.

    Each operation has 2 s: a lease only spares duplicate work, so it must not delay a caller whose server is away.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def read(self, path: str, most: int) -> bytes | None:
        """A value, None if there is no lease."""
        with self._briefly(path) as leases:
            value = (leases.find_one({"_id": path}) or {}).get("value")
        return value[:most] if isinstance(value, bytes) else None

    def create(self, path: str, data: bytes) -> bool:
        """Write a value unless one exists."""
        with self._connection.operation("lease", path):
            self._connection.make_indexes()
            leases = self._connection.writable("leases", durable=False)
            try:
                update = {"$set": {"value": data}, "$currentDate": {"beat": True}}
                leases.update_one({"_id": path, "value": None}, update, upsert=True)
            except DuplicateKeyError:
                return False
        return True

    def put(self, path: str, data: bytes) -> None:
        """Replace an existing value."""
        with self._briefly(path) as leases:
            leases.update_one(
                {"_id": path}, {"$set": {"value": data}, "$currentDate": {"beat": True}}
            )

    def delete(self, path: str) -> None:
        """Remove a value."""
        with self._briefly(path) as leases:
            leases.delete_one({"_id": path})

    @contextlib.contextmanager
    def _briefly(self, path: str) -> Iterator[Documents]:
        with pymongo.timeout(BRIEF_SECONDS), self._connection.operation("lease", path):
            yield self._connection.writable("leases", durable=False)


class _OutcomeUnknownError(StorageUnavailableError):
    """A pointer may have been published, or not."""
