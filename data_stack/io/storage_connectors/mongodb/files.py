"""Files in GridFS: read by chunk and verified, uploaded unpublished, pointed to, and swept once no resource needs them.

A chunk is a document ``{files_id, n, data, digest}`` of ``bucket.chunks``. Other GridFS tools ignore the field ``digest``: the
block digest of ``data`` (:mod:`data_stack.io.integrity`), seeded with its file and ``n``, so a misplaced chunk is damage too.

A file belongs to its upload while that has a record in ``bucket.uploads``, then to the one pointer published for it; only moving
the resource gives it to another pointer. The sweeper first *condemns* the record of the upload, if there is one, and then looks
for a pointer. The uploader first publishes the pointer, and then checks that the record exists uncondemned. Both write before
they read, so in any order of events at least one sees the other. The record of a dead process is ignored: at once on its own
machine, after a silence elsewhere. All ages are by the server's clock.
"""

from __future__ import annotations

import datetime
import itertools
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from bson import Int64, ObjectId
from pymongo import ReadPreference

from data_stack.exception import (
    ConfigError,
    DamagedBlockError,
    DatasetFileCorruptError,
    StorageError,
)
from data_stack.io.integrity import ALGORITHM, Digest, block_digest, block_digest_at
from data_stack.io.storage_connectors.blocks import Blocks
from data_stack.io.storage_connectors.connector import DAY_SECONDS, Garbage, ResourceInfo
from data_stack.io.storage_connectors.heartbeat import is_left_by_the_dead
from data_stack.io.storage_connectors.mongodb.connection import Connection, Documents
from data_stack.io.storage_connectors.owners import is_dead, is_of_this_machine, this_process
from data_stack.util.executor import waiting
from data_stack.util.untrusted_text import describe_format

_WANTED: Final = {"_id": 0, "n": 1, "data": 1, "digest": 1}
#: Ids of other tools may be of any type, even unhashable.
_OURS: Final[dict[str, Any]] = {"$type": "objectId"}


