"""The chunks of a file in GridFS: read by number and verified, written in batches.

A chunk is a document ``{files_id, n, data, digest}`` of ``bucket.chunks``. Other GridFS tools ignore the field ``digest``: the
block digest of ``data`` (:mod:`data_stack.io.integrity`), seeded with its file and ``n``, so a misplaced chunk is damage too.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from bson import ObjectId
from pymongo import ReadPreference

from data_stack.exception import DamagedBlockError
from data_stack.io.integrity import ALGORITHM, block_digest_at
from data_stack.io.storage_connectors.blocks import Blocks
from data_stack.io.storage_connectors.mongodb.connection import Connection, Documents
from data_stack.util.executor import waiting

if TYPE_CHECKING:
    from collections.abc import Buffer  # type: ignore[attr-defined]  # typeshed: Python 3.12

#: Size of one insert. The next batch is filled while one is being sent, so a writer holds about twice as much.
_BATCH_BYTES: Final = 4 << 20
_WANTED: Final = {"_id": 0, "n": 1, "data": 1, "digest": 1}


def chunk_digest(file_id: Any, number: int, data: Buffer) -> bytes:
    """The digest of a chunk at its place."""
    return block_digest_at(file_id.binary + number.to_bytes(8, "big"), data)


class FileChunks(Blocks):
    """The blocks of a resource that lies in a file of GridFS.

    Args:
        connection: where it is.
        identifier: the resource, for messages.
        file_id: the file; it stays the same when the identifier is replaced.
        size, chunk_bytes: length of the whole, and of each chunk but the last.
        sha256: of the whole, 64 hex digits.
        on_loss: called before a missing chunk is reported; may raise a better error.
    """

    def __init__(
        self,
        connection: Connection,
        identifier: str,
        file_id: Any,
        size: int,
        chunk_bytes: int,
        sha256: str,
        on_loss: Callable[[], None],
    ) -> None:
        self.size, self.block_bytes, self.sha256 = size, chunk_bytes, sha256
        self._connection = connection
        self._identifier, self._file_id, self._on_loss = identifier, file_id, on_loss

    def fetch(self, numbers: Sequence[int]) -> list[bytes]:
        chunks = self._connection.readable("chunks")
        with self._connection.operation("read", self._identifier):
            found = self._find_chunks(numbers, chunks)
            if len(found) < len(numbers):  # a secondary may not have them yet
                found = self._find_chunks(numbers, chunks.with_options(read_preference=ReadPreference.PRIMARY))
        return [self._verify(number, found.get(number)) for number in numbers]

    def _find_chunks(self, numbers: Sequence[int], chunks: Documents) -> dict[int, dict[str, Any]]:
        first, last = numbers[0], numbers[-1]
        is_run = last - first == len(numbers) - 1
        places = {"$gte": first, "$lte": last} if is_run else {"$in": list(numbers)}
        # With a limit the server closes its cursor with the answer, and a hostile collection cannot send more.
        most = len(numbers) + 1
        with chunks.find({"files_id": self._file_id, "n": places}, _WANTED, limit=most, batch_size=most) as cursor:
            return {document["n"]: document for document in cursor if isinstance(document.get("n"), int)}

    def _verify(self, number: int, document: dict[str, Any] | None) -> bytes:
        expected = min(self.block_bytes, self.size - number * self.block_bytes)
        if document is None:
            self._on_loss()
            raise self._damage_error(number, str(expected), "nothing: the chunk is missing", "length")
        data, recorded = document.get("data"), document.get("digest")
        if not isinstance(data, bytes) or len(data) != expected:
            raise self._damage_error(number, str(expected), f"{len(data)}" if isinstance(data, bytes) else "no bytes", "length")
        digest = chunk_digest(self._file_id, number, data)
        if recorded != digest:
            raise self._damage_error(number, recorded.hex() if isinstance(recorded, bytes) else "one", digest.hex(), ALGORITHM)
        return data

    def _damage_error(self, number: int, expected: str, actual: str, algorithm: str) -> DamagedBlockError:
        return DamagedBlockError(
            self._identifier, self._connection.settings.name, number, self.block_bytes, expected, actual, algorithm
        )


def insert_chunks(
    connection: Connection, file_id: ObjectId, identifier: str, pieces: Iterable[bytes], beat: Callable[[], None]
) -> None:
    """Insert pieces as the chunks of a file; ``beat`` is called before each batch.

    A batch is digested and sent in another thread while the next one is read.
    """
    chunks = connection.writable("chunks", durable=False)
    batch_size = max(1, _BATCH_BYTES // connection.settings.chunk_bytes)
    numbered = enumerate(pieces)

    def send(batch: list[tuple[int, bytes]]) -> None:
        beat()
        documents = [
            {"_id": ObjectId(), "files_id": file_id, "n": n, "data": data, "digest": chunk_digest(file_id, n, data)}
            for n, data in batch
        ]
        with connection.operation("store", identifier):
            chunks.insert_many(documents, ordered=False)

    batches = iter(lambda: list(itertools.islice(numbered, batch_size)), [])
    for _ in waiting.map(send, batches, at_once=1):
        pass
