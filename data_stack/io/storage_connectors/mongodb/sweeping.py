"""Deleting a file of GridFS while others write: nobody loses a file.

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
from typing import Any

from data_stack.io.storage_connectors.mongodb.connection import Connection
from data_stack.io.storage_connectors.owners import is_dead, is_of_this_machine

__all__ = ["is_alive", "release_record", "server_time", "sweep", "unchanged"]


def server_time(connection: Connection) -> datetime.datetime:
    """The server's clock, UTC without a zone, as all dates of documents are read."""
    now: datetime.datetime = connection.client.admin.command("hello")["localTime"]
    return now


def is_alive(record: Mapping[str, Any], now: datetime.datetime, silence_seconds: float) -> bool:
    """Whether the process that wrote a record may still be at work."""
    owner, beat = record.get("owner"), record.get("beat")
    if isinstance(owner, str) and is_of_this_machine(owner):
        return not is_dead(owner)
    return isinstance(beat, datetime.datetime) and (now - beat).total_seconds() < silence_seconds


def unchanged(record: Mapping[str, Any]) -> dict[str, Any]:
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