_FORMAT: Final = 2
#: The types of the fields that all pointers have.
_KINDS: Final[dict[str, type]] = {
    "_id": str, "length": int, "sha256": str, "write_id": ObjectId, "check": bytes, "modified": datetime.datetime,
}  # fmt: skip
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Pointer:
    """A version of a resource.

    Attributes:
        identifier: the resource.
        length: bytes.
        sha256: of the whole, 64 hex digits.
        data: all bytes of a small resource; None if they lie in a GridFS file, or were not requested.
        file_id, chunk_bytes: that file, and the length of its chunks; None for a small resource.
        write_id: names the write that published it, to find out whether a write succeeded whose answer was lost.
        modified: when it was published, by the server's clock.
        data_digest: the block digest of ``data``; None for a file, whose chunks have their own.
    """

    identifier: str
    length: int
    sha256: str
    write_id: ObjectId
    data: bytes | None = None
    data_digest: bytes | None = None
    file_id: ObjectId | None = None
    chunk_bytes: int | None = None
    modified: datetime.datetime | None = None

    @property
    def info(self) -> ResourceInfo:
        """What the store knows of it."""
        modified = (
            None
            if self.modified is None
            else self.modified.replace(tzinfo=datetime.timezone.utc).timestamp()
        )
        return ResourceInfo(self.identifier, self.length, self.sha256, modified)

    def update(self) -> dict[str, Any]:
        """The update that turns a document of the collection ``resources`` into this pointer."""
        of_data = {"data": self.data or b"", "digest": self.data_digest or b""}
        of_file = {"file_id": self.file_id, "chunkSize": self.chunk_bytes}
        content, absent = (of_data, of_file) if self.file_id is None else (of_file, of_data)
        facts = {
            "format": _FORMAT,
            "length": Int64(self.length),
            "sha256": self.sha256,
            "write_id": self.write_id,
        }
        fields = {**facts, "check": self._check(), **content}
        unset = dict.fromkeys(absent, "")
        return {
            "$set": fields,
            "$unset": unset,
            "$inc": {"rev": 1},
            "$currentDate": {"modified": True},
        }

    def _check(self) -> bytes:
        file_id = None if self.file_id is None else str(self.file_id)
        digest = None if self.data_digest is None else self.data_digest.hex()
        facts = [self.identifier, self.length, self.sha256, self.chunk_bytes, file_id, digest]
        return block_digest(json.dumps(facts).encode())

    @classmethod
    def of(cls, document: Mapping[str, Any], where: str, *, is_whole: bool = True) -> Pointer:
        """Parse a document, checking every field.

        Raises:
            DatasetFileCorruptError: a field is missing, of a wrong type or out of range, or not what was written.
            DamagedBlockError: the bytes of a small resource are damaged.
        """
        identifier: Any = document.get("_id")

        def refuse(what: str) -> NoReturn:
            problem = (
                f"the pointer document of resource {identifier!r} in {where} is damaged: {what}"
            )
            raise DatasetFileCorruptError(
                f"{problem}. Store the resource again; `data-stack verify` lists other damage."
            )

        if document.get("format") != _FORMAT:
            refuse(f"it {describe_format(document.get('format'), _FORMAT)}")
        has_data = "digest" in document
        kinds = _KINDS | (
            {"digest": bytes} if has_data else {"file_id": ObjectId, "chunkSize": int}
        )
        if has_data and (is_whole or "data" in document):
            kinds["data"] = bytes
        for name, kind in kinds.items():
            value = document.get(name)
            if not isinstance(value, kind) or isinstance(value, bool):
                refuse(f"{name!r} is {value!r:.60}, not of type {kind.__name__}")
        place: tuple[Any, Any] = (
            (None, None) if has_data else (document["file_id"], int(document["chunkSize"]))
        )
        content = document.get("data"), document.get("digest"), *place, document["modified"]
        pointer = cls(
            identifier, int(document["length"]), document["sha256"], document["write_id"], *content
        )
        if not 0 <= pointer.length < 1 << 53 or not (
            pointer.chunk_bytes is None or 0 < pointer.chunk_bytes <= 16 << 20
        ):
            refuse(f"'length' is {pointer.length}, 'chunkSize' {pointer.chunk_bytes}")
        if not _SHA256.fullmatch(pointer.sha256) or pointer._check() != document["check"]:
            refuse("its fields do not match their digest")
        if has_data and pointer.data is not None:
            digest = block_digest(pointer.data)
            if digest != pointer.data_digest or len(pointer.data) != pointer.length:
                raise DamagedBlockError(
                    identifier, where, 0, pointer.length, document["digest"].hex(), digest.hex()
                )
        return pointer


def _chunk_digest(file_id: ObjectId, number: int, data: bytes) -> bytes:
    return block_digest_at(file_id.binary + number.to_bytes(8, "big"), data)


