"""Deleting a file of GridFS although somebody may be about to make a resource of it: nobody loses a file.

Who wants a file *claims* it, by a record in ``bucket.uploads``; then looks whether it is condemned, publishes a pointer to it,
and lets the claim go. Who sweeps *condemns* the file, by a mark in its document; then looks for claims, then for pointers, and
deletes it if there are none, or else takes the mark away. Both write before they look, so in any order of events one of both
sees the other, and no reader ever sees a pointer to a file that is being deleted. Of several sweepers one has the mark; who was
too slow with it must not delete. A mark or claim of a process that died counts for nothing where that is known, and elsewhere
after a while. As long as a file has no document, the record of its upload is condemned instead, and the writer looks there once
the document is written.

All ages are by the server's clock.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Mapping
from typing import Any, Final

from bson import ObjectId

from data_stack.io.storage_connectors.connector import DAY_SECONDS
from data_stack.io.storage_connectors.mongodb.connection import Connection
from data_stack.io.storage_connectors.owners import is_dead, is_of_this_machine, this_process

__all__ = [
    "UNKNOWN_AGE",
    "is_alive",
    "is_condemned",
    "is_upload_condemned",
    "record_claim",
    "release_claim",
    "release_claim_of_the_dead",
    "remove_useless_mark",
    "server_time",
    "sweep",
]

#: Who has not begun to delete so long after condemning does not delete; after much longer another sweeper may.
_SWEEPING_SECONDS: Final = 10.0
_FORGOTTEN_SECONDS: Final = 600.0
#: As ``replaced`` of :func:`sweep`: whatever the document says.
UNKNOWN_AGE: Final = "unknown"


def server_time(connection: Connection) -> datetime.datetime:
    """The server's clock, UTC without a zone, as all dates of documents are read."""
    now: datetime.datetime = connection.client.admin.command("hello")["localTime"]
    return now


def record_claim(connection: Connection, record_id: ObjectId, file_id: ObjectId, identifier: str, *, durable: bool) -> None:
    """Say that this process wants ``file_id``, or still does."""
    connection.writable("uploads", durable=durable).update_one(
        {"_id": record_id},
        {
            "$set": {"file_id": file_id, "identifier": identifier, "owner": this_process()},
            "$currentDate": {"beat": True},
        },
        upsert=True,
    )


def release_claim(connection: Connection, record_id: Any) -> None:
    """Say that a file is not wanted any more, or belongs to a resource now."""
    connection.writable("uploads", durable=False).delete_one({"_id": {"$eq": record_id}})


def release_claim_of_the_dead(connection: Connection, claim: Mapping[str, Any]) -> None:
    """The same for a process that is dead; unless it has been heard of again."""
    unchanged = {name: {"$eq": claim.get(name)} for name in ("_id", "beat")}
    connection.writable("uploads", durable=False).delete_one(unchanged)


def is_alive(claim: Mapping[str, Any], now: datetime.datetime, silence_seconds: float) -> bool:
    """Whether the process that recorded a claim may still be at work."""
    owner, beat = claim.get("owner"), claim.get("beat")
    if isinstance(owner, str) and is_of_this_machine(owner):
        return not is_dead(owner)
    return isinstance(beat, datetime.datetime) and (now - beat).total_seconds() < silence_seconds


def is_condemned(connection: Connection, file_id: ObjectId) -> bool:
    """Whether a file is gone or may be deleted any time, asked by who has published a pointer to it.

    A mark may be there because somebody is just looking; then it goes as soon as they see the claim or the pointer.
    """
    files = connection.writable("files")
    end = time.monotonic() + _SWEEPING_SECONDS
    while True:
        file = files.find_one({"_id": file_id}, {"metadata.condemned": 1})
        if file is None:
            return True
        mark = _mark_of(file)
        if mark is None:
            return False
        if _is_of_the_dead(mark) or time.monotonic() > end:
            return True
        time.sleep(0.02)


def is_upload_condemned(connection: Connection, file_id: ObjectId) -> bool:
    """Whether the chunks of a file may be deleted any time, or are gone, asked by who has just written its document."""
    record = connection.writable("uploads").find_one({"_id": file_id}, {"condemned": 1})
    return record is None or "condemned" in record


