"""Uploads a resource as an unpublished GridFS file.

A record in ``bucket.uploads`` with the file's id protects it while this process lives, and lets garbage collection
(:mod:`.upkeep`) find it afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Final

from bson import Int64, ObjectId

from data_stack.exception import StorageError
from data_stack.io.integrity import Digest
from data_stack.io.storage_connectors.mongodb.chunks import insert_chunks
from data_stack.io.storage_connectors.mongodb.connection import Connection
from data_stack.io.storage_connectors.mongodb.upkeep import release_record, sweep
from data_stack.io.storage_connectors.owners import this_process

_BEAT_SECONDS: Final = 5.0


class Upload:
    """A file being written: :meth:`send`, :meth:`complete`, publish it, :meth:`forget`; or :meth:`abort`.

    Attributes:
        file_id: the file in ``bucket.files`` and ``bucket.chunks``.
        digest: size and digests of the bytes sent.
    """

    def __init__(self, connection: Connection, identifier: str) -> None:
        self._connection, self._identifier = connection, identifier
        self.file_id = ObjectId()
        self.digest = Digest()
        self._last_beat: float | None = None

    def send(self, pieces: Iterable[bytes]) -> None:
        """Store pieces of ``chunk_bytes``, still unpublished."""
        insert_chunks(self._connection, self.file_id, self._identifier, self._hash(pieces), self._beat)

    def complete(self) -> None:
        """Store the document that makes the chunks a GridFS file; all of it is durable afterwards.

        Raises:
            StorageError: the server lost chunks meanwhile, or garbage collection took this process for dead and sweeps them.
        """
        size, chunk_bytes = self.digest.size, self._connection.settings.chunk_bytes
        document = {
            "length": Int64(size),
            "chunkSize": chunk_bytes,
            "filename": self._identifier,
            "metadata": {"sha256": self.digest.sha256, "data_stack": 1},
        }
        with self._connection.operation("store", self._identifier):
            # The server's clock: other tools find the latest version by it.
            self._connection.writable("files").update_one(
                {"_id": self.file_id}, {"$set": document, "$currentDate": {"uploadDate": True}}, upsert=True
            )
            # The majority's journals acknowledged this, so they have all earlier writes too, unless a server went down in
            # between and the driver reconnected.
            n_lost = -(-size // chunk_bytes) - self._connection.writable("chunks").count_documents({"files_id": self.file_id})
            is_swept = self.is_swept()
        if is_swept:
            raise self.swept()
        if n_lost:
            raise self._failure(f"the server was restarted or replaced, and {n_lost} of the chunks were lost")

    def is_swept(self) -> bool:
        """Whether garbage collection took this process for dead, so that the file is gone or may go any time."""
        record = self._connection.writable("uploads").find_one({"_id": self.file_id}, {"condemned": 1})
        return record is None or "condemned" in record

    def swept(self) -> StorageError:
        """The error to raise then."""
        return self._failure("this process sent no heartbeat for so long that garbage collection removed its unfinished file")

    def forget(self) -> None:
        """Delete the record, once a resource has the file."""
        with self._connection.operation("clean up after", self._identifier):
            release_record(self._connection, {"_id": self.file_id})

    def abort(self) -> None:
        """Delete everything written."""
        with self._connection.operation("clean up after", self._identifier):
            sweep(self._connection, self.file_id, {"_id": self.file_id})

    def _hash(self, pieces: Iterable[bytes]) -> Iterable[bytes]:
        for piece in pieces:
            self.digest.update(piece)
            yield piece

    def _beat(self) -> None:
        is_first = self._last_beat is None
        if self._last_beat is not None and time.monotonic() - self._last_beat < _BEAT_SECONDS:
            return
        fields = {"file_id": self.file_id, "identifier": self._identifier, "owner": this_process()}
        with self._connection.operation("store", self._identifier):
            # The first is durable: a server that is killed must not keep chunks and lose the record by which they are found.
            self._connection.writable("uploads", durable=is_first).update_one(
                {"_id": self.file_id}, {"$set": fields, "$currentDate": {"beat": True}}, upsert=is_first
            )
        self._last_beat = time.monotonic()

    def _failure(self, why: str) -> StorageError:
        return StorageError(
            f"could not store {self._identifier!r} in {self._connection.settings.name}: {why}. Nothing was published; try again."
        )
