"""The lease of a piece of work as a document with a heartbeat."""

from __future__ import annotations

from typing import Any, Final

from pymongo import ReturnDocument
from pymongo.errors import DuplicateKeyError

from data_stack.io.storage_connectors.heartbeat import LIFE_SECONDS, HeartbeatLease
from data_stack.io.storage_connectors.mongodb.connection import Connection
from data_stack.io.storage_connectors.owners import is_dead

__all__ = ["MongoDBLease"]

#: All times are the server's.
_LIFE_MS: Final = int(LIFE_SECONDS * 1000)


class MongoDBLease(HeartbeatLease):
    """A document of ``bucket.leases``, refreshed by a thread while it is held; a TTL index removes what is left of it.

    It ends with :meth:`close`. That of a process of this machine that died is free at once, that of another machine after 9 s
    without a heartbeat, by the server's clock.
    """

    def __init__(self, connection: Connection, identifier: str) -> None:
        super().__init__()
        self._connection, self._identifier = connection, identifier

    def _take(self) -> bool:
        with self._connection.operation("lease", self._identifier):
            self._connection.make_indexes()
            is_expired = {"$expr": {"$lt": ["$expires", "$$NOW"]}}
            return self._taken({"nonce": self._nonce}, upsert=True) or self._taken(is_expired) or self._taken_from_the_dead()

    def _keep(self, n_beats: int) -> bool:
        with self._connection.briefly(), self._connection.operation("keep the lease of", self._identifier):
            update = [{"$set": {"expires": {"$add": ["$$NOW", _LIFE_MS]}}}]
            return bool(self._leases().update_one({"_id": self._identifier, "nonce": self._nonce}, update).matched_count)

    def _give_back(self) -> None:
        with self._connection.briefly(), self._connection.operation("give back the lease of", self._identifier):
            self._leases().delete_one({"_id": self._identifier, "nonce": self._nonce})

    def _leases(self) -> Any:
        return self._connection.writable("leases", durable=False)

    def _taken(self, condition: dict[str, Any], *, upsert: bool = False) -> bool:
        update = {"nonce": self._nonce, "owner": self._owner, "expires": {"$add": ["$$NOW", _LIFE_MS]}}
        try:
            document = self._leases().find_one_and_update(
                {"_id": self._identifier, **condition}, [{"$set": update}], upsert=upsert, return_document=ReturnDocument.AFTER
            )
        except DuplicateKeyError:  # somebody's, and not expired
            return False
        return document is not None and document.get("nonce") == self._nonce

    def _taken_from_the_dead(self) -> bool:
        held = self._leases().find_one({"_id": self._identifier})
        if held is None or not isinstance(held.get("owner"), str) or not is_dead(held["owner"]):
            return False
        return self._taken({"nonce": held.get("nonce")})
