"""Writing a resource's bytes as a file of GridFS that nobody sees yet, with a record by which its remains are found.

The record, a document of ``bucket.uploads``, claims the file for the process that writes it (:mod:`.sweeping`), and what a dead
process left is found by it.
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
from data_stack.io.storage_connectors.mongodb.sweeping import is_upload_condemned, record_claim, release_claim, sweep

__all__ = ["Upload"]

_BEAT_SECONDS: Final = 5.0


class Upload:
    """A file that is being written: :meth:`send`, :meth:`complete`, then publish it, then :meth:`forget`; or :meth:`abort`.

    Attributes:
        file_id: the file in ``bucket.files`` and ``bucket.chunks``.
        size: bytes that were sent.
        digest: of these.
    """

    def __init__(self, connection: Connection, identifier: str) -> None:
        self._connection, self._identifier = connection, identifier
        self.file_id = ObjectId()
        self.digest = Digest()
        self._last_beat: float | None = None

    @property
    def size(self) -> int:
        return self.digest.size

    def send(self, pieces: Iterable[bytes]) -> None:
        """Store pieces of ``chunk_bytes``; nobody sees them yet."""
        try:
            insert_chunks(self._connection, self.file_id, self._identifier, self._hashed(pieces), self._beat)
        finally:
            self.digest.finish()

    def complete(self) -> None:
        """Store the document that makes the chunks a file, also for other tools; all of it is durable then.

        Raises:
            StorageError: the server lost a part of the chunks meanwhile, or somebody took this process for dead and sweeps them.
        """
        chunk_bytes = self._connection.settings.chunk_bytes
        document = {
            "length": Int64(self.size),
            "chunkSize": chunk_bytes,
            "filename": self._identifier,
            "metadata": {"sha256": self.digest.sha256, "data_stack": 1},
        }
        with self._connection.operation("store", self._identifier):
            # The server's clock: "the latest version" is decided by it in other tools.
            self._connection.writable("files").update_one(
                {"_id": self.file_id}, {"$set": document, "$currentDate": {"uploadDate": True}}, upsert=True
            )
            # That was acknowledged from the journal of the majority, so all that came before is there too; unless a server
            # went down in between and the driver took up with it, or with its successor, anew.
            n_stored = self._connection.writable("chunks").count_documents({"files_id": self.file_id})
            is_swept = self.size > 0 and is_upload_condemned(self._connection, self.file_id)
        if is_swept:
            raise StorageError(
                f"could not store {self._identifier!r} in {self._connection.settings.name}: this process was not heard of for so "
                f"long that its unfinished file was swept. Nothing was published; try again."
            )
        if n_stored != -(-self.size // chunk_bytes):
            n_lost = -(-self.size // chunk_bytes) - n_stored
            raise StorageError(
                f"could not store {self._identifier!r} in {self._connection.settings.name}: the server was restarted or "
                f"replaced, and {n_lost} of the chunks were lost. Nothing was published; try again."
            )

    def forget(self) -> None:
        """Delete the record: the file belongs to a resource now, or is as any other that nobody needs."""
        release_claim(self._connection, self.file_id)

    def abort(self) -> None:
        """Delete all that was written, unless somebody else needs it by now."""
        with self._connection.operation("clean up after", self._identifier):
            if sweep(self._connection, self.file_id, own_claim=self.file_id):
                self.forget()

    def _hashed(self, pieces: Iterable[bytes]) -> Iterable[bytes]:
        for piece in pieces:
            self.digest.update(piece)
            yield piece

    def _beat(self) -> None:
        is_first = self._last_beat is None
        if self._last_beat is not None and time.monotonic() - self._last_beat < _BEAT_SECONDS:
            return
        with self._connection.operation("store", self._identifier):
            # The first is durable: a server that is killed may keep chunks that the driver sends once more after its restart,
            # and must not have lost the record by which they are found.
            record_claim(self._connection, self.file_id, self.file_id, self._identifier, durable=is_first)
        self._last_beat = time.monotonic()