def sweep(
    connection: Connection,
    file_id: Any,
    *,
    own_claim: ObjectId | None = None,
    silence_seconds: float = DAY_SECONDS,
    replaced: Any = UNKNOWN_AGE,
) -> bool:
    """Delete a file unless somebody needs it; whether it is gone.

    Args:
        connection: where it is.
        file_id: which one, of ours; there need be no document of it, only chunks.
        own_claim: a claim that does not count.
        silence_seconds: a claim of another machine that was not renewed for so long does not count.
        replaced: sweep only if the document still says so of when the file was replaced.
    """
    with connection.operation("sweep", str(file_id)):
        files = connection.writable("files")
        begun, now = time.monotonic(), server_time(connection)
        nonce = ObjectId()
        if not _condemn(connection, file_id, nonce, replaced, now):
            return False
        # Claims first: a claim that is let go in between has a pointer by then.
        claims = list(connection.writable("uploads").find({"file_id": {"$eq": file_id}, "_id": {"$ne": own_claim}}))
        is_needed = any(is_alive(claim, now, silence_seconds) for claim in claims)
        is_needed = is_needed or not all(_condemn_upload(connection, claim) for claim in claims if claim["_id"] == file_id)
        is_needed = is_needed or connection.writable("resources").find_one({"file_id": {"$eq": file_id}}, {"_id": 1}) is not None
        if is_needed or time.monotonic() - begun > _SWEEPING_SECONDS:
            files.update_one({"_id": file_id, "metadata.condemned.by": nonce}, {"$unset": {"metadata.condemned": ""}})
            return False
        # The document last: as long as it is there, somebody will take up what was broken off. Each durable: a server that is
        # killed in between must not bring the chunks back after what tells of them is gone.
        connection.writable("chunks").delete_many({"files_id": {"$eq": file_id}})
        files.delete_one({"_id": {"$eq": file_id}})
        return True


def _condemn(connection: Connection, file_id: Any, nonce: ObjectId, replaced: Any, now: datetime.datetime) -> bool:
    """Mark a file; False if another sweeper is at it, or if it is not what it was. Without a document nobody can want it."""
    files = connection.writable("files")
    file = files.find_one({"_id": {"$eq": file_id}}, {"metadata": 1})
    if file is None:
        return True
    if not isinstance(file.get("metadata"), dict) or file["metadata"].get("data_stack") != 1:
        return False  # another tool's
    mark = _mark_of(file)
    if _is_at_work(mark, now):
        return False
    condition: dict[str, Any] = {"_id": {"$eq": file_id}, "metadata.condemned": {"$eq": mark}}
    if replaced is not UNKNOWN_AGE:
        condition["metadata.replaced"] = {"$eq": replaced}
    condemned = {"by": nonce, "owner": this_process(), "at": now}
    return bool(files.update_one(condition, {"$set": {"metadata.condemned": condemned}}).matched_count)


def _condemn_upload(connection: Connection, record: Mapping[str, Any]) -> bool:
    """Mark the record of an upload that nothing was heard of for long; False if it is going on, or has its document by now.

    A file with a document is left to its mark: whoever publishes it looks there.
    """
    files = connection.writable("files")
    if files.find_one({"_id": {"$eq": record["_id"]}, "metadata.condemned": {"$ne": None}}, {"_id": 1}) is not None:
        return True
    unchanged = {name: {"$eq": record.get(name)} for name in ("_id", "beat")}
    is_marked = connection.writable("uploads").update_one(unchanged, {"$set": {"condemned": True}}).matched_count
    return bool(is_marked) and files.find_one({"_id": {"$eq": record["_id"]}}, {"_id": 1}) is None


def remove_useless_mark(connection: Connection, file: Mapping[str, Any], now: datetime.datetime) -> None:
    """Take away the mark that a dead sweeper left on a file that a resource has."""
    mark = _mark_of(file)
    if mark is not None and not _is_at_work(mark, now):
        with connection.operation("sweep", str(file["_id"])):
            connection.writable("files").update_one(
                {"_id": {"$eq": file["_id"]}, "metadata.condemned": {"$eq": mark}}, {"$unset": {"metadata.condemned": ""}}
            )


def _is_at_work(mark: Any, now: datetime.datetime) -> bool:
    """Whether the sweeper that left a mark may still delete."""
    since = mark.get("at") if isinstance(mark, dict) and not _is_of_the_dead(mark) else None
    return isinstance(since, datetime.datetime) and (now - since).total_seconds() < _FORGOTTEN_SECONDS


def _mark_of(file: Mapping[str, Any]) -> Any:
    """A sweeper's mark; None if there is none."""
    metadata = file.get("metadata")
    return metadata.get("condemned") if isinstance(metadata, dict) else None


def _is_of_the_dead(mark: Any) -> bool:
    return isinstance(mark, dict) and isinstance(mark.get("owner"), str) and is_dead(mark["owner"])
