"""Leases as documents ``{_id: identifier, value, beat}`` of ``bucket.leases``; a TTL index removes what is left of them."""

from __future__ import annotations

from typing import Any

from pymongo.errors import DuplicateKeyError

from data_stack.io.storage_connectors.mongodb.connection import Connection, Documents

__all__ = ["LeaseDocuments"]


class LeaseDocuments:
    """Small values by identifier, as :class:`~data_stack.io.storage_connectors.heartbeat.HeartbeatLease` keeps them.

    After a server that does not answer, each is given 2 s: what they spare others may as well be left to them.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def read(self, path: str, most: int) -> bytes | None:
        """A value; None if there is none."""
        with self._connection.briefly(), self._connection.operation("read the lease of", path):
            value = (self._leases().find_one({"_id": path}) or {}).get("value")
        return value[:most] if isinstance(value, bytes) else None

    def create(self, path: str, data: bytes) -> bool:
        """Write a value unless there is one."""
        with self._connection.operation("lease", path):
            self._connection.make_indexes()
            try:
                self._put(path, data, {"value": None}, upsert=True)
            except DuplicateKeyError:
                return False
        return True

    def put(self, path: str, data: bytes) -> None:
        """Write a value in place of one that is there."""
        with self._connection.briefly(), self._connection.operation("keep the lease of", path):
            self._put(path, data, {}, upsert=False)

    def delete(self, path: str) -> None:
        """Remove a value."""
        with self._connection.briefly(), self._connection.operation("give back the lease of", path):
            self._leases().delete_one({"_id": path})

    def _put(self, path: str, data: bytes, condition: dict[str, Any], *, upsert: bool) -> None:
        update = {"$set": {"value": data}, "$currentDate": {"beat": True}}
        self._leases().update_one({"_id": path, **condition}, update, upsert=upsert)

    def _leases(self) -> Documents:
        return self._connection.writable("leases", durable=False)