class FileChunks(Blocks):
    """The blocks of a resource that lies in a file of GridFS, which stays the same when the identifier is replaced.

    Args:
        connection: where it is.
        pointer: of the resource.
        on_loss: called before a missing chunk is reported; may raise a better error.
    """

    def __init__(
        self, connection: Connection, pointer: Pointer, on_loss: Callable[[Pointer], None]
    ) -> None:
        self.size, self.block_bytes, self.sha256 = (
            pointer.length,
            pointer.chunk_bytes or 1,
            pointer.sha256,
        )
        self._connection, self._pointer, self._on_loss = connection, pointer, on_loss

    def fetch(self, numbers: Sequence[int]) -> list[bytes]:
        chunks = self._connection.readable("chunks")
        with self._connection.operation("read", self._pointer.identifier):
            found = self._find_chunks(numbers, chunks)
            if len(found) < len(numbers):  # a secondary may not have them yet
                found = self._find_chunks(
                    numbers, chunks.with_options(read_preference=ReadPreference.PRIMARY)
                )
        return [self._verify(number, found.get(number)) for number in numbers]

    def _find_chunks(self, numbers: Sequence[int], chunks: Documents) -> dict[int, dict[str, Any]]:
        first, last = numbers[0], numbers[-1]
        is_run = last - first == len(numbers) - 1
        places = {"$gte": first, "$lte": last} if is_run else {"$in": list(numbers)}
        # With a limit the server closes its cursor with the answer, and a hostile collection cannot send more.
        most = len(numbers) + 1
        with chunks.find(
            {"files_id": self._pointer.file_id, "n": places}, _WANTED, limit=most, batch_size=most
        ) as cursor:
            return {
                document["n"]: document for document in cursor if isinstance(document.get("n"), int)
            }

    def _verify(self, number: int, document: dict[str, Any] | None) -> bytes:
        pointer, where = self._pointer, self._connection.settings.name
        size = min(self.block_bytes, self.size - number * self.block_bytes)
        if document is None:
            self._on_loss(pointer)
        data, recorded = (document or {}).get("data"), (document or {}).get("digest")
        facts = (
            str(size),
            f"{len(data)}" if isinstance(data, bytes) else "nothing: it is missing",
            "length",
        )
        if isinstance(data, bytes) and len(data) == size and pointer.file_id is not None:
            digest = _chunk_digest(pointer.file_id, number, data)
            if digest == recorded:
                return data
            facts = (
                recorded.hex() if isinstance(recorded, bytes) else "one",
                digest.hex(),
                ALGORITHM,
            )
        raise DamagedBlockError(pointer.identifier, where, number, self.block_bytes, *facts)


