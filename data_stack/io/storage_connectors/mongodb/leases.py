"""The lease of a piece of work as a document with a heartbeat."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from typing import Any, Final

from bson import ObjectId
from pymongo import ReturnDocument
from pymongo.errors import DuplicateKeyError

from data_stack.exception import DataStackError
from data_stack.io.storage_connectors.connector import Lease
from data_stack.io.storage_connectors.mongodb.connection import Connection
from data_stack.io.storage_connectors.owners import is_dead, this_process

__all__ = ["MongoDBLease"]

#: A holder that is not heard of for so long has lost its lease. All times are the server's.
_LIFE_MS: Final = 9_000
_BEAT_SECONDS: Final = 2.0

logger = logging.getLogger(__name__)


class MongoDBLease(Lease):
    """A document of ``bucket.leases``, refreshed by a thread while it is held; a TTL index removes what is left of it.

    It ends with :meth:`close`. That of a process of this machine that died is free at once, that of another machine after 9 s
    without a heartbeat, by the server's clock.
    """

    def __init__(self, connection: Connection, identifier: str) -> None:
        self._connection, self._identifier = connection, identifier
        self._nonce, self._pid = ObjectId(), os.getpid()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def acquire(self) -> bool:
        if self._pid != os.getpid():  # a fork inherits no lease, and no thread that could keep it
            self._nonce, self._pid = ObjectId(), os.getpid()
            self._ended, self._thread = threading.Event(), None
        if self._thread is not None:
            return True
        with self._connection.operation("lease", self._identifier):
            self._connection.make_indexes()
            is_expired = {"$expr": {"$lt": ["$expires", "$$NOW"]}}
            if not (self._taken({"nonce": self._nonce}, upsert=True) or self._taken(is_expired) or self._taken_from_the_dead()):
                return False
        self._thread = threading.Thread(target=self._beat, name="data_stack-lease", daemon=True)
        self._thread.start()
        return True

    def close(self) -> None:
        """Give the lease back."""
        if self._thread is None or self._pid != os.getpid():
            return
        self._ended.set()
        self._thread.join()
        self._thread = None
        giving_back = self._connection.operation("give back the lease of", self._identifier)
        with contextlib.suppress(DataStackError), self._connection.briefly(), giving_back:
            self._leases().delete_one({"_id": self._identifier, "nonce": self._nonce})

    def _leases(self) -> Any:
        return self._connection.writable("leases", durable=False)

    def _taken(self, condition: dict[str, Any], *, upsert: bool = False) -> bool:
        update = {"nonce": self._nonce, "owner": this_process(), "expires": {"$add": ["$$NOW", _LIFE_MS]}}
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

    def _beat(self) -> None:
        while not self._ended.wait(_BEAT_SECONDS):
            try:
                with self._connection.briefly(), self._connection.operation("keep the lease of", self._identifier):
                    update = [{"$set": {"expires": {"$add": ["$$NOW", _LIFE_MS]}}}]
                    if not self._leases().update_one({"_id": self._identifier, "nonce": self._nonce}, update).matched_count:
                        logger.info("the lease of %r was lost: its holder was not heard of in time", self._identifier)
                        return
            except DataStackError as error:
                logger.debug("the lease of %r could not be kept: %s", self._identifier, error)
