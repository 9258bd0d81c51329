"""Resources in MongoDB: pointer documents over GridFS-compatible collections."""

from __future__ import annotations

from data_stack.exception import MissingDependencyError

try:
    import bson
    import pymongo
except ImportError as error:
    raise MissingDependencyError("MongoDBStorageConnector", error.name or "pymongo", "mongodb") from error
del bson, pymongo

from data_stack.io.storage_connectors.mongodb.connector import MongoDBStorageConnector  # noqa: E402  # needs these

__all__ = ["MongoDBStorageConnector"]
