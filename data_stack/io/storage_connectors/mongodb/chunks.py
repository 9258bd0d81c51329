"""The chunks of a file in GridFS.

A chunk is a document ``{files_id, n, data, digest}`` of ``bucket.chunks``. Other GridFS tools
ignore the field ``digest``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

from bson import ObjectId
from pymongo import ReadPreference

from data_stack.exception import DamagedBlockError
from data_stack.io.integrity import ALGORITHM, block_digest_at
from data_stack.io.storage_connectors.blocks import Blocks
from data_stack.io.storage_connectors.mongodb.connection import Connection, DocumentCollection
from data_stack.io.storage_connectors.mongodb.resource_version import ResourceVersion
from data_stack.io.storage_connectors.recent_pieces import Piece

#: The fields of a chunk that are requested.
_REQUESTED_FIELDS: Final = {"_id": 0, "n": 1, "data": 1, "digest": 1}


def chunk_digest(file_id: ObjectId, number: int, data: bytes) -> bytes:
    """Return the digest of a chunk.

    It depends on the file and on the number of the chunk, so that a misplaced chunk is damage too.
    """
    place = file_id.binary + number.to_bytes(8, "big")
    return block_digest_at(place, data)


class FileChunks(Blocks):
    """The chunks of the file of one version, which stays the same when the resource is replaced.

    Args:
        connection: the connection to the store.
        version: the version of the resource.
        explain_loss: called if a chunk is missing. It raises if the resource was replaced.
    """

    _connection: Connection
    _version: ResourceVersion
    _explain_loss: Callable[[ResourceVersion], None]

    def __init__(
        self,
        connection: Connection,
        version: ResourceVersion,
        explain_loss: Callable[[ResourceVersion], None],
    ) -> None:
        self.size = version.length
        self.block_bytes = version.chunk_bytes or 1
        self.sha256 = version.sha256
        self._connection = connection
        self._version = version
        self._explain_loss = explain_loss

    def fetch(self, numbers: Sequence[int]) -> list[Piece]:
        chunks = self._connection.readable("chunks")
        with self._connection.operation("read", self._version.identifier):
            documents = self._find(numbers, chunks)
            if len(documents) < len(numbers):
                # A secondary may not have all of them yet.
                primary_chunks = chunks.with_options(read_preference=ReadPreference.PRIMARY)
                documents = self._find(numbers, primary_chunks)
        pieces = []
        for number in numbers:
            data = self._verify(number, documents.get(number))
            pieces.append(Piece(number, 1, data))
        return pieces

    def _find(
        self, numbers: Sequence[int], chunks: DocumentCollection
    ) -> dict[int, dict[str, Any]]:
        """Return the documents of chunks by their numbers."""
        first = numbers[0]
        last = numbers[-1]
        is_run = last - first == len(numbers) - 1
        wanted_numbers: dict[str, Any] = {"$in": list(numbers)}
        if is_run:
            wanted_numbers = {"$gte": first, "$lte": last}
        # With a limit, the server closes its cursor with the answer, and a hostile collection
        # cannot send more.
        limit = len(numbers) + 1
        cursor = chunks.find(
            {"files_id": self._version.file_id, "n": wanted_numbers},
            _REQUESTED_FIELDS,
            limit=limit,
            batch_size=limit,
        )
        documents = {}
        with cursor:
            for document in cursor:
                number = document.get("n")
                if isinstance(number, int):
                    documents[number] = document
        return documents

    def _verify(self, number: int, document: dict[str, Any] | None) -> bytes:
        """Return the bytes of a chunk.

        Raises:
            DamagedBlockError: the chunk is missing or damaged.
        """
        size = min(self.block_bytes, self.size - number * self.block_bytes)
        if document is None:
            self._explain_loss(self._version)
        data = None if document is None else document.get("data")
        if document is None or not isinstance(data, bytes):
            self._raise_damaged(number, str(size), "nothing: it is missing", "length")
        if len(data) != size or self._version.file_id is None:
            self._raise_damaged(number, str(size), str(len(data)), "length")

        recorded = document.get("digest")
        actual = chunk_digest(self._version.file_id, number, data)
        if actual != recorded:
            expected = recorded.hex() if isinstance(recorded, bytes) else "one"
            self._raise_damaged(number, expected, actual.hex(), ALGORITHM)
        return data

    def _raise_damaged(self, number: int, expected: str, actual: str, what: str) -> NoReturn:
        raise DamagedBlockError(
            self._version.identifier,
            self._connection.settings.name,
            number,
            self.block_bytes,
            expected,
            actual,
            what,
        )
