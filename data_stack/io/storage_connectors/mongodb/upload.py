"""Writes a file to GridFS.

While a file is written, a record in ``bucket.uploads`` with its id protects it from garbage
collection (:mod:`.garbage`). Afterwards the file belongs to the one version that is published for
it; only moving the resource gives it to another version.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from bson import Int64, ObjectId

from data_stack.exception import StorageError
from data_stack.io.integrity import Digest
from data_stack.io.storage_connectors.mongodb.chunks import chunk_digest
from data_stack.io.storage_connectors.mongodb.connection import Connection
from data_stack.io.storage_connectors.mongodb.garbage import delete_file
from data_stack.io.storage_connectors.owners import this_process
from data_stack.util.executor import waiting

#: The bytes of a batch, which one request inserts. A batch is filled while another one is being
#: sent, so a writer holds about twice as much.
_BATCH_BYTES: Final = 4 << 20
#: How often the record of the upload gets a heartbeat.
_BEAT_SECONDS: Final = 5.0

#: Chunks with their numbers.
_Batch: TypeAlias = "list[tuple[int, bytes]]"


class Upload:
    """A file being written.

    The caller calls :meth:`send` and :meth:`complete`, publishes a version with the file, and calls
    :meth:`forget`. If one of these steps fails, it calls :meth:`abort`.

    Args:
        connection: the connection to the store.
        identifier: the identifier of the resource.

    Attributes:
        file_id: the id of the file in ``bucket.files`` and ``bucket.chunks``.
        digest: the size and digests of the bytes sent.
    """

    file_id: ObjectId
    digest: Digest
    _connection: Connection
    _identifier: str
    #: When the record got its last heartbeat, by the monotonic clock; None before it exists.
    _last_beat_at: float | None

    def __init__(self, connection: Connection, identifier: str) -> None:
        self.file_id = ObjectId()
        self.digest = Digest()
        self._connection = connection
        self._identifier = identifier
        self._last_beat_at = None

    def send(self, chunks: Iterable[bytes]) -> None:
        """Store chunks, which nobody reads yet.

        A thread sends a batch while the next one is read and hashed.

        Args:
            chunks: the bytes in pieces of ``chunk_bytes``.
        """
        batches = self._make_batches(chunks)
        for _ in waiting.map(self._insert, batches, at_once=1):
            pass

    def complete(self) -> None:
        """Store the document that makes the chunks a file of GridFS. Then all of it is durable.

        Raises:
            StorageError: the server lost chunks, or garbage collection deletes them because this
                process seemed dead.
        """
        size = self.digest.size
        chunk_bytes = self._connection.settings.chunk_bytes
        fields = {
            "length": Int64(size),
            "chunkSize": chunk_bytes,
            "filename": self._identifier,
            "metadata": {"sha256": self.digest.sha256, "data_stack": 1},
        }
        with self._connection.operation("store", self._identifier):
            # The date is that of the server's clock: by it, other tools find the latest version.
            self._connection.writable("files").update_one(
                {"_id": self.file_id},
                {"$set": fields, "$currentDate": {"uploadDate": True}},
                upsert=True,
            )
            # The majority's journals acknowledged this, so they have all earlier writes too, unless
            # a server went down in between and the driver reconnected.
            n_stored = self._connection.writable("chunks").count_documents(
                {"files_id": self.file_id}
            )
            is_deleted = self.is_marked_for_deletion()
        if is_deleted:
            raise self.deletion_error()
        n_lost = -(-size // chunk_bytes) - n_stored
        if n_lost:
            raise self._error(
                f"the server was restarted or replaced, and {n_lost} of the chunks were lost"
            )

    def is_marked_for_deletion(self) -> bool:
        """Return whether garbage collection deletes the file, because this process seemed dead.

        The deletion may be finished, or still to come.
        """
        record = self._connection.writable("uploads").find_one(
            {"_id": self.file_id}, {"condemned": 1}
        )
        return record is None or "condemned" in record

    def deletion_error(self) -> StorageError:
        """Return the error for a file that garbage collection has deleted."""
        return self._error(
            "garbage collection removed the file of this process, as it was silent for long"
        )

    def forget(self) -> None:
        """Delete the record, once a version has the file."""
        with self._connection.operation("clean up after", self._identifier):
            self._connection.writable("uploads", durable=False).delete_one({"_id": self.file_id})

    def abort(self) -> None:
        """Delete everything that was written."""
        with self._connection.operation("clean up after", self._identifier):
            delete_file(self._connection, self.file_id, {"_id": self.file_id})

    def _make_batches(self, chunks: Iterable[bytes]) -> Iterator[_Batch]:
        """Hash chunks, and yield them with their numbers in batches."""
        batch_size = max(1, _BATCH_BYTES // self._connection.settings.chunk_bytes)
        numbered_chunks = enumerate(self._hash(chunks))
        while batch := list(itertools.islice(numbered_chunks, batch_size)):
            yield batch

    def _hash(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            self.digest.update(chunk)
            yield chunk

    def _insert(self, batch: _Batch) -> None:
        self._beat()
        documents = [
            {
                "_id": ObjectId(),
                "files_id": self.file_id,
                "n": number,
                "data": data,
                "digest": chunk_digest(self.file_id, number, data),
            }
            for number, data in batch
        ]
        with self._connection.operation("store", self._identifier):
            chunks = self._connection.writable("chunks", durable=False)
            chunks.insert_many(documents, ordered=False)

    def _beat(self) -> None:
        """Create the record of the upload, or renew its heartbeat if that is due."""
        is_first = self._last_beat_at is None
        if self._last_beat_at is not None:
            silence_seconds = time.monotonic() - self._last_beat_at
            if silence_seconds < _BEAT_SECONDS:
                return
        fields = {"file_id": self.file_id, "identifier": self._identifier, "owner": this_process()}
        with self._connection.operation("store", self._identifier):
            # The first one is durable: a server that is killed must not keep chunks and lose the
            # record by which they are found.
            uploads = self._connection.writable("uploads", durable=is_first)
            uploads.update_one(
                {"_id": self.file_id},
                {"$set": fields, "$currentDate": {"beat": True}},
                upsert=is_first,
            )
        self._last_beat_at = time.monotonic()

    def _error(self, why: str) -> StorageError:
        return StorageError(
            f"could not store {self._identifier!r} in {self._connection.settings.name}: {why}. "
            "Nothing was published; try again."
        )
