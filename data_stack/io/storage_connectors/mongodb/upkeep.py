"""Sweeping what no resource needs, in a store that others go on using.

What is found here may be out of date a moment later; :func:`.sweeping.sweep` decides.
"""

from __future__ import annotations

import datetime
from typing import Any, Final

from bson import ObjectId

from data_stack.exception import ConfigError
from data_stack.io.storage_connectors.connector import DAY_SECONDS, Garbage
from data_stack.io.storage_connectors.heartbeat import is_left_by_the_dead
from data_stack.io.storage_connectors.mongodb.connection import Connection
from data_stack.io.storage_connectors.mongodb.sweeping import is_alive, release_record, server_time, sweep, unchanged

__all__ = ["collect_garbage", "remove_abandoned"]

#: An upload of another machine that was not heard of for so long is given up when garbage is collected without grace.
_LEAST_SILENCE_SECONDS: Final = 600.0
_OBJECT_IDS: Final[dict[str, Any]] = {"$match": {"files_id": {"$type": "objectId"}}}


def remove_abandoned(connection: Connection, prefix: str) -> list[str]:
    """Remove unfinished files of identifiers that begin with ``prefix``, whose writer is dead or silent for a day.

    A file that is finished is left to the collection of garbage and its grace: the server may just be publishing it, if the
    writer was killed after it had sent that.
    """
    with connection.operation("clean up", prefix):
        uploads = connection.writable("uploads")
        if uploads.find_one({}, {"_id": 1}) is None:
            return []
        now = server_time(connection)
        records = list(uploads.find({"identifier": {"$gte": prefix, "$lt": prefix + "\U0010ffff"}}))
    removed = []
    for record in records:
        if is_alive(record, now, DAY_SECONDS):
            continue
        with connection.operation("clean up", prefix):
            is_finished = connection.writable("files").find_one({"_id": {"$eq": record["_id"]}}, {"_id": 1}) is not None
            if is_finished or not _is_id(record["_id"]):
                release_record(connection, unchanged(record))
            elif sweep(connection, record["_id"], unchanged(record)):
                removed.append(f"{record['identifier']} (unfinished file {record['_id']})")
    return removed


def collect_garbage(connection: Connection, grace_seconds: float, *, dry_run: bool) -> list[Garbage]:
    """Remove files and chunks that no resource needs, and leave alone what is younger than ``grace_seconds``.

    A file that lost its resource unnoticed, because that writer died, begins its grace period when it is found here.
    """
    if not grace_seconds >= 0:
        raise ConfigError(f"grace_seconds is a number of seconds, 0 or more, got {grace_seconds!r}")
    silence_seconds = max(grace_seconds, _LEAST_SILENCE_SECONDS)
    with connection.operation("look for garbage in", ""):
        now = server_time(connection)
        groups = connection.writable("chunks").aggregate([_OBJECT_IDS, {"$group": {"_id": "$files_id"}}])
        chunked = [group["_id"] for group in groups]
    with connection.operation("look for garbage in", ""):
        records = {record["_id"]: record for record in connection.writable("uploads").find({}) if _is_id(record["_id"])}
        # Files after the records: what a dead process has not finished by now it never will.
        query = connection.writable("files").find({}, {"length": 1, "metadata": 1})
        files = {file["_id"]: file for file in query if _is_id(file["_id"])}
        needed = _needed(connection)
    dead = {file_id: each for file_id, each in records.items() if not is_alive(each, now, silence_seconds)}
    found = []
    for file_id in {*chunked, *files, *dead}:
        file = files.get(file_id)
        if file_id in needed and not dry_run and file is not None and _is_ours(file) and "replaced" in file["metadata"]:
            # Of a resource that was moved meanwhile: another replacement begins another grace.
            with connection.operation("mark", str(file_id)):
                since = {"_id": file_id, "metadata.replaced": {"$eq": file["metadata"]["replaced"]}}
                connection.writable("files").update_one(since, {"$unset": {"metadata.replaced": ""}})
        if file_id in needed or (file_id in records and file_id not in dead) or not (file is None or _is_ours(file)):
            continue
        reason = _reason(file_id, file, file_id in dead, now, grace_seconds)
        if reason is not None:
            record = unchanged(dead.pop(file_id)) if file_id in dead else None
            if dry_run or sweep(connection, file_id, record):
                length = None if file is None else file.get("length")
                found.append(Garbage(f"file {file_id}", length if isinstance(length, int) else None, reason))
        elif file is not None and not dry_run and not isinstance(file["metadata"].get("replaced"), datetime.datetime):
            with connection.operation("mark", str(file_id)):
                connection.writable("files").update_one({"_id": file_id}, {"$currentDate": {"metadata.replaced": True}})
    if not dry_run:
        with connection.operation("clean up", ""):
            for record in dead.values():
                release_record(connection, unchanged(record))
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


def _needed(connection: Connection) -> set[ObjectId]:
    with connection.writable("resources").find({"file_id": {"$type": "objectId"}}, {"file_id": 1, "_id": 0}) as cursor:
        return {pointer["file_id"] for pointer in cursor if _is_id(pointer["file_id"])}
