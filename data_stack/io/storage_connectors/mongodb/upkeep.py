"""Sweeping what no resource needs, in a store that others go on using: no reader loses a file.

A file belongs to the upload that writes it, as long as that has a record in ``bucket.uploads``, and then to the one pointer
that was published for it; another pointer gets it only when the resource is moved. Who sweeps a file first *condemns* the record
of its upload, if there is one, and then looks for a pointer; who uploads publishes the pointer first, and then looks whether the
record is there and not condemned. Both write before they look, so in any order of events one of both sees the other. The record
of a process that died counts for nothing where that is known, and elsewhere after a while.

All ages are by the server's clock.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, Final

from bson import ObjectId

from data_stack.exception import ConfigError
from data_stack.io.storage_connectors.connector import DAY_SECONDS, Garbage
from data_stack.io.storage_connectors.heartbeat import is_left_by_the_dead
from data_stack.io.storage_connectors.mongodb.connection import Connection
from data_stack.io.storage_connectors.owners import is_dead, is_of_this_machine

__all__ = ["collect_garbage", "release_record", "sweep"]

#: An upload of another machine that was not heard of for so long is given up when garbage is collected without grace.
_LEAST_SILENCE_SECONDS: Final = 600.0
_OBJECT_IDS: Final[dict[str, Any]] = {"$match": {"files_id": {"$type": "objectId"}}}


def collect_garbage(connection: Connection, grace_seconds: float, *, dry_run: bool) -> list[Garbage]:
    """Remove files and chunks that no resource needs, and leave alone what is younger than ``grace_seconds``.

    A file that lost its resource unnoticed, because that writer died, begins its grace period when it is found here.
    """
    if not grace_seconds >= 0:
        raise ConfigError(f"grace_seconds is a number of seconds, 0 or more, got {grace_seconds!r}")
    silence_seconds = max(grace_seconds, _LEAST_SILENCE_SECONDS)
    with connection.operation("look for garbage in", ""):
        now = _server_time(connection)
        groups = connection.writable("chunks").aggregate([_OBJECT_IDS, {"$group": {"_id": "$files_id"}}])
        chunked = [group["_id"] for group in groups]
    with connection.operation("look for garbage in", ""):
        records = {record["_id"]: record for record in connection.writable("uploads").find({}) if _is_id(record["_id"])}
        # Files after the records: what a dead process has not finished by now it never will.
        query = connection.writable("files").find({}, {"length": 1, "metadata": 1})
        files = {file["_id"]: file for file in query if _is_id(file["_id"])}
        needed = _find_needed(connection)
    dead = {file_id: each for file_id, each in records.items() if not _is_alive(each, now, silence_seconds)}
    found = []
    for file_id in {*chunked, *files, *dead}:
        file = files.get(file_id)
        if file_id in needed or (file_id in records and file_id not in dead) or not (file is None or _is_ours(file)):
            continue
        reason = _reason(file_id, file, file_id in dead, now, grace_seconds)
        if reason is not None:
            record = _match_unchanged(dead.pop(file_id)) if file_id in dead else None
            if dry_run or sweep(connection, file_id, record):
                length = None if file is None else file.get("length")
                found.append(Garbage(f"file {file_id}", length if isinstance(length, int) else None, reason))
        elif file is not None and not dry_run and not isinstance(file["metadata"].get("replaced"), datetime.datetime):
            with connection.operation("mark", str(file_id)):
                connection.writable("files").update_one({"_id": file_id}, {"$currentDate": {"metadata.replaced": True}})
    if not dry_run:
        with connection.operation("clean up", ""):
            for record in dead.values():
                release_record(connection, _match_unchanged(record))
    with connection.operation("look for leases in", ""):
        leases = connection.writable("leases", durable=False)
        for lease in list(leases.find({})):
            unchanged_lease = {"_id": lease["_id"], "value": lease.get("value")}
            if is_left_by_the_dead(lease.get("value")) and (dry_run or leases.delete_one(unchanged_lease).deleted_count):
                found.append(Garbage(f"lease of {lease['_id']!r:.200}", None, "its holder died"))
    return found


def _reason(
    file_id: ObjectId, file: dict[str, Any] | None, is_left: bool, now: datetime.datetime, grace_seconds: float
) -> str | None:
    """Why a file that no resource has goes now; None if it does not yet."""
    if file is None and is_left:
        return "left by a writer that died"
    if file is None:
        # Of another tool of GridFS, which keeps no record: the file's name tells when it was begun, by its writer's clock.
        age = (now - file_id.generation_time.replace(tzinfo=None)).total_seconds()
        return "chunks without a file, a day old or more" if age >= max(grace_seconds, DAY_SECONDS) else None
    since = file["metadata"].get("replaced")
    is_old = isinstance(since, datetime.datetime) and (now - since).total_seconds() >= grace_seconds
    if not is_old and grace_seconds > 0:
        return None
    return "left by a writer that died" if is_left else "replaced or deleted"


def _is_id(value: Any) -> bool:
    """Whether it can be a file of ours: others' ids may be anything, also what is no key of a dict."""
    return isinstance(value, ObjectId)


