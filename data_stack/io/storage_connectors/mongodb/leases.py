"""Leases as documents of MongoDB."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pymongo
from pymongo.errors import DuplicateKeyError

from data_stack.io.storage_connectors.mongodb.connection import (
    BRIEF_SECONDS,
    Connection,
    DocumentCollection,
)


class LeaseDocuments:
    """Stores leases as documents ``{_id: identifier, value, beat}`` of ``bucket.leases``.

    A TTL index removes leases without a heartbeat. A lease only spares duplicate work, so it must
    not delay a caller whose server is away: each operation has 2 s. Only creating a lease may take
    longer, as it also creates the indexes.

    Args:
        connection: the connection to the store.
    """

    _connection: Connection

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def read(self, path: str, max_bytes: int) -> bytes | None:
        """Return a value, cut short to ``max_bytes``; None if there is no lease."""
        with self._briefly(path) as leases:
            document = leases.find_one({"_id": path}) or {}
        value = document.get("value")
        if not isinstance(value, bytes):
            return None
        return value[:max_bytes]

    def create(self, path: str, data: bytes) -> bool:
        """Write a value unless one exists. Return whether it was written."""
        with self._connection.operation("lease", path):
            self._connection.make_indexes()
            leases = self._connection.writable("leases", durable=False)
            update = {"$set": {"value": data}, "$currentDate": {"beat": True}}
            try:
                # No document has the value None. So this matches nothing, and inserts a document;
                # if one of this identifier exists, the insertion fails.
                leases.update_one({"_id": path, "value": None}, update, upsert=True)
            except DuplicateKeyError:
                return False
        return True

    def replace(self, path: str, old: bytes, new: bytes) -> bool:
        """Replace a value unless it has changed. Return whether it was replaced."""
        update = {"$set": {"value": new}, "$currentDate": {"beat": True}}
        with self._briefly(path) as leases:
            # The new value is there already if the answer to an earlier attempt was lost.
            wanted = {"_id": path, "value": {"$in": [old, new]}}
            return leases.update_one(wanted, update).matched_count == 1

    def delete(self, path: str) -> None:
        """Remove a value."""
        with self._briefly(path) as leases:
            leases.delete_one({"_id": path})

    @contextlib.contextmanager
    def _briefly(self, path: str) -> Iterator[DocumentCollection]:
        with pymongo.timeout(BRIEF_SECONDS), self._connection.operation("lease", path):
            yield self._connection.writable("leases", durable=False)