class Upload:
    """A file being written: :meth:`send`, :meth:`complete`, publish it, :meth:`forget`; or :meth:`abort`.

    A record in ``bucket.uploads`` with the file's id protects it while this process lives, and lets garbage collection find it
    afterwards.

    Attributes:
        file_id: the file in ``bucket.files`` and ``bucket.chunks``.
        digest: size and digests of the bytes sent.
    """

    def __init__(self, connection: Connection, identifier: str) -> None:
        self._connection, self._identifier = connection, identifier
        self.file_id, self.digest = ObjectId(), Digest()
        self._last_beat: float | None = None

    def send(self, pieces: Iterable[bytes]) -> None:
        """Store pieces of ``chunk_bytes``, still unpublished. A thread digests and sends a batch while the next one is read."""
        # An insert of 4 MiB. The next batch is filled while one is being sent, so a writer holds about twice as much.
        batch_size = max(1, (4 << 20) // self._connection.settings.chunk_bytes)
        numbered = enumerate(self._hash(pieces))
        for _ in waiting.map(
            self._insert, iter(lambda: list(itertools.islice(numbered, batch_size)), []), at_once=1
        ):
            pass

    def _hash(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self.digest.update(piece)
            yield piece

    def _insert(self, batch: list[tuple[int, bytes]]) -> None:
        self._beat()
        documents = [
            {
                "_id": ObjectId(),
                "files_id": self.file_id,
                "n": n,
                "data": data,
                "digest": _chunk_digest(self.file_id, n, data),
            }
            for n, data in batch
        ]
        with self._connection.operation("store", self._identifier):
            self._connection.writable("chunks", durable=False).insert_many(documents, ordered=False)

    def _beat(self) -> None:
        is_first = self._last_beat is None
        if self._last_beat is not None and time.monotonic() - self._last_beat < 5.0:
            return
        fields = {"file_id": self.file_id, "identifier": self._identifier, "owner": this_process()}
        with self._connection.operation("store", self._identifier):
            # The first is durable: a server that is killed must not keep chunks and lose the record by which they are found.
            self._connection.writable("uploads", durable=is_first).update_one(
                {"_id": self.file_id},
                {"$set": fields, "$currentDate": {"beat": True}},
                upsert=is_first,
            )
        self._last_beat = time.monotonic()

    def complete(self) -> None:
        """Store the document that makes the chunks a GridFS file; all of it is durable afterwards.

        Raises:
            StorageError: the server lost chunks meanwhile, or garbage collection took this process for dead and sweeps them.
        """
        size, chunk_bytes = self.digest.size, self._connection.settings.chunk_bytes
        metadata = {"sha256": self.digest.sha256, "data_stack": 1}
        document = {
            "length": Int64(size),
            "chunkSize": chunk_bytes,
            "filename": self._identifier,
            "metadata": metadata,
        }
        with self._connection.operation("store", self._identifier):
            # The server's clock: other tools find the latest version by it.
            self._connection.writable("files").update_one(
                {"_id": self.file_id},
                {"$set": document, "$currentDate": {"uploadDate": True}},
                upsert=True,
            )
            # The majority's journals acknowledged this, so they have all earlier writes too, unless a server went down in
            # between and the driver reconnected.
            n_lost = -(-size // chunk_bytes) - self._connection.writable("chunks").count_documents(
                {"files_id": self.file_id}
            )
            is_swept = self.is_swept()
        if is_swept:
            raise self.failure()
        if n_lost:
            raise self.failure(
                f"the server was restarted or replaced, and {n_lost} of the chunks were lost"
            )

    def is_swept(self) -> bool:
        """Whether garbage collection took this process for dead, so that the file is gone or may go any time."""
        record = self._connection.writable("uploads").find_one(
            {"_id": self.file_id}, {"condemned": 1}
        )
        return record is None or "condemned" in record

    def failure(
        self,
        why: str = "garbage collection removed the file of this process, as it was silent for long",
    ) -> StorageError:
        """The error to raise for a file that was swept or lost."""
        where = self._connection.settings.name
        return StorageError(
            f"could not store {self._identifier!r} in {where}: {why}. Nothing was published; try again."
        )

    def forget(self) -> None:
        """Delete the record, once a resource has the file."""
        with self._connection.operation("clean up after", self._identifier):
            self._connection.writable("uploads", durable=False).delete_one({"_id": self.file_id})

    def abort(self) -> None:
        """Delete everything written."""
        with self._connection.operation("clean up after", self._identifier):
            _sweep(self._connection, self.file_id, {"_id": self.file_id})


def collect_garbage(
    connection: Connection, grace_seconds: float, *, dry_run: bool
) -> list[Garbage]:
    """Remove files and chunks that no resource needs and that are older than ``grace_seconds``.

    The grace period of a file whose writer died before marking it as replaced begins now.
    """
    if not grace_seconds >= 0:
        raise ConfigError(f"grace_seconds must not be negative, got {grace_seconds!r}")
    with connection.operation("look for garbage in", ""):
        # The server's clock, UTC without a zone, as all dates of documents are read.
        now: datetime.datetime = connection.client.admin.command("hello")["localTime"]
        stages: list[dict[str, Any]] = [
            {"$match": {"files_id": _OURS}},
            {"$group": {"_id": "$files_id"}},
        ]
        chunked = [group["_id"] for group in connection.writable("chunks").aggregate(stages)]
    with connection.operation("look for garbage in", ""):
        records = {
            record["_id"]: record for record in connection.writable("uploads").find({"_id": _OURS})
        }
        # Files after the records: a dead process does not add any.
        found_files = connection.writable("files").find(
            {"_id": _OURS}, {"length": 1, "metadata": 1}
        )
        files = {file["_id"]: file for file in found_files}
        pointed = [
            pointer["file_id"]
            for pointer in connection.writable("resources").find({"file_id": _OURS}, {"file_id": 1})
        ]
        needed = {
            file_id for file_id in pointed if isinstance(file_id, ObjectId)
        }  # it may be in a list
    # Without grace, an upload of another machine counts as dead after ten minutes without a heartbeat.
    silence_seconds = max(grace_seconds, 600.0)
    dead = {
        file_id: each
        for file_id, each in records.items()
        if not _is_alive(each, now, silence_seconds)
    }
    found = []
    for file_id in {*chunked, *files, *dead} - needed - (records.keys() - dead.keys()):
        file = files.get(file_id)
        metadata = {"data_stack": 1} if file is None else file.get("metadata")
        if not isinstance(metadata, dict) or metadata.get("data_stack") != 1:
            continue  # of another tool
        reason = _reason(file_id, file, file_id in dead, now, grace_seconds)
        if reason is not None:
            record = _match_unchanged(dead.pop(file_id)) if file_id in dead else None
            if dry_run or _sweep(connection, file_id, record):
                length = None if file is None else file.get("length")
                found.append(
                    Garbage(f"file {file_id}", length if isinstance(length, int) else None, reason)
                )
        elif (
            file is not None
            and not dry_run
            and not isinstance(metadata.get("replaced"), datetime.datetime)
        ):
            with connection.operation("mark", str(file_id)):
                connection.writable("files").update_one(
                    {"_id": file_id}, {"$currentDate": {"metadata.replaced": True}}
                )
    with connection.operation("clean up", ""):
        for record in dead.values() if not dry_run else ():
            connection.writable("uploads", durable=False).delete_one(_match_unchanged(record))
        # An index removes the leases of other machines after a silence.
        leases = connection.writable("leases")
        for lease in list(leases.find({}, {"value": 1})):
            if is_left_by_the_dead(lease.get("value")):
                found.append(Garbage(f"lease of {lease['_id']}", None, "its holder is gone"))
                if not dry_run:
                    leases.delete_one({name: {"$eq": lease[name]} for name in ("_id", "value")})
    return found


def _reason(
    file_id: ObjectId,
    file: dict[str, Any] | None,
    is_left: bool,
    now: datetime.datetime,
    grace_seconds: float,
) -> str | None:
    """Why an unused file is removed now; None to keep it for now."""
    if file is None and not is_left:
        # Chunks of another GridFS tool have no record; the file's id contains the time when it was begun, by the writer's clock.
        age = (now - file_id.generation_time.replace(tzinfo=None)).total_seconds()
        return (
            "chunks without a file, a day old or more"
            if age >= max(grace_seconds, DAY_SECONDS)
            else None
        )
    if file is not None and grace_seconds > 0:
        since = file["metadata"].get("replaced")
        if (
            not isinstance(since, datetime.datetime)
            or (now - since).total_seconds() < grace_seconds
        ):
            return None
    return "left by a writer that died" if is_left else "replaced or deleted"


def _is_alive(record: Mapping[str, Any], now: datetime.datetime, silence_seconds: float) -> bool:
    """Whether the process that wrote a record may still be at work."""
    owner, beat = record.get("owner"), record.get("beat")
    if isinstance(owner, str) and is_of_this_machine(owner):
        return not is_dead(owner)
    return isinstance(beat, datetime.datetime) and (now - beat).total_seconds() < silence_seconds


def _match_unchanged(record: Mapping[str, Any]) -> dict[str, Any]:
    """A query for a record that has had no further heartbeat."""
    return {name: {"$eq": record.get(name)} for name in ("_id", "beat")}


def _sweep(connection: Connection, file_id: ObjectId, record: Mapping[str, Any] | None) -> bool:
    """Delete a file unless a resource has it or its upload continues; return whether it is gone.

    Args:
        connection: where it is.
        file_id: a file of ours, possibly chunks without a document.
        record: a query for the record of its upload; None if it had none.
    """
    with connection.operation("sweep", str(file_id)):
        uploads, its = connection.writable("uploads"), {"$eq": file_id}
        if record is None:
            is_uploaded = uploads.find_one({"_id": its}, {"_id": 1}) is not None
        else:
            is_uploaded = not uploads.update_one(
                record, {"$set": {"condemned": True}}
            ).matched_count
        if (
            is_uploaded
            or connection.writable("resources").find_one({"file_id": its}, {"_id": 1}) is not None
        ):
            return False
        # The document and then the record come last, so that an interrupted sweep is found again. Each step is durable: a killed
        # server must not restore chunks after their record is gone.
        connection.writable("chunks").delete_many({"files_id": its})
        connection.writable("files").delete_one({"_id": its})
        uploads.delete_one({"_id": its})
        return True