def _is_ours(file: dict[str, Any]) -> bool:
    return isinstance(file.get("metadata"), dict) and file["metadata"].get("data_stack") == 1


def _find_needed(connection: Connection) -> set[ObjectId]:
    with connection.writable("resources").find({"file_id": {"$type": "objectId"}}, {"file_id": 1, "_id": 0}) as cursor:
        return {pointer["file_id"] for pointer in cursor if _is_id(pointer["file_id"])}


def _server_time(connection: Connection) -> datetime.datetime:
    """The server's clock, UTC without a zone, as all dates of documents are read."""
    now: datetime.datetime = connection.client.admin.command("hello")["localTime"]
    return now


def _is_alive(record: Mapping[str, Any], now: datetime.datetime, silence_seconds: float) -> bool:
    """Whether the process that wrote a record may still be at work."""
    owner, beat = record.get("owner"), record.get("beat")
    if isinstance(owner, str) and is_of_this_machine(owner):
        return not is_dead(owner)
    return isinstance(beat, datetime.datetime) and (now - beat).total_seconds() < silence_seconds


def _match_unchanged(record: Mapping[str, Any]) -> dict[str, Any]:
    """A query for a record as long as its process has not been heard of again."""
    return {name: {"$eq": record.get(name)} for name in ("_id", "beat")}


def release_record(connection: Connection, query: Mapping[str, Any]) -> None:
    """Delete the record of an upload: its file belongs to a resource now, or is as any other that nobody needs."""
    connection.writable("uploads", durable=False).delete_one(query)


def sweep(connection: Connection, file_id: Any, record: Mapping[str, Any] | None) -> bool:
    """Delete a file unless a resource has it, or its upload goes on; whether it is gone.

    Args:
        connection: where it is.
        file_id: which one, of ours; there need be no document of it, only chunks.
        record: a query for the record of its upload; None if there was none.
    """
    with connection.operation("sweep", str(file_id)):
        uploads = connection.writable("uploads")
        if record is None:
            is_uploaded = uploads.find_one({"_id": {"$eq": file_id}}, {"_id": 1}) is not None
        else:
            is_uploaded = not uploads.update_one(record, {"$set": {"condemned": True}}).matched_count
        if is_uploaded:
            return False
        if connection.writable("resources").find_one({"file_id": {"$eq": file_id}}, {"_id": 1}) is not None:
            return False
        # The record last, and the document before it: what is broken off is found by them. Each durable: a server that is killed
        # in between must not bring the chunks back after what tells of them is gone.
        connection.writable("chunks").delete_many({"files_id": {"$eq": file_id}})
        connection.writable("files").delete_one({"_id": {"$eq": file_id}})
        uploads.delete_one({"_id": {"$eq": file_id}})
        return True
