"""Deletes the files in GridFS that no resource needs.

Deletion first *marks* the record of the upload for deletion (its field ``condemned``), if there is
one, and then looks for a version with the file. The writer first publishes the version, and then
checks that the record exists and is not marked. Both write before they read, so in any order of
events at least one sees the other.

The record of a dead process does not protect its file. On its own machine a process is known to be
dead; elsewhere it counts as dead after a silence. All ages are by the clock of the server.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from bson import ObjectId

from data_stack.exception import ConfigError
from data_stack.io.storage_connectors.connector import DAY_SECONDS, Garbage
from data_stack.io.storage_connectors.heartbeat import is_left_by_the_dead
from data_stack.io.storage_connectors.mongodb.connection import Connection
from data_stack.io.storage_connectors.owners import is_dead, is_of_this_machine

#: The ids that this package makes. Those of other tools may be of any type, even unhashable.
_OUR_IDS: Final[dict[str, Any]] = {"$type": "objectId"}
#: An upload of another machine counts as dead after this time without a heartbeat, even without
#: grace.
_MIN_SILENCE_SECONDS: Final = 600.0

_Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _StoreState:
    """What is in a store, as garbage collection finds it.

    Attributes:
        now: the clock of the server, UTC without a zone, as all dates of documents are read.
        chunked_ids: the files that have chunks.
        uploads: the records of uploads, by the id of the file.
        files: the documents of files, by id.
        needed_ids: the files that versions of resources have.
    """

    now: datetime.datetime
    chunked_ids: set[ObjectId]
    uploads: dict[ObjectId, _Document]
    files: dict[ObjectId, _Document]
    needed_ids: set[ObjectId]


def collect_garbage(
    connection: Connection, grace_seconds: float, *, dry_run: bool
) -> list[Garbage]:
    """Remove files and chunks that no resource needs and that are older than ``grace_seconds``.

    The grace period of a file whose writer died before marking it as replaced begins now.

    Raises:
        ConfigError: ``grace_seconds`` is negative.
    """
    is_valid = grace_seconds >= 0  # False for NaN too
    if not is_valid:
        raise ConfigError(f"grace_seconds must not be negative, got {grace_seconds!r}")
    state = _read_state(connection)
    silence_seconds = max(grace_seconds, _MIN_SILENCE_SECONDS)
    dead_uploads = {
        file_id: record
        for file_id, record in state.uploads.items()
        if not _is_alive(record, state.now, silence_seconds)
    }

    live_ids = state.uploads.keys() - dead_uploads.keys()
    known_ids = state.chunked_ids | state.files.keys() | dead_uploads.keys()
    garbage = []
    for file_id in known_ids - state.needed_ids - live_ids:
        file = state.files.get(file_id)
        if file is not None and not _is_ours(file):
            continue
        reason = reason_to_delete(
            file_id,
            file,
            is_left=file_id in dead_uploads,
            now=state.now,
            grace_seconds=grace_seconds,
        )
        if reason is None:
            if file is not None and not dry_run:
                _begin_grace(connection, file_id, file)
            continue

        record = dead_uploads.pop(file_id, None)
        upload_query = None if record is None else _match_unchanged(record)
        if dry_run or delete_file(connection, file_id, upload_query):
            length = None if file is None else file.get("length")
            size = length if isinstance(length, int) else None
            garbage.append(Garbage(f"file {file_id}", size, reason))

    with connection.operation("clean up", ""):
        # The files of the remaining dead uploads stay, as a resource needs them or their grace
        # period has begun. Their records are not needed any longer.
        if not dry_run:
            uploads = connection.writable("uploads", durable=False)
            for record in dead_uploads.values():
                uploads.delete_one(_match_unchanged(record))
        garbage += _collect_leases(connection, dry_run=dry_run)
    return garbage


def reason_to_delete(
    file_id: ObjectId,
    file: Mapping[str, Any] | None,
    *,
    is_left: bool,
    now: datetime.datetime,
    grace_seconds: float,
) -> str | None:
    """Return why a file that no resource has is deleted now; None to keep it for now.

    Args:
        file_id: the id of the file.
        file: its document; None if there are only chunks of it, or only a record of its upload.
        is_left: whether its writer died during the upload.
        now: the clock of the server.
        grace_seconds: how long a replaced file stays for its readers.
    """
    if file is None and not is_left:
        # Chunks of another GridFS tool have no record. The id contains the time when the file was
        # begun, by the clock of the writer.
        begun_at = file_id.generation_time.replace(tzinfo=None)
        age_seconds = (now - begun_at).total_seconds()
        if age_seconds < max(grace_seconds, DAY_SECONDS):
            return None
        return "chunks without a file, a day old or more"

    if file is not None and grace_seconds > 0:
        replaced_at = file["metadata"].get("replaced")
        if not isinstance(replaced_at, datetime.datetime):
            return None
        if (now - replaced_at).total_seconds() < grace_seconds:
            return None

    if is_left:
        return "left by a writer that died"
    return "replaced or deleted"


def delete_file(
    connection: Connection, file_id: ObjectId, upload_query: Mapping[str, Any] | None
) -> bool:
    """Delete a file, unless a resource has it or its upload goes on.

    Args:
        connection: the connection to the store.
        file_id: a file of ours, possibly chunks without a document.
        upload_query: a query for the record of its upload; None if it had none.

    Returns:
        Whether the file is gone.
    """
    # With "$eq", an id that is a document is compared and not read as an operator.
    equals_id = {"$eq": file_id}
    with connection.operation("delete", str(file_id)):
        uploads = connection.writable("uploads")
        if upload_query is None:
            goes_on = uploads.find_one({"_id": equals_id}, {"_id": 1}) is not None
        else:
            marking = uploads.update_one(upload_query, {"$set": {"condemned": True}})
            # The record has had a heartbeat since it was read.
            goes_on = marking.matched_count == 0
        if goes_on:
            return False
        resources = connection.writable("resources")
        if resources.find_one({"file_id": equals_id}, {"_id": 1}) is not None:
            return False

        # The document and then the record come last, so that an interrupted deletion is found
        # again. Each step is durable: a killed server must not restore chunks after their record is
        # gone.
        connection.writable("chunks").delete_many({"files_id": equals_id})
        connection.writable("files").delete_one({"_id": equals_id})
        uploads.delete_one({"_id": equals_id})
        return True


def _read_state(connection: Connection) -> _StoreState:
    """Read what is in a store.

    The order of the queries matters: what is added between them must not look like garbage.
    """
    with connection.operation("look for garbage in", ""):
        now: datetime.datetime = connection.client.admin.command("hello")["localTime"]
        stages: list[dict[str, Any]] = [
            {"$match": {"files_id": _OUR_IDS}},
            {"$group": {"_id": "$files_id"}},
        ]
        groups = connection.writable("chunks").aggregate(stages)
        chunked_ids = {group["_id"] for group in groups}

    # Grouping the chunks of a large store takes long, so the rest has a limit of its own.
    with connection.operation("look for garbage in", ""):
        records = connection.writable("uploads").find({"_id": _OUR_IDS})
        uploads = {record["_id"]: record for record in records}
        # Files after the records: a dead process does not add any.
        documents = connection.writable("files").find(
            {"_id": _OUR_IDS}, {"length": 1, "metadata": 1}
        )
        files = {document["_id"]: document for document in documents}
        # Versions come last: a file that was published meanwhile is needed.
        needed_ids = set()
        versions = connection.writable("resources").find({"file_id": _OUR_IDS}, {"file_id": 1})
        for version in versions:
            # The query also matches a list that holds an id.
            if isinstance(version["file_id"], ObjectId):
                needed_ids.add(version["file_id"])
    return _StoreState(now, chunked_ids, uploads, files, needed_ids)


def _is_ours(file: Mapping[str, Any]) -> bool:
    """Return whether a file was written by this package, not by another tool."""
    metadata = file.get("metadata")
    return isinstance(metadata, dict) and metadata.get("data_stack") == 1


def _begin_grace(connection: Connection, file_id: ObjectId, file: Mapping[str, Any]) -> None:
    """Begin the grace period of a file, if its writer died before it could do so."""
    if isinstance(file["metadata"].get("replaced"), datetime.datetime):
        return
    with connection.operation("mark", str(file_id)):
        connection.writable("files").update_one(
            {"_id": file_id}, {"$currentDate": {"metadata.replaced": True}}
        )


def _collect_leases(connection: Connection, *, dry_run: bool) -> list[Garbage]:
    """Remove the leases of dead processes of this machine.

    Those of other machines are removed by an index, after a silence.
    """
    garbage = []
    leases = connection.writable("leases")
    for lease in list(leases.find({}, {"value": 1})):
        if not is_left_by_the_dead(lease.get("value")):
            continue
        garbage.append(Garbage(f"lease of {lease['_id']}", None, "its holder is gone"))
        if not dry_run:
            leases.delete_one({"_id": {"$eq": lease["_id"]}, "value": {"$eq": lease["value"]}})
    return garbage


def _is_alive(record: Mapping[str, Any], now: datetime.datetime, silence_seconds: float) -> bool:
    """Return whether the process that wrote a record of an upload may still be at work."""
    owner = record.get("owner")
    if isinstance(owner, str) and is_of_this_machine(owner):
        return not is_dead(owner)
    last_beat_at = record.get("beat")
    if not isinstance(last_beat_at, datetime.datetime):
        return False
    return (now - last_beat_at).total_seconds() < silence_seconds


def _match_unchanged(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a query for a record that has had no further heartbeat."""
    return {"_id": {"$eq": record.get("_id")}, "beat": {"$eq": record.get("beat")}}
