"""Garbage collection in a store that others use meanwhile: no reader loses a file.

A file belongs to its upload while that has a record in ``bucket.uploads``, then to the one pointer published for it; only moving
the resource gives it to another pointer. The sweeper first *condemns* the record of the upload, if there is one, and then looks
for a pointer. The uploader first publishes the pointer, and then checks that the record exists uncondemned. Both write before
they read, so in any order of events at least one sees the other. The record of a dead process is ignored: at once on its own
machine, after a silence elsewhere.

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

#: Without grace, an upload of another machine counts as dead after this time without a heartbeat.
_MIN_SILENCE_SECONDS: Final = 600.0
#: Ids of other tools may be of any type, even unhashable.
_OURS: Final[dict[str, Any]] = {"_id": {"$type": "objectId"}}
_OBJECT_IDS: Final[dict[str, Any]] = {"$match": {"files_id": {"$type": "objectId"}}}


def collect_garbage(connection: Connection, grace_seconds: float, *, dry_run: bool) -> list[Garbage]:
    """Remove files and chunks that no resource needs and that are older than ``grace_seconds``.

    The grace period of a file whose writer died before marking it as replaced begins now.
    """
    if not grace_seconds >= 0:
        raise ConfigError(f"grace_seconds must not be negative, got {grace_seconds!r}")
    silence_seconds = max(grace_seconds, _MIN_SILENCE_SECONDS)
    with connection.operation("look for garbage in", ""):
        # The server's clock, UTC without a zone, as all dates of documents are read.
        now: datetime.datetime = connection.client.admin.command("hello")["localTime"]
        groups = connection.writable("chunks").aggregate([_OBJECT_IDS, {"$group": {"_id": "$files_id"}}])
        chunked = [group["_id"] for group in groups]
    with connection.operation("look for garbage in", ""):
        records = {record["_id"]: record for record in connection.writable("uploads").find(_OURS)}
        # Files after the records: a dead process does not add any.
        files = {file["_id"]: file for file in connection.writable("files").find(_OURS, {"length": 1, "metadata": 1})}
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
    return found + _collect_leases(connection, dry_run=dry_run)


def _collect_leases(connection: Connection, *, dry_run: bool) -> list[Garbage]:
    """Remove the leases of dead processes of this machine; an index removes those of others after a silence."""
    found = []
    with connection.operation("look for garbage in", ""):
        leases = connection.writable("leases")
        for lease in list(leases.find({}, {"value": 1})):
            if is_left_by_the_dead(lease.get("value")):
                found.append(Garbage(f"lease of {lease['_id']}", None, "its holder is gone"))
                if not dry_run:
                    leases.delete_one({name: {"$eq": lease[name]} for name in ("_id", "value")})
    return found


def _reason(
    file_id: ObjectId, file: dict[str, Any] | None, is_left: bool, now: datetime.datetime, grace_seconds: float
) -> str | None:
    """Why an unused file is removed now; None to keep it for now."""
    if file is None and is_left:
        return "left by a writer that died"
    if file is None:
        # Chunks of another GridFS tool have no record; the file's id contains the time when it was begun, by the writer's clock.
        age = (now - file_id.generation_time.replace(tzinfo=None)).total_seconds()
        return "chunks without a file, a day old or more" if age >= max(grace_seconds, DAY_SECONDS) else None
    since = file["metadata"].get("replaced")
    is_old = isinstance(since, datetime.datetime) and (now - since).total_seconds() >= grace_seconds
    if not is_old and grace_seconds > 0:
        return None
    return "left by a writer that died" if is_left else "replaced or deleted"


def _is_ours(file: dict[str, Any]) -> bool:
    return isinstance(file.get("metadata"), dict) and file["metadata"].get("data_stack") == 1


def _find_needed(connection: Connection) -> set[ObjectId]:
    with connection.writable("resources").find({"file_id": {"$type": "objectId"}}, {"file_id": 1, "_id": 0}) as cursor:
        return {pointer["file_id"] for pointer in cursor if isinstance(pointer["file_id"], ObjectId)}


def _is_alive(record: Mapping[str, Any], now: datetime.datetime, silence_seconds: float) -> bool:
    """Whether the process that wrote a record may still be at work."""
    owner, beat = record.get("owner"), record.get("beat")
    if isinstance(owner, str) and is_of_this_machine(owner):
        return not is_dead(owner)
    return isinstance(beat, datetime.datetime) and (now - beat).total_seconds() < silence_seconds


def _match_unchanged(record: Mapping[str, Any]) -> dict[str, Any]:
    """A query for a record that has had no further heartbeat."""
    return {name: {"$eq": record.get(name)} for name in ("_id", "beat")}


def release_record(connection: Connection, query: Mapping[str, Any]) -> None:
    """Delete the record of an upload whose file a resource has, or garbage collection removes."""
    connection.writable("uploads", durable=False).delete_one(query)


def sweep(connection: Connection, file_id: Any, record: Mapping[str, Any] | None) -> bool:
    """Delete a file unless a resource has it or its upload continues; return whether it is gone.

    Args:
        connection: where it is.
        file_id: a file of ours, possibly chunks without a document.
        record: a query for the record of its upload; None if it had none.
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
        # The document and then the record come last, so that an interrupted sweep is found again. Each step is durable: a killed
        # server must not restore chunks after their record is gone.
        connection.writable("chunks").delete_many({"files_id": {"$eq": file_id}})
        connection.writable("files").delete_one({"_id": {"$eq": file_id}})
        uploads.delete_one({"_id": {"$eq": file_id}})
        return True
